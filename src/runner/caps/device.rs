//! `DeviceMemory`: tensors live where the host cannot view them, and not in the worker's own memory.

use modelbench_contract::{Backend, DType, DeviceKind, HostTensor};

use super::input;
use crate::compare::first_difference;
use crate::runner::finding::{CheckError, Finding};
use crate::suite::Case;
use crate::worker::MemoryMeter;

/// A tensor in device memory cannot be viewed, and still reads back.
pub(super) fn check_view<B: Backend>(case: &Case, seed: u64, backend: &mut B) -> Result<Finding, CheckError> {
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
    backend.free(tensor)?;
    Ok(finding)
}

/// Several large tensors live at once; the worker's memory must not grow by what they hold. Several, so that one
/// staging buffer does not look like all of them.
pub(super) fn check_growth<B: Backend>(
    case: &Case,
    backend: &mut B,
    memory: Option<MemoryMeter>,
) -> Result<Finding, CheckError> {
    let (n, count) = (case.size("n")?, case.size("tensors")?);
    let most = case.limit("growth_percent", |limits| limits.growth_percent)?;
    let mut finding = Finding::default();
    let kind = backend.device().kind;
    let applies = kind == DeviceKind::Discrete;
    let count = if applies { count } else { 1 };
    if !applies {
        finding.notes.push(format!(
            "growth of the worker's memory does not apply: a {kind:?} device has no memory apart from the host's"
        ));
    }
    let values: Vec<f32> = (0..n).map(|i| (i % 251) as f32).collect();
    let host = HostTensor::from_f32(&[n], &values)?;
    backend.sync()?;
    let before = memory.and_then(MemoryMeter::resident);
    let mut tensors = Vec::with_capacity(count);
    for _ in 0..count {
        tensors.push(backend.upload(&host, DType::F32)?);
    }
    backend.sync()?;
    let after = memory.and_then(MemoryMeter::resident);
    for tensor in tensors {
        let got = backend.read(&tensor)?;
        finding.quality.elements += got.len() as u64;
        finding.require(first_difference(&got, &values).is_none(), || {
            "the tensor reads back changed".to_owned()
        });
        backend.free(tensor)?;
    }
    if applies {
        judge_growth(&mut finding, before.zip(after), (n * count * 4) as u64, most);
    }
    Ok(finding)
}

/// Judges resident bytes before and after so many bytes were uploaded.
fn judge_growth(finding: &mut Finding, seen: Option<(u64, u64)>, uploaded: u64, most: u64) {
    let Some((before, after)) = seen else {
        finding.mistrusted = Some("the worker's memory cannot be measured on this system".to_owned());
        return;
    };
    let growth = after.saturating_sub(before);
    let text = format!("the worker's memory grew by {growth} bytes while {uploaded} were uploaded");
    let held = u128::from(growth) * 100 <= u128::from(uploaded) * u128::from(most);
    finding.require(held, || format!("{text}: more than {most} % of them stay in host memory"));
    finding.notes.push(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use modelbench_evidence::outcome::Outcome;

    fn outcome(seen: Option<(u64, u64)>) -> Outcome {
        let mut finding = Finding::default();
        judge_growth(&mut finding, seen, 1000, 50);
        finding.outcome()
    }

    #[test]
    fn growth_is_a_share_of_what_was_uploaded() {
        assert_eq!(outcome(Some((100, 600))), Outcome::Pass);
        assert_eq!(outcome(Some((100, 90))), Outcome::Pass);
        assert!(matches!(outcome(Some((100, 601))), Outcome::Mismatch { .. }));
        assert!(matches!(outcome(None), Outcome::Mistrusted { .. }));
    }
}
