//! Attribution: who ran the ops.

use std::collections::BTreeMap;

use super::{Witness, WitnessKind, WitnessVerdict};
use crate::record::CaseRecord;
use crate::record_checks::op_named;

/// Sums per-op counts over cases. Counts are only shown and compared with zero, so saturation loses nothing.
pub fn total_ops<'a>(maps: impl IntoIterator<Item = &'a BTreeMap<String, u64>>) -> BTreeMap<String, u64> {
    let mut totals = BTreeMap::<String, u64>::new();
    for (op, count) in maps.into_iter().flatten() {
        let total = totals.entry(op.clone()).or_default();
        *total = total.saturating_add(*count);
    }
    totals
}

/// All counts together.
pub(super) fn sum(ops: &BTreeMap<String, u64>) -> u64 {
    ops.values().fold(0u64, |sum, n| sum.saturating_add(*n))
}

/// Ops with their counts, for people.
pub(super) fn named(ops: &BTreeMap<String, u64>) -> String {
    ops.iter().map(|(op, n)| format!("{op} {n}")).collect::<Vec<_>>().join(", ")
}

pub(super) fn witness(cases: &[CaseRecord]) -> Witness {
    let native = total_ops(cases.iter().map(|case| &case.native));
    let delegated = total_ops(cases.iter().map(|case| &case.delegated));
    let is_hot =
        |(name, count): &(&String, &u64)| **count > 0 && op_named(name).is_some_and(|op| op.is_hot());
    let hot_delegated: Vec<String> =
        delegated.iter().filter(is_hot).map(|(name, count)| format!("{name} ({count})")).collect();
    let mut detail = format!("{} ops native, {} delegated", sum(&native), sum(&delegated));
    if !delegated.is_empty() {
        detail += &format!(": {}", named(&delegated));
    }
    let verdict = if !hot_delegated.is_empty() {
        detail = format!("hot ops ran on cpu-ref: {}; {detail}", hot_delegated.join(", "));
        WitnessVerdict::Contradiction
    } else if !native.iter().any(|op| is_hot(&op)) {
        detail = format!("nothing ran natively: no matmul, batched_matmul or attention; {detail}");
        WitnessVerdict::Contradiction
    } else {
        WitnessVerdict::Neutral
    };
    Witness { kind: WitnessKind::Attribution, verdict, detail }
}
