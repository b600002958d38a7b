//! `CapacityProbe` and `HostCapacityProbe`: figures that can be, and that follow what is uploaded.

use modelbench_contract::{Backend, BackendError, Capacity, DType, HostTensor, Op};

use crate::runner::finding::{CheckError, Finding};
use crate::suite::Case;

/// Device memory as the backend tells it.
pub(super) fn device<B: Backend>(backend: &mut B) -> Result<Capacity, BackendError> {
    match backend.device_capacity() {
        Some(device) => device.capacity(),
        None => Err(BackendError::unimplemented(Op::DeviceCapacity)),
    }
}

/// The figures for host memory, as such.
pub(super) fn check_host<B: Backend>(backend: &mut B) -> Result<Finding, CheckError> {
    match backend.host_capacity() {
        Some(host) => Ok(plausible(host.capacity()?)),
        None => Err(BackendError::unimplemented(Op::HostCapacity).into()),
    }
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
pub(super) fn check_device<B: Backend>(case: &Case, backend: &mut B) -> Result<Finding, CheckError> {
    let elements = case.size("n")?;
    let before = device(backend)?;
    let mut finding = plausible(before);
    let tensor = backend.upload(&HostTensor::from_f32(&[elements], &vec![1.0; elements])?, DType::F32)?;
    backend.sync()?;
    let during = device(backend)?;
    backend.free(tensor)?;
    backend.sync()?;
    let after = device(backend)?;
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
