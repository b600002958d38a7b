//! A rotation keeps the length of every pair.

use modelbench_contract::{Backend, Class, NumericProfile};
use modelbench_reference::CpuRef;

use super::super::finding::{CheckError, Finding};
use super::super::ops::{Call, OpPlan, truth};
use super::super::script::{Script, Truths, conclude};
use crate::compare::Want;
use crate::oracle::Bounded;
use crate::suite::Case;

/// Lengths of the pairs `(j, j + head_dim/2)` of every head.
fn lengths(values: &[f32], head_dim: usize) -> Vec<f64> {
    let half = head_dim / 2;
    let heads = values.chunks(head_dim.max(1));
    heads
        .flat_map(|head| head[..half].iter().zip(&head[half..]))
        .map(|(a, b)| f64::from(*a).hypot(f64::from(*b)))
        .collect()
}

/// Rotates and compares the length of each pair with its length before. The limit is that of the two elements together:
/// a length moves by no more than the sum of what its coordinates move by, and by one rounding to f32.
pub(super) fn check<B: Backend>(
    case: &Case,
    plan: OpPlan,
    backend: &mut B,
    class: Class,
    profile: &NumericProfile,
) -> Result<Finding, CheckError> {
    let (Call::Rope(spec), [x]) = (plan.call, plan.operands.as_slice()) else {
        return Err(CheckError::Kit(format!("{}: no rotation", case.id)));
    };
    let half = spec.head_dim / 2;
    let want = lengths(&x.values, spec.head_dim);
    let truths = Truths::new(profile, |profile| {
        let (Want::Bounded(Bounded { bound, .. }), slack) = truth(case, &plan, profile)? else {
            return Err(CheckError::Kit(format!("{}: no bound", case.id)));
        };
        let heads = bound.chunks(spec.head_dim);
        let sums = heads.flat_map(|head| head[..half].iter().zip(&head[half..]).map(|(a, b)| a + b));
        let rounded = want.iter().map(|length| length * f64::from(f32::EPSILON));
        let bound = sums.zip(rounded).map(|(a, b)| a + b).collect();
        Ok(vec![(Want::Bounded(Bounded { want: want.clone(), bound }), slack)])
    })?;
    let script = |values: Vec<f32>| {
        let mut script = Script::default();
        let found = lengths(&values, spec.head_dim).into_iter().map(|length| length as f32).collect();
        script.answer("lengths of the pairs", 0, found);
        script
    };
    let host = plan.once(&mut CpuRef::new()).map(script);
    let got = script(plan.once(backend)?);
    conclude(case, &truths, host, &got, class)
}
