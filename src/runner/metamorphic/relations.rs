//! The relations that the check names stand for.

use modelbench_contract::{KvConfig, RopeSpec};

use super::super::finding::CheckError;
use super::super::ops::{Call, OpPlan};
use super::relation::{Equation, Relation};
use super::slices::{columns, mapped, padded, rows};
use crate::inputs::{Operand, Stream};
use crate::suite::Case;

fn unfit(case: &Case, plan: &OpPlan) -> CheckError {
    case.invalid(format!("check {:?} has no meaning for {:?}", case.group.check, plan.call)).into()
}

/// A batch of rows gives what each row gives alone.
pub(super) fn batch_of_singles(case: &Case, plan: OpPlan) -> Result<Relation, CheckError> {
    let count = match (plan.call, plan.operands.as_slice()) {
        (Call::BatchedMatmul, [_, x]) => x.tensor.desc().rows(),
        (_, [first, ..]) => first.tensor.desc().rows(),
        _ => return Err(unfit(case, &plan)),
    };
    let mut relation = Relation { plans: vec![plan.clone()], ..Relation::default() };
    for row in 0..count {
        let single = single(case, &plan, row, count)?;
        let width = match (single.call, single.operands.first()) {
            (Call::Matmul, Some(w)) => w.tensor.desc().rows(),
            (_, Some(first)) => first.values.len(),
            _ => return Err(unfit(case, &plan)),
        };
        relation.plans.push(single);
        for i in 0..width {
            relation.equal((0, row * width + i), (row + 1, i));
        }
    }
    Ok(relation)
}

/// Row `row` of a batch of `count` as a call of its own.
fn single(case: &Case, plan: &OpPlan, row: usize, count: usize) -> Result<OpPlan, CheckError> {
    let one = |operand: &Operand| rows(operand, &[row], false);
    let (call, operands) = match (plan.call, plan.operands.as_slice()) {
        (Call::BatchedMatmul, [w, x]) => (Call::Matmul, vec![w.clone(), one(x)?]),
        (Call::Rope(spec), [x]) => (Call::Rope(RopeSpec { pos: spec.pos + row, ..spec }), vec![one(x)?]),
        (call @ Call::RmsNorm { .. }, [x, weight]) => (call, vec![one(x)?, weight.clone()]),
        (Call::AddBias, [dst, bias]) => (Call::AddBias, vec![one(dst)?, bias.clone()]),
        (call @ (Call::Swiglu | Call::AddInPlace), [a, b]) => (call, vec![one(a)?, one(b)?]),
        (Call::Attention { kv, spec }, [q, k_raw, k_rope, v]) => {
            // Row p of P sees all but the last P - 1 - p positions.
            let seen: Vec<usize> = (0..kv.capacity + 1 + row - count).collect();
            let kv = KvConfig { capacity: seen.len(), ..kv };
            let part = |operand: &Operand| rows(operand, &seen, true);
            (Call::Attention { kv, spec }, vec![one(q)?, part(k_raw)?, part(k_rope)?, part(v)?])
        }
        _ => return Err(unfit(case, plan)),
    };
    Ok(OpPlan { call, operands })
}

/// Data times `2^k` give results times `2^k`: nothing is rounded otherwise than before.
pub(super) fn scaling(case: &Case, plan: OpPlan) -> Result<Relation, CheckError> {
    let operands: &[usize] = match plan.call {
        Call::Matmul | Call::BatchedMatmul | Call::RmsNorm { .. } | Call::Swiglu => &[1],
        Call::Rope(_) => &[0],
        Call::AddInPlace | Call::AddBias => &[0, 1],
        Call::Attention { .. } => &[3],
        Call::Argmax => return Err(unfit(case, &plan)),
    };
    let text = case.text("power")?;
    let power: i32 =
        text.parse().map_err(|_| case.invalid(format!("power = {text:?}: expected an integer")))?;
    let factor = f64::from(power).exp2();
    let mut scaled = plan.clone();
    for &operand in operands {
        if let Some(operand) = scaled.operands.get_mut(operand) {
            *operand = mapped(operand, |_, v| v * factor as f32)?;
        }
    }
    let n = result_len(case, &plan)?;
    let equations = (0..n).map(|i| Equation { got: (1, i), factor, sum: vec![(0, i)] }).collect();
    Ok(Relation { plans: vec![plan, scaled], equations, exact: true })
}

fn result_len(case: &Case, plan: &OpPlan) -> Result<usize, CheckError> {
    Ok(match (plan.call, plan.operands.as_slice()) {
        (Call::Matmul | Call::BatchedMatmul, [w, x]) => w.tensor.desc().rows() * x.tensor.desc().rows(),
        (_, [first, ..]) => first.values.len(),
        _ => return Err(unfit(case, plan)),
    })
}

/// The operands of a product, or a suite error.
fn product<'a>(case: &Case, plan: &'a OpPlan) -> Result<(&'a Operand, &'a Operand), CheckError> {
    match (plan.call, plan.operands.as_slice()) {
        (Call::Matmul | Call::BatchedMatmul, [w, x]) => Ok((w, x)),
        _ => Err(unfit(case, plan)),
    }
}

/// Rows of the weight in another order give the results in that order.
pub(super) fn row_permutation(case: &Case, seed: u64, plan: OpPlan) -> Result<Relation, CheckError> {
    let (w, x) = product(case, &plan)?;
    let (out, batch) = (w.tensor.desc().rows(), x.tensor.desc().rows());
    let order = Stream::new(seed, &case.id, "permutation").order(0, out);
    let mixed = OpPlan { call: plan.call, operands: vec![rows(w, &order, true)?, x.clone()] };
    let mut relation = Relation { plans: vec![plan.clone(), mixed], ..Relation::default() };
    for row in 0..batch {
        for (now, was) in order.iter().enumerate() {
            relation.equal((1, row * out + now), (0, row * out + was));
        }
    }
    Ok(relation)
}

/// Zeros behind every row of both operands change nothing.
pub(super) fn zero_padding(case: &Case, plan: OpPlan) -> Result<Relation, CheckError> {
    let (w, x) = product(case, &plan)?;
    let more = case.size("zeros")?;
    let wider = OpPlan { call: plan.call, operands: vec![padded(w, more)?, padded(x, more)?] };
    let n = result_len(case, &plan)?;
    let mut relation = Relation { plans: vec![plan, wider], ..Relation::default() };
    (0..n).for_each(|i| relation.equal((1, i), (0, i)));
    Ok(relation)
}

/// A product over `[a | b]` is the product over `a` plus the product over `b`.
pub(super) fn split(case: &Case, plan: OpPlan) -> Result<Relation, CheckError> {
    let (w, x) = product(case, &plan)?;
    let (at, inner) = (case.size("at")?, w.tensor.desc().row_len());
    let part = |from, to| -> Result<OpPlan, CheckError> {
        Ok(OpPlan { call: plan.call, operands: vec![columns(w, from, to)?, columns(x, from, to)?] })
    };
    let plans = vec![plan.clone(), part(0, at)?, part(at, inner)?];
    let equations = (0..result_len(case, &plan)?)
        .map(|i| Equation { got: (0, i), factor: 1.0, sum: vec![(1, i), (2, i)] })
        .collect();
    Ok(Relation { plans, equations, exact: false })
}

/// Softmax does not see a number that is added to all scores. In each head one dimension of every query is 1 and of
/// every key is 0, then the same constant: in real arithmetic every score moves by `scale * constant`.
pub(super) fn score_shift(case: &Case, plan: OpPlan) -> Result<Relation, CheckError> {
    let (Call::Attention { kv, spec }, [q, k_raw, k_rope, v]) = (plan.call, plan.operands.as_slice()) else {
        return Err(unfit(case, &plan));
    };
    let constant = case.size("shift")? as f32 / spec.scale;
    let last = |i: usize| i % kv.head_dim == kv.head_dim - 1;
    let q = mapped(q, |i, v| if last(i) { 1.0 } else { v })?;
    let with = |key: f32| -> Result<OpPlan, CheckError> {
        let keys = mapped(k_rope, |i, v| if last(i) { key } else { v })?;
        Ok(OpPlan { call: plan.call, operands: vec![q.clone(), k_raw.clone(), keys, v.clone()] })
    };
    let mut relation = Relation { plans: vec![with(0.0)?, with(constant)?], ..Relation::default() };
    (0..q.values.len()).for_each(|i| relation.equal((1, i), (0, i)));
    Ok(relation)
}

/// One query over the same positions in another order.
pub(super) fn position_permutation(case: &Case, seed: u64, plan: OpPlan) -> Result<Relation, CheckError> {
    let (Call::Attention { kv, spec }, [q, k_raw, k_rope, v]) = (plan.call, plan.operands.as_slice()) else {
        return Err(unfit(case, &plan));
    };
    if q.tensor.desc().rows() != 1 {
        return Err(case.invalid("several queries see different positions; leave `rows` out").into());
    }
    let order = Stream::new(seed, &case.id, "permutation").order(0, kv.capacity);
    let mix = |operand: &Operand| rows(operand, &order, true);
    let mixed = OpPlan {
        call: Call::Attention { kv, spec },
        operands: vec![q.clone(), mix(k_raw)?, mix(k_rope)?, mix(v)?],
    };
    let n = q.values.len();
    let mut relation = Relation { plans: vec![plan, mixed], ..Relation::default() };
    (0..n).for_each(|i| relation.equal((1, i), (0, i)));
    Ok(relation)
}
