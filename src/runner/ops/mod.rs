//! Rung 1: one op at a time.

mod execute;
mod patterns;
mod plan;
mod truth;

use modelbench_contract::{Backend, Class, NumericProfile};
use modelbench_reference::CpuRef;

use execute::execute;
pub use patterns::PATTERNS;
pub use plan::{OpPlan, axes};
pub use truth::{allowance, truth};

use super::finding::{CheckError, Finding};
use crate::compare::{Want, bits_differ, judge, mistrust};
use crate::suite::{Case, Recipe};

/// Runs an op case on a backend and judges it.
///
/// # Errors
/// What stopped the check: the backend's error, a suite that asks for the impossible, or a defect of the kit.
pub fn check<B: Backend>(
    case: &Case,
    seed: u64,
    backend: &mut B,
    class: Class,
    profile: &NumericProfile,
) -> Result<Finding, CheckError> {
    let plan = OpPlan::new(case, seed)?;
    let (want, slack) = truth(case, &plan, profile)?;
    let mut host = CpuRef::new();
    let reference = execute(&mut host, &plan, true)
        .map_err(|e| CheckError::Kit(format!("{}: cpu-ref refused the case: {e}", case.id)))?;
    let own = truth(case, &plan, &modelbench_contract::Backend::numerics(&host))?;
    if let Some(wrong) = judge(&own.0, &reference.values, own.1).wrong {
        return Err(CheckError::Kit(format!("{}: cpu-ref is outside its own bound: {wrong}", case.id)));
    }

    let done = execute(backend, &plan, profile.deterministic)?;
    let mut finding = Finding::default();
    finding.output(&done.values);
    let judged = judge(&want, &done.values, slack);
    finding.quality = judged.quality;
    finding.quality.bits_compared = reference.values.len() as u64;
    finding.quality.bits_differ = bits_differ(&done.values, &reference.values);
    finding.wrong.extend(judged.wrong);
    finding.wrong.extend(done.violations);
    finding.require(done.shape == reference.shape, || {
        format!("the result claims shape {:?}, the op gives {:?}", done.shape, reference.shape)
    });
    if class == Class::Reference && finding.quality.bits_differ > 0 {
        let (differ, all) = (finding.quality.bits_differ, finding.quality.bits_compared);
        finding.wrong.push(format!("{differ} of {all} elements differ in bits from cpu-ref"));
    }
    if matches!(want, Want::Bounded(_))
        && matches!(case.group.input, Recipe::Reals { .. } | Recipe::Cancelling { .. })
    {
        finding.mistrusted = mistrust(&done.values);
    }
    Ok(finding)
}
