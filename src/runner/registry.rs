//! Which check runs for a case, which axes it reads, and what it says of itself.

use modelbench_contract::{Class, DType, NumericProfile};
use modelbench_evidence::numerics::Numerics;

use super::finding::{CheckError, Finding};
use super::models::Models;
use super::{
    caps, collectives, contract, endurance, evict, forward, generation, layer, metamorphic, numerics, ops,
    state,
};
use crate::compare::Question;
use crate::suite::{AxisValue, Case, SuiteError, Tolerance};
use crate::worker::{MemoryMeter, Remote};

/// Everything that a check may use beside the case and the backend.
pub struct Bench<'a> {
    /// The models and the truth about them.
    pub models: &'a mut Models,
    /// What is known of op cases from runs of other backends.
    pub kept: &'a mut ops::Kept,
    /// Seed of every input.
    pub seed: u64,
    /// Declared class.
    pub class: Class,
    /// Declared arithmetic.
    pub profile: NumericProfile,
    /// Memory of the worker at hand.
    pub memory: Option<MemoryMeter>,
}

/// Names and values that an axis may have: any number, or one of the listed names.
fn axes(check: &str) -> Option<Vec<&'static str>> {
    let fixed: &[&str] = match check {
        "forward" => &forward::AXES,
        "evict" => &evict::AXES,
        "layer" => &layer::AXES,
        check if generation::CHECKS.contains(&check) => &["model"],
        check => {
            return ops::axes(check)
                .or_else(|| contract::axes(check))
                .or_else(|| caps::axes(check))
                .or_else(|| collectives::axes(check))
                .or_else(|| state::axes(check))
                .or_else(|| metamorphic::axes(check))
                .or_else(|| endurance::axes(check))
                .or_else(|| numerics::axes(check))
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
        ("plant", _) => Some(ops::plant_names()),
        ("pattern", _) => Some(ops::PATTERNS.to_vec()),
        ("span", _) => Some(evict::SPANS.to_vec()),
        ("what", "lifetime") => Some(contract::LIFETIMES.to_vec()),
        ("what", "refusal") => Some(contract::REFUSALS.to_vec()),
        ("what", "collective") => Some(collectives::WHAT.to_vec()),
        ("dtype", _) => Some(DType::ALL.iter().map(|dtype| dtype.as_str()).collect()),
        ("graph", _) => Some(caps::GRAPHS.to_vec()),
        ("what", "graph-refusal") => Some(caps::REFUSALS.to_vec()),
        ("op", "numerics") => Some(numerics::OPS.to_vec()),
        ("aspect", "numerics") => Some(numerics::ASPECTS.to_vec()),
        ("op", _) => Some(state::OPS.to_vec()),
        ("what", "leak") => Some(endurance::LEAKS.to_vec()),
        ("what", "out-of-memory") => Some(endurance::SHORTAGES.to_vec()),
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
    let draws = case.group.random.keys().map(|axis| (axis, &AxisValue::Int(0)));
    for (axis, value) in case.params().iter().filter(|(axis, _)| *axis != "draw").chain(draws) {
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
    match (case.group.proves, case.text("op")) {
        (Some(cap), _) => cap.as_str().to_owned(),
        (None, Ok(op)) if case.group.check == "numerics" => op.to_owned(),
        _ => case.group.check.clone(),
    }
}

/// What the record says about the arithmetic before the case has run: a backend that gives no answer to the probes was
/// still asked.
///
/// # Errors
/// A suite error.
pub fn unanswered(case: &Case) -> Result<Option<Numerics>, CheckError> {
    (case.group.check == "numerics").then(|| numerics::unanswered(case)).transpose()
}

/// Runs the check of a case.
///
/// # Errors
/// What stopped it: the backend, the suite, or the kit itself.
pub fn check(case: &Case, remote: &mut Remote, bench: &mut Bench<'_>) -> Result<Finding, CheckError> {
    let Bench { models, kept, seed, class, profile, memory } = bench;
    let case = &case.drawn(*seed);
    match case.group.check.as_str() {
        "forward" => forward::check(case, *seed, models, remote, *class, profile),
        "evict" => evict::check(case, *seed, remote, profile),
        "layer" => layer::check(case, *seed, remote, *class, profile),
        name if generation::CHECKS.contains(&name) => generation::check(case, *seed, models, remote, profile),
        name if ops::axes(name).is_some() => ops::check(case, *seed, kept, remote, *class, profile),
        "numerics" => numerics::check(case, *seed, remote, *class, profile),
        name if contract::axes(name).is_some() => contract::check(case, *seed, remote),
        name if caps::axes(name).is_some() => {
            caps::check(case, remote, caps::Lab { seed: *seed, profile, memory: *memory })
        }
        name if state::axes(name).is_some() => state::check(case, *seed, remote, *class, profile),
        name if metamorphic::axes(name).is_some() => metamorphic::check(case, *seed, remote, *class, profile),
        name if endurance::axes(name).is_some() => {
            endurance::check(case, *seed, remote, *class, profile, *memory)
        }
        _ => collectives::check(case, *seed, remote),
    }
}

/// True if the case compares numbers with an oracle, so that it can be tried on wrong answers before any backend.
pub fn asks(case: &Case) -> bool {
    case.group.check == "layer" || ops::axes(&case.group.check).is_some()
}

/// What such a case wants, for a backend that declares plain f32.
///
/// # Errors
/// A suite error or a defect of the kit.
pub fn question(case: &Case, seed: u64) -> Result<Question, CheckError> {
    let case = case.drawn(seed);
    if case.group.check == "layer" { layer::question(&case, seed) } else { ops::question(&case, seed) }
}
