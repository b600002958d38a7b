//! Rung 6: much of everything. Many calls, many tensors, memory that must come back, memory that there is not, and
//! several stores at once.

mod churn;
mod leak;
mod recovery;
mod sessions;
mod shortage;
#[cfg(test)]
mod tests;

use modelbench_contract::{Class, NumericProfile};

use super::finding::{CheckError, Finding};
use super::ops::OpPlan;
use crate::suite::Case;
use crate::worker::{MemoryMeter, Remote};

pub use leak::LEAKS;
pub use shortage::SHORTAGES;

/// The axes of every op but `op` itself: a check that calls many ops gives them all.
const SHAPE_AXES: [&str; 15] = [
    "dtype", "rows", "out", "in", "n", "eps", "heads", "head_dim", "pos", "theta", "kv", "kv_heads", "group",
    "pattern", "rounds",
];

/// Names of the axes that a check of this module reads.
pub fn axes(check: &str) -> Option<&'static [&'static str]> {
    Some(match check {
        "many-ops" | "recovery" => &SHAPE_AXES,
        "churn" => &["steps", "most", "n"],
        "leak" => &["what", "mib", "kib"],
        "out-of-memory" => &["what"],
        "sessions" => &["stores", "rounds", "kv_heads", "head_dim", "group"],
        _ => return None,
    })
}

/// Runs a check of this module. `memory` measures the worker.
///
/// # Errors
/// What stopped it.
pub fn check(
    case: &Case,
    seed: u64,
    remote: &mut Remote,
    class: Class,
    profile: &NumericProfile,
    memory: Option<MemoryMeter>,
) -> Result<Finding, CheckError> {
    match case.group.check.as_str() {
        "many-ops" => churn::many_ops(case, seed, remote, class, profile),
        "churn" => churn::check(case, seed, remote),
        "leak" => leak::check(case, remote, || memory.and_then(MemoryMeter::resident)),
        "out-of-memory" => shortage::check(case, remote),
        "recovery" => recovery::check(case, seed, remote, class, profile),
        _ => sessions::check(case, seed, remote, class, profile),
    }
}

/// A plan for each op whose shapes the case gives: with `rows` of 0 those that take vectors, else those that take rows.
fn plans(case: &Case, seed: u64) -> Result<Vec<OpPlan>, CheckError> {
    let product = if case.size_or("rows", 0)? == 0 { "matmul" } else { "batched_matmul" };
    let ops = [product, "rms_norm", "rope", "swiglu", "add_in_place", "add_bias", "attention", "argmax"];
    ops.into_iter().map(|op| OpPlan::of(op, case, seed)).collect()
}
