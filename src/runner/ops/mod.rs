//! Rung 1: one op at a time.

mod attention;
mod execute;
mod explain;
mod formula;
mod known;
mod live;
mod patterns;
mod plan;
mod plants;
mod question;
mod truth;

use std::borrow::Cow;

use modelbench_contract::{Backend, Class, NumericProfile};

use execute::execute;
pub use explain::explain;
pub use known::{Kept, Known};
pub use live::Live;
pub use patterns::PATTERNS;
pub use plan::{Call, OpPlan, axes, dtype};
pub use plants::names as plant_names;
pub use question::question;
pub use truth::{allowance, ask, same_truth, truth};

use super::finding::{CheckError, Finding};
use crate::compare::{judge, mistrust};
use crate::suite::{Case, Recipe, Tolerance};

/// Runs an op case on a backend and judges it.
///
/// # Errors
/// What stopped the check: the backend's error, a suite that asks for the impossible, or a defect of the kit.
pub fn check<B: Backend>(
    case: &Case,
    seed: u64,
    kept: &mut Kept,
    backend: &mut B,
    class: Class,
    profile: &NumericProfile,
) -> Result<Finding, CheckError> {
    let known = kept.of(case, seed, profile)?;
    let Known { plan, want, slack, reference } = &*known;
    let done = execute(backend, plan, profile.deterministic)?;
    let exact = matches!(case.group.tolerance, Tolerance::Exact { .. });
    let mut finding = Finding::default();
    finding.output(&told(exact, &done.values));
    let judged = judge(want, &done.values, *slack);
    finding.quality = judged.quality;
    finding.compare_bits(&done.values, &reference.values);
    finding.wrong.extend(judged.wrong);
    finding.wrong.extend(done.violations);
    finding.require(done.shape == reference.shape, || {
        format!("the result claims shape {:?}, the op gives {:?}", done.shape, reference.shape)
    });
    finding.require_bits(class);
    if needs_information(case) {
        finding.mistrusted = mistrust(&done.values);
    }
    Ok(finding)
}

/// The digest of a case with these values, as the record holds it.
pub fn digest_of(exact: bool, values: &[f32]) -> String {
    let mut finding = Finding::default();
    finding.output(&told(exact, values));
    finding.output_sha256()
}

/// Values as the record tells them. An exact case has one right answer but for the sign of zero and the payload of NaN,
/// which mean nothing there: they are told alike, so that whoever knows the answer knows its digest.
fn told(exact: bool, values: &[f32]) -> Cow<'_, [f32]> {
    let plain = |value: &f32| match *value {
        value if value.is_nan() => f32::NAN,
        0.0 => 0.0,
        value => value,
    };
    if exact { values.iter().map(plain).collect::<Vec<_>>().into() } else { values.into() }
}

/// True if an answer that is constant, mostly zeros or of few values is no pass: the data are real-valued, and what is
/// planted into them does not rightly fill a row with one value.
fn needs_information(case: &Case) -> bool {
    matches!(case.group.tolerance, Tolerance::Bound { .. })
        && matches!(case.group.input, Recipe::Reals { .. } | Recipe::Cancelling { .. })
        && !case.params().contains_key("plant")
}
