//! Bits: outputs against cpu-ref's, over all cases that are judged within a bound.
//!
//! An exact case has one right answer, whoever gives it; where a bound is needed, two arithmetics differ in some bits.

use std::collections::BTreeMap;

use modelbench_contract::{Class, Op};

use super::{Witness, WitnessKind, WitnessVerdict};
use crate::outcome::Outcome;
use crate::record::{CaseRecord, Rung};
use crate::record_checks::op_named;

/// Elements compared with cpu-ref's, and those that differ.
#[derive(Default)]
struct Count {
    cases: u64,
    compared: u64,
    differ: u64,
}

impl Count {
    fn add(&mut self, case: &CaseRecord) {
        self.cases += 1;
        self.compared = self.compared.saturating_add(case.quality.bits_compared);
        self.differ = self.differ.saturating_add(case.quality.bits_differ);
    }
}

pub(super) fn witness(class: Class, cases: &[CaseRecord]) -> Witness {
    let (mut all, mut by_op) = (Count::default(), BTreeMap::<Op, Count>::new());
    for case in cases.iter().filter(|case| is_bound(case)) {
        all.add(case);
        if let Some(op) = op_named(&case.subject).filter(|op| op.is_hot()) {
            by_op.entry(op).or_default().add(case);
        }
    }
    let Count { cases, compared, differ } = all;
    let figures =
        format!("{differ} of {compared} elements in {cases} bound cases differ from cpu-ref's bits");
    let copied: Vec<String> = by_op
        .iter()
        .filter(|(_, count)| count.differ == 0)
        .map(|(op, count)| format!("{} ({} elements)", op.as_str(), count.compared))
        .collect();
    let (verdict, detail) = match class {
        _ if compared == 0 => {
            let text = "no case that is judged within a bound was compared with cpu-ref bit by bit";
            (WitnessVerdict::NotMeasured, text.to_owned())
        }
        Class::Reference => (WitnessVerdict::Neutral, figures),
        Class::Approx if differ == 0 => {
            let text = format!("arithmetic is indistinguishable from cpu-ref: {figures}");
            (WitnessVerdict::Contradiction, text)
        }
        Class::Approx if !copied.is_empty() => {
            let text = format!("every bit of {} is cpu-ref's; {figures}", copied.join(", "));
            (WitnessVerdict::Contradiction, text)
        }
        // Whoever adds noise to cpu-ref's answers differs too.
        Class::Approx => (WitnessVerdict::Neutral, figures),
    };
    Witness { kind: WitnessKind::Bits, verdict, detail }
}

/// True for an op case that was answered and is judged within a bound.
fn is_bound(case: &CaseRecord) -> bool {
    case.rung == Rung::R1
        && matches!(case.outcome, Outcome::Pass | Outcome::Mismatch { .. })
        && case.quality.worst.is_some()
        && case.quality.bits_compared > 0
}
