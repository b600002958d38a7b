//! `UploadDtype`: narrowing has one right answer.

use modelbench_contract::{Backend, DeviceTensor};

use super::input;
use crate::compare::first_difference;
use crate::runner::finding::{CheckError, Finding};
use crate::runner::ops;
use crate::suite::Case;

/// The values that remain after narrowing, by the definitions of the formats.
fn narrowed(values: &[f32], dtype: &str) -> Vec<f32> {
    match dtype {
        "f16" => values.iter().map(|v| half::f16::from_f32(*v).to_f32()).collect(),
        "bf16" => values.iter().map(|v| half::bf16::from_f32(*v).to_f32()).collect(),
        _ => values.chunks(32).flat_map(q8_0).collect(),
    }
}

/// A block of 32: `d = amax/127`, codes rounded half away from zero.
fn q8_0(block: &[f32]) -> Vec<f32> {
    let amax = block.iter().fold(0.0f32, |m, v| m.max(v.abs()));
    let d = amax / 127.0;
    if d == 0.0 {
        return vec![0.0; block.len()];
    }
    let inverse = 1.0 / d;
    // A code is an integer, so that a negative value that rounds to nothing has no sign left.
    block.iter().map(|v| d * ((v * inverse).round().clamp(-127.0, 127.0) + 0.0)).collect()
}

/// Uploads f32 values as a narrower dtype and reads them back.
pub(super) fn check<B: Backend>(case: &Case, seed: u64, backend: &mut B) -> Result<Finding, CheckError> {
    let (operand, name) = (input(case, seed)?, case.text("dtype")?);
    let dtype = ops::dtype(case)?;
    let tensor = backend.upload(&operand.tensor, dtype)?;
    let got = backend.read(&tensor)?;
    let mut finding = Finding::default();
    finding.output(&got);
    finding.quality.elements = got.len() as u64;
    let claimed = tensor.desc().dtype;
    finding.require(claimed == dtype, || format!("the tensor says it is {claimed}, asked for {name}"));
    let want = narrowed(&operand.values, name);
    if let Some(at) = first_difference(&got, &want) {
        let (got, want) = (got.get(at), want.get(at));
        finding.wrong.push(format!("not narrowed to {name}: [{at}] reads {got:?}, want {want:?}"));
    }
    backend.free(tensor)?;
    Ok(finding)
}
