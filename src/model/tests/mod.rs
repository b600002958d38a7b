//! Tests over whole models and files. `make` writes files, `counting` is cpu-ref with a ledger.

mod checkpoint;
mod counting;
mod formats;
mod forward;
mod fuzz;
mod goldens;
mod hostile;
mod make;
mod qwen2;

use modelbench_contract::Backend;
use modelbench_reference::CpuRef;

use super::*;

/// Everything that one batch over `tokens` gives.
fn run<B: Backend>(backend: &mut B, model: &Model, tokens: &[usize]) -> ForwardOutput {
    let weights = Resident::upload(backend, model).unwrap();
    let mut session = Session::new(backend, model, &weights, tokens.len()).unwrap();
    let output = session.prefill(backend, tokens, Capture::ALL).unwrap();
    session.free(backend).unwrap();
    weights.free(backend).unwrap();
    output
}

/// The same one token at a time.
fn run_steps<B: Backend>(backend: &mut B, model: &Model, tokens: &[usize]) -> ForwardOutput {
    let weights = Resident::upload(backend, model).unwrap();
    let mut session = Session::new(backend, model, &weights, tokens.len()).unwrap();
    let mut all = ForwardOutput::default();
    for &token in tokens {
        let one = session.step(backend, token, Capture::ALL).unwrap();
        all.logits.extend(one.logits);
        all.hidden.resize(one.hidden.len(), Vec::new());
        all.hidden.iter_mut().zip(one.hidden).for_each(|(all, one)| all.extend(one));
    }
    session.free(backend).unwrap();
    weights.free(backend).unwrap();
    all
}

fn bits(output: &ForwardOutput) -> Vec<Vec<u32>> {
    let rows = output.logits.iter().chain(&output.hidden);
    rows.map(|row| row.iter().map(|x| x.to_bits()).collect()).collect()
}

/// Largest absolute difference.
fn difference(got: &[f32], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len());
    let pairs = got.iter().zip(want);
    pairs.map(|(g, w)| (f64::from(*g) - w).abs()).fold(0.0, |a, d| if d > a || d.is_nan() { d } else { a })
}

fn cpu() -> CpuRef {
    CpuRef::new()
}
