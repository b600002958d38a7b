//! State and memory: an answer depends on the operands of its call, and on nothing else that happened before.

mod calls;
mod memory;
mod stores;
#[cfg(test)]
mod tests;

use modelbench_contract::{Backend, Class, NumericProfile};
use modelbench_reference::CpuRef;

use super::finding::{CheckError, Finding};
use super::ops::OpPlan;
use super::script::{Truths, conclude};
use crate::inputs::Stream;
use crate::suite::Case;

/// The ops that a suite may name on the axis `op`.
pub const OPS: [&str; 9] = [
    "matmul",
    "batched_matmul",
    "rms_norm",
    "rope",
    "swiglu",
    "add_in_place",
    "add_bias",
    "attention",
    "argmax",
];

/// The axes of every op, for a check that calls one by name.
pub const OP_AXES: [&str; 16] = [
    "op", "dtype", "rows", "out", "in", "n", "eps", "heads", "head_dim", "pos", "theta", "kv", "kv_heads",
    "group", "pattern", "times",
];

/// Names of the axes that a check of this module reads.
pub fn axes(check: &str) -> Option<&'static [&'static str]> {
    Some(match check {
        "poisoned" | "mutated-handle" | "same-shape" | "same-prefix" | "repeats" | "interleaved-reads" => {
            &OP_AXES
        }
        "interleaved-stores" | "store-reuse" => &["layers", "kv", "kv_heads", "head_dim", "group"],
        _ => return None,
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
    let deterministic = profile.deterministic;
    let mut host = CpuRef::new();
    match case.group.check.as_str() {
        "poisoned" => {
            let plan = plan(case, seed, 0)?;
            let truths = Truths::of_plans(case, std::slice::from_ref(&plan), profile)?;
            let host = memory::poisoned(&mut host, &plan, true);
            conclude(case, &truths, host, &memory::poisoned(backend, &plan, deterministic)?, class)
        }
        "repeats" => {
            let (plan, times) = (plan(case, seed, 0)?, case.size("times")?);
            let truths = Truths::of_plans(case, std::slice::from_ref(&plan), profile)?;
            // What cpu-ref gives once it gives always, so that the host need not repeat itself.
            let host = calls::repeats(&mut host, &plan, 1, true);
            conclude(case, &truths, host, &calls::repeats(backend, &plan, times, deterministic)?, class)
        }
        "same-shape" => {
            let plans = [plan(case, seed, 0)?, plan(case, seed, 1)?, plan(case, seed, 2)?];
            let truths = Truths::of_plans(case, &plans, profile)?;
            let host = calls::in_turn(&mut host, &plans, true);
            conclude(case, &truths, host, &calls::in_turn(backend, &plans, deterministic)?, class)
        }
        "same-prefix" => {
            let (plans, truths) = calls::nearly_equal(case, plan(case, seed, 0)?, profile)?;
            let host = calls::in_turn(&mut host, &plans, true);
            conclude(case, &truths, host, &calls::in_turn(backend, &plans, deterministic)?, class)
        }
        "mutated-handle" => {
            let (plans, truths) = calls::mutations(case, plan(case, seed, 0)?, profile)?;
            let host = calls::mutated(&mut host, &plans);
            conclude(case, &truths, host, &calls::mutated(backend, &plans)?, class)
        }
        "interleaved-reads" => {
            let plans = (0..5).map(|k| plan(case, seed, k)).collect::<Result<Vec<_>, _>>()?;
            let order = Stream::new(seed, &case.id, "order").order(0, plans.len());
            let truths = Truths::of_plans(case, &plans, profile)?;
            let host = memory::interleaved_reads(&mut host, &plans, &order);
            conclude(case, &truths, host, &memory::interleaved_reads(backend, &plans, &order)?, class)
        }
        check => stores::check(check, case, seed, backend, class, profile),
    }
}

/// The plan of the op that a case names, on the data number `variant`.
fn plan(case: &Case, seed: u64, variant: u64) -> Result<OpPlan, CheckError> {
    let seed = if variant == 0 { seed } else { Stream::new(seed, &case.id, "variant").bits(variant) };
    OpPlan::of(case.text("op")?, case, seed)
}
