//! Which check runs for a case, which axes it reads, and what it says of itself.

use modelbench_contract::{Class, NumericProfile};

use super::finding::{CheckError, Finding};
use super::models::Models;
use super::{caps, collectives, contract, evict, forward, generation, ops};
use crate::inputs::Stream;
use crate::suite::{AxisValue, Case, SuiteError, Tolerance};
use crate::worker::Remote;

/// Everything that a check may use beside the case and the backend.
pub struct Bench<'a> {
    /// The models and the truth about them.
    pub models: &'a mut Models,
    /// Seed of every input.
    pub seed: u64,
    /// Declared class.
    pub class: Class,
    /// Declared arithmetic.
    pub profile: NumericProfile,
}

/// Names and values that an axis may have: any number, or one of the listed names.
fn axes(check: &str) -> Option<Vec<&'static str>> {
    let fixed: &[&str] = match check {
        "forward" => &forward::AXES,
        "evict" => &evict::AXES,
        check if generation::CHECKS.contains(&check) => &["model"],
        check => {
            return ops::axes(check)
                .or_else(|| contract::axes(check))
                .or_else(|| caps::axes(check))
                .or_else(|| collectives::axes(check))
                .map(<[_]>::to_vec);
        }
    };
    Some(fixed.to_vec())
}

/// The names that an axis takes, where they are a closed list.
fn names(axis: &str, check: &str) -> Option<Vec<&'static str>> {
    match (axis, check) {
        ("model", _) => Some(vec!["model", "kjv", "tied", "untied"]),
        ("path", _) => Some(forward::PATHS.to_vec()),
        ("pattern", _) => Some(ops::PATTERNS.to_vec()),
        ("span", _) => Some(evict::SPANS.to_vec()),
        ("what", "lifetime") => Some(contract::LIFETIMES.to_vec()),
        ("what", "refusal") => Some(contract::REFUSALS.to_vec()),
        ("what", "collective") => Some(collectives::WHAT.to_vec()),
        ("dtype", _) => Some(vec!["f32", "f16", "bf16", "q8_0", "q4_k"]),
        _ => None,
    }
}

/// Checks that a case names a check, that its axes are the ones the check reads, and that their values can be.
///
/// # Errors
/// [`SuiteError::Invalid`] naming file, line and group.
pub fn validate(case: &Case) -> Result<(), SuiteError> {
    let check = case.group.check.as_str();
    let Some(known) = axes(check) else {
        return Err(case.invalid(format!("no check is named {check:?}")));
    };
    for (axis, value) in case.params() {
        if !known.contains(&axis.as_str()) {
            return Err(case
                .invalid(format!("check {check:?} reads no axis {axis:?}; it reads {}", known.join(", "))));
        }
        match (names(axis, check), value) {
            (Some(names), AxisValue::Text(name)) if !names.contains(&name.as_str()) => {
                return Err(case.invalid(format!("{axis} = {name:?}: expected one of {}", names.join(", "))));
            }
            (Some(names), AxisValue::Int(n)) => {
                return Err(case.invalid(format!("{axis} = {n}: expected one of {}", names.join(", "))));
            }
            _ => {}
        }
    }
    let whole_model = check == "forward" || generation::CHECKS.contains(&check);
    if whole_model != matches!(case.group.tolerance, Tolerance::Ensemble { .. }) {
        return Err(
            case.invalid(format!("tolerance {:?} does not fit check {check:?}", case.group.tolerance.kind()))
        );
    }
    Ok(())
}

/// What the record calls the case's subject: the op for a case of one op, the cap for a proof, else the check.
pub fn subject(case: &Case) -> String {
    match case.group.proves {
        Some(cap) => cap.as_str().to_owned(),
        None => case.group.check.clone(),
    }
}

/// Runs the check of a case.
///
/// # Errors
/// What stopped it: the backend, the suite, or the kit itself.
pub fn check(case: &Case, remote: &mut Remote, bench: &mut Bench<'_>) -> Result<Finding, CheckError> {
    let Bench { models, seed, class, profile } = bench;
    match case.group.check.as_str() {
        "forward" => forward::check(case, *seed, models, remote, *class, profile),
        "evict" => evict::check(case, *seed, remote, profile),
        name if generation::CHECKS.contains(&name) => generation::check(case, *seed, models, remote, profile),
        name if ops::axes(name).is_some() => ops::check(case, *seed, remote, *class, profile),
        name if contract::axes(name).is_some() => contract::check(case, *seed, remote),
        name if caps::axes(name).is_some() => caps::check(case, *seed, remote),
        _ => collectives::check(case, *seed, remote),
    }
}

/// Lines that say how the truth of a case is found, with its numbers where they follow from the case alone.
///
/// # Errors
/// A suite error, or a defect of the kit.
pub fn explain(case: &Case, seed: u64) -> Result<Vec<String>, CheckError> {
    let mut lines = Vec::new();
    match &case.group.tolerance {
        Tolerance::Exact { .. } => lines.push("every element must be equal; -0 equals 0".to_owned()),
        Tolerance::Bound { slack, .. } => {
            lines.push(format!("|got - want| <= {slack} * bound, the bound derived per element from the data"));
        }
        Tolerance::Ensemble { runs, multiple, cosine_floor, .. } => lines.push(format!(
            "|got - want| <= {multiple} * the largest deviation over {runs} perturbed references; cosine >= {cosine_floor}"
        )),
    }
    if ops::axes(&case.group.check).is_some() {
        let plan = ops::OpPlan::new(case, seed)?;
        for operand in &plan.operands {
            let stream = Stream::new(seed, &case.id, operand.name);
            lines.push(format!(
                "{}: {} {:?}, first value {:e}, stream {:016x}",
                operand.name,
                operand.tensor.dtype(),
                operand.shape(),
                operand.values.first().copied().unwrap_or(f32::NAN),
                stream.bits(0)
            ));
        }
        let (want, slack) = ops::truth(case, &plan, &NumericProfile::F32)?;
        if let crate::compare::Want::Bounded(bounded) = want {
            let largest = bounded.bound.iter().copied().fold(0.0, f64::max) * slack;
            let first = bounded.bound.first().copied().unwrap_or(0.0) * slack;
            let value = bounded.want.first().copied().unwrap_or(0.0);
            lines.push(format!(
                "with plain f32: want[0] = {value:e}, bound[0] = {first:e}, largest bound {largest:e}"
            ));
        }
    }
    Ok(lines)
}
