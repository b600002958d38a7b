//! What the probes of a run say about the arithmetic of a backend, op by op.

use std::collections::BTreeMap;

use modelbench_contract::{Activation, DType, NumericProfile, Op, Precision};
use serde::{Deserialize, Serialize};

use crate::outcome::Verdict;
use crate::record::CaseRecord;

/// What one case found out about the arithmetic of one op. A field is absent where the case did not ask, or where the
/// answers fit no known arithmetic (the outcome says so in words).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Numerics {
    /// The op.
    pub op: Op,
    /// Dtype of its weight; f32 for ops without one.
    pub dtype: DType,
    /// Precision to which operands are rounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operand: Option<Precision>,
    /// Precision of sums, and of everything between operands and result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accumulator: Option<Precision>,
    /// True if denormal operands or results become zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flush_to_zero: Option<bool>,
    /// How the activation meets a `q8_0` weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation: Option<Activation>,
}

/// The arithmetic of one op over all cases that asked for it: the coarsest that any of them found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Inferred {
    /// The op.
    pub op: Op,
    /// Dtype of its weight; f32 for ops without one.
    pub dtype: DType,
    /// Precision to which operands are rounded; null if no case could tell.
    pub operand: Option<Precision>,
    /// Precision of sums; null if no case could tell.
    pub accumulator: Option<Precision>,
    /// True if denormals become zero; null if no case could tell.
    pub flush_to_zero: Option<bool>,
    /// How the activation meets a `q8_0` weight; null for other dtypes, or if no case could tell.
    pub activation: Option<Activation>,
    /// Cases that asked.
    pub cases: u64,
    /// Those of them that are not ok: less than declared, or no answer.
    pub not_ok: u64,
}

/// Declared and inferred arithmetic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NumericsRow {
    /// What the backend declares; every bound was derived from it.
    pub declared: NumericProfile,
    /// What its answers show, by op and dtype; empty if no case asked.
    pub inferred: Vec<Inferred>,
}

/// Gathers what the cases of a run found out, by op and dtype in the contract's order.
pub fn infer(declared: NumericProfile, cases: &[CaseRecord]) -> NumericsRow {
    let mut found = BTreeMap::<(Op, DType), Inferred>::new();
    for case in cases {
        let Some(Numerics { op, dtype, operand, accumulator, flush_to_zero, activation }) = case.numerics
        else {
            continue;
        };
        let entry = found.entry((op, dtype)).or_insert(Inferred {
            op,
            dtype,
            operand: None,
            accumulator: None,
            flush_to_zero: None,
            activation: None,
            cases: 0,
            not_ok: 0,
        });
        entry.operand = coarser(entry.operand, operand);
        entry.accumulator = coarser(entry.accumulator, accumulator);
        entry.flush_to_zero = match (entry.flush_to_zero, flush_to_zero) {
            (Some(a), Some(b)) => Some(a || b),
            (a, b) => a.or(b),
        };
        entry.activation = match (entry.activation, activation) {
            (Some(Activation::Int8), _) | (_, Some(Activation::Int8)) => Some(Activation::Int8),
            (a, b) => a.or(b),
        };
        entry.cases += 1;
        entry.not_ok += u64::from(case.verdict != Verdict::Ok);
    }
    NumericsRow { declared, inferred: found.into_values().collect() }
}

/// The coarser of two precisions; of the two with 11 bits, the one with the smaller range.
fn coarser(a: Option<Precision>, b: Option<Precision>) -> Option<Precision> {
    let rank = |p: Precision| match p {
        Precision::F64 => 0,
        Precision::F32 => 1,
        Precision::Tf32 => 2,
        Precision::F16 => 3,
        Precision::Bf16 => 4,
    };
    match (a, b) {
        (Some(a), Some(b)) => Some(if rank(a) >= rank(b) { a } else { b }),
        (a, b) => a.or(b),
    }
}
