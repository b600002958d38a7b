//! Relations that hold between answers whatever the answers are: a batch and its rows, data and their double, a sum and
//! its parts, a store that forgot and one that never saw.

mod kv;
mod norm;
mod relation;
mod relations;
mod slices;
#[cfg(test)]
mod tests;

use modelbench_contract::{Backend, Class, NumericProfile};

use super::finding::{CheckError, Finding};
use super::ops::OpPlan;
use crate::suite::Case;

/// The axes of an op, and the ones of the relations.
const AXES: [&str; 18] = [
    "op", "dtype", "rows", "out", "in", "n", "eps", "heads", "head_dim", "pos", "theta", "kv", "kv_heads",
    "group", "power", "zeros", "at", "shift",
];

/// Names of the axes that a check of this module reads.
pub fn axes(check: &str) -> Option<&'static [&'static str]> {
    Some(match check {
        "batch-of-singles"
        | "scaling"
        | "row-permutation"
        | "zero-padding"
        | "split"
        | "score-shift"
        | "position-permutation" => &AXES,
        "rope-norm" => &["rows", "heads", "head_dim", "pos", "theta"],
        check => return kv::axes(check),
    })
}

/// Runs a check of this module.
///
/// # Errors
/// What stopped it.
pub fn check<B: Backend>(
    case: &Case,
    seed: u64,
    backend: &mut B,
    class: Class,
    profile: &NumericProfile,
) -> Result<Finding, CheckError> {
    let name = case.group.check.as_str();
    if kv::axes(name).is_some() {
        return kv::check(case, seed, backend, class, profile);
    }
    if name == "rope-norm" {
        return norm::check(case, OpPlan::of("rope", case, seed)?, backend, class, profile);
    }
    let attention = matches!(name, "score-shift" | "position-permutation");
    let plan = OpPlan::of(if attention { "attention" } else { case.text("op")? }, case, seed)?;
    let relation = match name {
        "batch-of-singles" => relations::batch_of_singles(case, plan),
        "scaling" => relations::scaling(case, plan),
        "row-permutation" => relations::row_permutation(case, seed, plan),
        "zero-padding" => relations::zero_padding(case, plan),
        "split" => relations::split(case, plan),
        "score-shift" => relations::score_shift(case, plan),
        _ => relations::position_permutation(case, seed, plan),
    }?;
    relation::hold(case, &relation, backend, class, profile)
}
