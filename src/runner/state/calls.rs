//! Calls that look alike: a result that is kept by shape, by handle or by a part of the content shows.

use modelbench_contract::{Backend, DType, HostTensor, NumericProfile, Result};

use super::super::finding::CheckError;
use super::super::ops::{Live, OpPlan};
use super::super::script::{Script, Truths};
use crate::inputs::Operand;
use crate::suite::Case;

/// Places that are tried for a change that shows in the result.
const TRIES: usize = 8;
/// What is added to one element: so much that it shows above the error of activations with 8-bit codes, which grows
/// with it, but thirty times slower than the result.
const CHANGE: f32 = 64.0;

/// One op many times on the same operands.
pub(super) fn repeats<B: Backend>(
    backend: &mut B,
    plan: &OpPlan,
    times: usize,
    deterministic: bool,
) -> Result<Script> {
    let mut script = Script::default();
    let mut kept: Option<Live<B::Tensor>> = None;
    for run in 1..=times {
        // An op in place uses its operands up.
        let mut live = match kept.take() {
            Some(live) => live,
            None => Live::upload(backend, plan)?,
        };
        let values = live.run(backend)?;
        if plan.in_place() {
            live.free(backend)?;
        } else {
            kept = Some(live);
        }
        script.again(&format!("run {run} of {times}"), 0, values, deterministic);
    }
    if let Some(live) = kept {
        live.free(backend)?;
    }
    Ok(script)
}

/// Plans of the same shapes one after the other, with the first one in between and at the end.
pub(super) fn in_turn<B: Backend>(backend: &mut B, plans: &[OpPlan], deterministic: bool) -> Result<Script> {
    let mut script = Script::default();
    let others = 1..plans.len();
    for i in std::iter::once(0).chain(others.flat_map(|other| [other, other, 0])) {
        let Some(plan) = plans.get(i) else { continue };
        let values = plan.once(backend)?;
        script.again(&format!("data {i}"), i, values, deterministic);
    }
    Ok(script)
}

/// The same operands with other values in one of them.
fn with_operand(plan: &OpPlan, at: usize, values: Vec<f32>) -> Result<OpPlan, CheckError> {
    let mut changed = plan.clone();
    let old = &plan.operands[at];
    changed.operands[at] = Operand::from_f32(old.name, old.shape(), values)?;
    Ok(changed)
}

fn f32_operands(plan: &OpPlan) -> Vec<usize> {
    (0..plan.operands.len()).filter(|&i| plan.operands[i].tensor.dtype() == DType::F32).collect()
}

fn nothing_shows(case: &Case) -> CheckError {
    case.invalid("no change of one operand shows in the result; choose larger shapes").into()
}

/// The plan, and for each f32 operand a plan that differs in one element near its middle, so that first, last and most
/// bytes are equal. Elements that do not show in the result are passed over.
pub(super) fn nearly_equal(
    case: &Case,
    plan: OpPlan,
    profile: &NumericProfile,
) -> Result<(Vec<OpPlan>, Truths), CheckError> {
    let mut plans = vec![plan.clone()];
    for at in f32_operands(&plan) {
        let values = &plan.operands[at].values;
        let middle = values.len() / 2;
        for element in (middle..values.len()).take(TRIES) {
            let mut values = values.clone();
            values[element] += CHANGE;
            let changed = with_operand(&plan, at, values)?;
            let pair = [plan.clone(), changed];
            if Truths::of_plans(case, &pair, profile)?.differ(0, 1) {
                let [_, changed] = pair;
                plans.push(changed);
                break;
            }
        }
    }
    if plans.len() == 1 {
        return Err(nothing_shows(case));
    }
    let truths = Truths::of_plans(case, &plans, profile)?;
    Ok((plans, truths))
}

/// A plan, what is added in place to one of its operands, and the plan with the sum.
pub(super) struct Mutation {
    operand: usize,
    added: Vec<f32>,
    before: OpPlan,
}

/// For each f32 operand the plan before and after `x += d`, where `d` is 0, `x` or `-2x` element by element and `x` has
/// eight significant bits, so that the sum is exact in every precision and no common factor is left that a
/// normalisation would cancel.
pub(super) fn mutations(
    case: &Case,
    mut plan: OpPlan,
    profile: &NumericProfile,
) -> Result<(Vec<Mutation>, Truths), CheckError> {
    for operand in f32_operands(&plan) {
        let short = plan.operands[operand].values.iter().map(|x| half::bf16::from_f32(*x).to_f32()).collect();
        plan = with_operand(&plan, operand, short)?;
    }
    let (mut mutations, mut plans) = (Vec::new(), vec![plan.clone()]);
    for operand in f32_operands(&plan) {
        let values = &plan.operands[operand].values;
        // The largest of some logits stays the largest when it doubles: one of the three turns inverts it.
        for turn in 0..3 {
            let change = |(i, x): (usize, &f32)| [*x, -2.0 * x, 0.0][(i + turn) % 3];
            let added: Vec<f32> = values.iter().enumerate().map(change).collect();
            let sum = values.iter().zip(&added).map(|(x, d)| x + d).collect();
            let pair = [plan.clone(), with_operand(&plan, operand, sum)?];
            if Truths::of_plans(case, &pair, profile)?.differ(0, 1) {
                let [before, after] = pair;
                plans.push(after);
                mutations.push(Mutation { operand, added, before });
                break;
            }
        }
    }
    if mutations.is_empty() {
        return Err(nothing_shows(case));
    }
    let truths = Truths::of_plans(case, &plans, profile)?;
    Ok((mutations, truths))
}

/// The op, then an operand changes its contents under its handle, then the op on the same handles.
pub(super) fn mutated<B: Backend>(backend: &mut B, mutations: &[Mutation]) -> Result<Script> {
    let mut script = Script::default();
    for (i, Mutation { operand, added, before }) in mutations.iter().enumerate() {
        let name = before.operands[*operand].name;
        let mut live = Live::upload(backend, before)?;
        let first = live.run(backend)?;
        script.answer(format!("before {name} changed"), 0, first);
        if let (true, [dst, ..], [fresh, ..]) =
            (before.in_place(), live.tensors_mut(), before.operands.as_slice())
        {
            // The call used its first operand up; the other one keeps handle and contents.
            let fresh = backend.upload(&fresh.tensor, fresh.tensor.dtype())?;
            backend.free(std::mem::replace(dst, fresh))?;
        }
        let added = HostTensor::from_f32(before.operands[*operand].shape(), added)?;
        let added = backend.upload(&added, DType::F32)?;
        if let Some(tensor) = live.tensors_mut().get_mut(*operand) {
            backend.add_in_place(tensor, &added)?;
        }
        let second = live.run(backend)?;
        script.answer(format!("after {name} changed under its handle"), i + 1, second);
        backend.free(added)?;
        live.free(backend)?;
    }
    Ok(script)
}
