//! Rung 3: every advertised cap, proven.

use modelbench_contract::{Backend, BackendError, Capacity, DType, DeviceTensor, HostTensor, Op};

use super::finding::{CheckError, Finding};
use crate::compare::first_difference;
use crate::inputs::{Operand, Stream};
use crate::suite::Case;

/// Names of the axes that a check of this file reads.
pub fn axes(check: &str) -> Option<&'static [&'static str]> {
    Some(match check {
        "upload-dtype" => &["dtype", "n"],
        "device-memory" | "capacity" => &["n"],
        "host-capacity" => &[],
        _ => return None,
    })
}

/// Runs the proof of a cap.
///
/// # Errors
/// What stopped the check.
pub fn check<B: Backend>(case: &Case, seed: u64, backend: &mut B) -> Result<Finding, CheckError> {
    match case.group.check.as_str() {
        "upload-dtype" => upload_dtype(case, seed, backend),
        "device-memory" => device_memory(case, seed, backend),
        "host-capacity" => {
            let probe = |b: &mut B| match b.host_capacity() {
                Some(host) => host.capacity(),
                None => Err(BackendError::unimplemented(Op::HostCapacity)),
            };
            Ok(plausible(probe(backend)?))
        }
        _ => capacity(case, backend),
    }
}

fn input(case: &Case, seed: u64) -> Result<Operand, CheckError> {
    let stream = Stream::new(seed, &case.id, "t");
    Ok(Operand::make("t", &[case.size("n")?], DType::F32, case.group.input, &stream)?)
}

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

fn upload_dtype<B: Backend>(case: &Case, seed: u64, backend: &mut B) -> Result<Finding, CheckError> {
    let (operand, name) = (input(case, seed)?, case.text("dtype")?);
    let dtype = DType::ALL.into_iter().find(|d| d.as_str() == name).unwrap_or(DType::F32);
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

fn device_memory<B: Backend>(case: &Case, seed: u64, backend: &mut B) -> Result<Finding, CheckError> {
    let operand = input(case, seed)?;
    let tensor = backend.upload(&operand.tensor, DType::F32)?;
    let mut finding = Finding::default();
    let viewed = backend.host(&tensor)?.is_some();
    finding.require(!viewed, || "DeviceMemory is advertised, but the host can view the tensor".to_owned());
    let got = backend.read(&tensor)?;
    finding.output(&got);
    finding.quality.elements = got.len() as u64;
    finding.require(first_difference(&got, &operand.values).is_none(), || {
        "the tensor reads back changed".to_owned()
    });
    finding.notes.push("growth of the worker's memory is not measured in this version".to_owned());
    backend.free(tensor)?;
    Ok(finding)
}

fn plausible(capacity: Capacity) -> Finding {
    let mut finding = Finding::default();
    finding.require(capacity.total > 0, || "total is 0: unknown must not be reported as 0".to_owned());
    if let Some(free) = capacity.free {
        finding.require(free <= capacity.total, || format!("free {free} exceeds total {}", capacity.total));
    } else {
        finding.notes.push("free memory is unknown".to_owned());
    }
    finding
}

/// Free memory must fall by at least half of a large upload and come back after it is freed. Half, because pools
/// may hold some of it already.
fn capacity<B: Backend>(case: &Case, backend: &mut B) -> Result<Finding, CheckError> {
    fn ask<B: Backend>(backend: &mut B) -> Result<Capacity, BackendError> {
        match backend.device_capacity() {
            Some(device) => device.capacity(),
            None => Err(BackendError::unimplemented(Op::DeviceCapacity)),
        }
    }
    let elements = case.size("n")?;
    let before = ask(backend)?;
    let mut finding = plausible(before);
    let tensor = backend.upload(&HostTensor::from_f32(&[elements], &vec![1.0; elements])?, DType::F32)?;
    backend.sync()?;
    let during = ask(backend)?;
    backend.free(tensor)?;
    backend.sync()?;
    let after = ask(backend)?;
    if let (Some(before), Some(during), Some(after)) = (before.free, during.free, after.free) {
        let half = elements as u64 * 2;
        finding.require(before.saturating_sub(during) >= half, || {
            format!("free memory fell from {before} to {during} when {} bytes were uploaded", elements * 4)
        });
        finding.require(after.saturating_sub(during) >= half, || {
            format!("free memory went from {during} to {after} when the upload was freed")
        });
    }
    Ok(finding)
}
