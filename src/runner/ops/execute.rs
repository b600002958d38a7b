//! Runs a plan on a backend, and watches that nothing else changes.

use std::borrow::Cow;

use modelbench_contract::{Backend, DType, DeviceTensor, HostTensor, Result};

use super::live::{Live, Started};
use super::plan::OpPlan;
use crate::compare::first_difference;

/// What a run of a plan gave.
#[derive(Debug, Clone, Default)]
pub struct Executed {
    /// Shape that the result claims.
    pub shape: Vec<usize>,
    /// Its values; for argmax the index, as a value.
    pub values: Vec<f32>,
    /// Inputs or neighbours that changed, and repeats that differ, in words.
    pub violations: Vec<String>,
}

/// Values of the two tensors that are uploaded around the operands.
const GUARD: [f32; 5] = [1.5, -0.0, f32::MAX, f32::MIN_POSITIVE, -7.25];

/// Runs the plan twice on the same operands; a deterministic backend must give the same bits.
///
/// # Errors
/// The first error that the backend gives.
pub fn execute<B: Backend>(backend: &mut B, plan: &OpPlan, deterministic: bool) -> Result<Executed> {
    let guard = HostTensor::from_f32(&[GUARD.len()], &GUARD)?;
    let before = backend.upload(&guard, DType::F32)?;
    let mut live = Live::upload(backend, plan)?;
    live.watch_store();
    let after = backend.upload(&guard, DType::F32)?;
    // How a quantised tensor reads back may differ in the last bit between backends, so that it is compared with
    // itself; a float tensor must read back as what was sent.
    let mut expected = Vec::with_capacity(plan.operands.len());
    for (operand, tensor) in plan.operands.iter().zip(live.tensors()) {
        let quantised = operand.tensor.dtype().block_elements() > 1;
        expected.push(if quantised {
            Cow::Owned(backend.read(tensor)?)
        } else {
            Cow::Borrowed(&operand.values[..])
        });
    }

    let mut done = call(backend, &mut live)?;
    if deterministic && !plan.in_place() {
        let again = call(backend, &mut live)?;
        if let Some(i) = first_difference(&done.values, &again.values) {
            done.violations.push(format!("the same call on the same operands gave other bits at [{i}]"));
        }
    }
    for (i, (tensor, was)) in live.tensors().iter().zip(&expected).enumerate() {
        if plan.in_place() && i == 0 {
            continue;
        }
        let now = backend.read(tensor)?;
        if let Some(at) = first_difference(&now, was) {
            done.violations.push(changed(plan.operands[i].name, at, now.get(at), was.get(at)));
        }
    }
    for (name, tensor) in [("the tensor uploaded before", before), ("the tensor uploaded after", after)] {
        let now = backend.read(&tensor)?;
        if let Some(at) = first_difference(&now, &GUARD) {
            done.violations.push(changed(name, at, now.get(at), GUARD.get(at)));
        }
        backend.free(tensor)?;
    }
    done.violations.extend(store_changed(plan, &live));
    live.free(backend)?;
    backend.sync()?;
    Ok(done)
}

/// The rows of a KV store are inputs of attention like any other: after it they must be those that were appended.
fn store_changed<T>(plan: &OpPlan, live: &Live<T>) -> Vec<String> {
    let (Some(held), [_, _, keys, values]) = (live.stored(), plan.operands.as_slice()) else {
        return Vec::new();
    };
    let parts = [("keys of the store", &held[0], keys), ("values of the store", &held[1], values)];
    let differ = parts.into_iter().filter_map(|(name, now, was)| {
        let at = first_difference(now, &was.values)?;
        Some(changed(name, at, now.get(at), was.values.get(at)))
    });
    differ.collect()
}

fn changed(name: &str, at: usize, now: Option<&f32>, was: Option<&f32>) -> String {
    let show = |v: Option<&f32>| v.map_or("nothing".to_owned(), |v| format!("{v:e}"));
    format!("{name} changed at [{at}]: it was {}, now it is {}", show(was), show(now))
}

fn call<B: Backend>(backend: &mut B, live: &mut Live<B::Tensor>) -> Result<Executed> {
    let started = live.start(backend)?;
    let mut done = Executed { shape: vec![1], ..Executed::default() };
    match &started {
        Started::Tensor(result) => done.shape.clone_from(&result.desc().shape),
        Started::InPlace => {
            if let Some(dst) = live.tensors().first() {
                done.shape.clone_from(&dst.desc().shape);
            }
        }
        Started::Index(_) => {}
    }
    done.values = live.finish(backend, started)?;
    Ok(done)
}
