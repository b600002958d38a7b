//! What the op of a plan must answer: exact values, or float64 values with a derived bound.

use modelbench_contract::{DType, NumericProfile};

use super::super::CheckError;
use super::plan::{Call, OpPlan};
use crate::compare::Want;
use crate::oracle::{self, Allowance, OracleError};
use crate::suite::{Case, Tolerance};

/// The wanted answer and the suite's factor on its bound.
///
/// # Errors
/// A suite error if the tolerance does not fit the check; a defect of the kit if data that the suite calls exact are
/// not, or if the oracle cannot answer.
pub fn truth(case: &Case, plan: &OpPlan, profile: &NumericProfile) -> Result<(Want, f64), CheckError> {
    match &case.group.tolerance {
        Tolerance::Exact { .. } => exact(case, plan, profile).map(|want| (want, 1.0)),
        Tolerance::Bound { .. } => {
            let (allowance, slack) = allowance(case)?;
            let bounded = ask(plan, profile, &allowance).map_err(|e| defect(case, &e))?;
            Ok((Want::Bounded(bounded), slack))
        }
        Tolerance::Ensemble { .. } => {
            Err(case.invalid("an ensemble is for whole models, not for one op").into())
        }
    }
}

/// True if a truth is the same under two declared arithmetics: whether answers repeat has no part in it, and how
/// activations meet `q8_0` weights only where there are such weights.
pub fn same_truth(a: &NumericProfile, b: &NumericProfile, q8_0: bool) -> bool {
    let alike = NumericProfile { deterministic: b.deterministic, ..*a };
    alike == *b || (!q8_0 && NumericProfile { q8_activation: b.q8_activation, ..alike } == *b)
}

/// What the suite allows beyond correct rounding, and its factor on the bound.
///
/// # Errors
/// A suite error if the case has another kind of tolerance.
pub fn allowance(case: &Case) -> Result<(Allowance, f64), CheckError> {
    match case.group.tolerance {
        Tolerance::Bound { slack, exp_ulp, trig_ulp, rsqrt_ulp, div_ulp, .. } => {
            Ok((Allowance { exp_ulp, trig_ulp, rsqrt_ulp, div_ulp, angle_f32: false }, slack))
        }
        _ => Err(case.invalid("this check needs a tolerance of the kind \"bound\"").into()),
    }
}

fn defect(case: &Case, error: &OracleError) -> CheckError {
    CheckError::Kit(format!("{}: {error}", case.id))
}

fn exact(case: &Case, plan: &OpPlan, profile: &NumericProfile) -> Result<Want, CheckError> {
    let [first, ..] = plan.operands.as_slice() else {
        return Err(CheckError::Kit(format!("{}: no operands", case.id)));
    };
    if plan.call == Call::Argmax {
        let index = oracle::argmax(&first.values).map_err(|e| defect(case, &e))?;
        return Ok(Want::Exact(vec![index as f32]));
    }
    if let (Call::Matmul | Call::BatchedMatmul, [w, x]) = (plan.call, plan.operands.as_slice()) {
        let inner = w.tensor.desc().row_len();
        // 24 bits: the significand of an f32 sum.
        if !oracle::is_exact_matmul(&w.values, &x.values, inner, 24) {
            let text = "the data are not exact: K * max|w| * max|x| exceeds 2^24";
            return Err(case.invalid(text).into());
        }
    }
    let bounded = ask(plan, profile, &Allowance::default()).map_err(|e| defect(case, &e))?;
    // Rounded once. That cpu-ref, in f32 all the way, gives these very values is checked for every case.
    Ok(Want::Exact(bounded.want.iter().map(|&want| want as f32).collect()))
}

/// The oracle's answer to a plan, for a given arithmetic.
///
/// # Errors
/// [`OracleError`] if the operands do not fit each other or leave the range of the arithmetic.
pub fn ask(
    plan: &OpPlan,
    profile: &NumericProfile,
    allowance: &Allowance,
) -> Result<oracle::Bounded, OracleError> {
    let values = |i: usize| plan.operands.get(i).map_or(&[][..], |operand| operand.values.as_slice());
    match plan.call {
        Call::Matmul | Call::BatchedMatmul => {
            let inner = plan.operands.first().map_or(0, |w| w.tensor.desc().row_len());
            let dtype = plan.operands.first().map_or(DType::F32, |w| w.tensor.dtype());
            let magnitudes = plan.operands.first().and_then(|w| w.magnitudes.as_deref());
            let weight = oracle::Weight { values: values(0), dtype, magnitudes };
            oracle::matmul(&weight, values(1), inner, profile, allowance)
        }
        Call::RmsNorm { eps } => oracle::rms_norm(values(0), values(1), eps, profile, allowance),
        Call::Rope(spec) => oracle::rope(values(0), spec, profile, allowance),
        Call::Swiglu => oracle::swiglu(values(0), values(1), profile, allowance),
        Call::AddInPlace => oracle::add(values(0), values(1), profile),
        Call::AddBias => oracle::add_bias(values(0), values(1), profile),
        Call::Attention { kv, spec } => {
            let input = oracle::AttentionInput {
                q: values(0),
                keys: values(2),
                values: values(3),
                kv_heads: kv.kv_heads,
                head_dim: kv.head_dim,
            };
            oracle::attention(&input, &spec, profile, allowance)
        }
        Call::Argmax => {
            let want = vec![oracle::argmax(values(0))? as f64];
            Ok(oracle::Bounded { bound: vec![0.0; want.len()], want })
        }
    }
}
