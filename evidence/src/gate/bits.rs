//! Bits: outputs against cpu-ref's, over all cases that are judged within a bound.
//!
//! An exact case has one right answer, whoever gives it; where a bound is needed, two arithmetics differ in some bits.

use std::collections::BTreeMap;

use modelbench_contract::{Activation, Class, DType, Op};

use super::{Witness, WitnessKind, WitnessVerdict};
use crate::outcome::Outcome;
use crate::record::{CaseRecord, Header, Rung};
use crate::record_checks::op_named;

/// Elements of an op and a dtype below which two arithmetics may agree by chance.
const LEAST: u64 = 64;

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

pub(super) fn witness(header: &Header, cases: &[CaseRecord]) -> Witness {
    let (class, numerics) = (header.backend.class, &header.backend.numerics);
    let (mut all, mut by_op) = (Count::default(), BTreeMap::<(Op, &str), Count>::new());
    for case in cases.iter().filter(|case| is_bound(case)) {
        all.add(case);
        // Sums of whole numbers in block order are the obvious way to multiply 8-bit activations.
        let obvious = weight(case) == DType::Q8_0.as_str() && numerics.q8_activation == Activation::Int8;
        if let Some(op) = op_named(&case.subject).filter(|op| op.is_hot() && !obvious) {
            by_op.entry((op, weight(case))).or_default().add(case);
        }
    }
    let Count { cases, compared, differ } = all;
    let figures =
        format!("{differ} of {compared} elements in {cases} bound cases differ from cpu-ref's bits");
    let copied: Vec<String> = by_op
        .iter()
        .filter(|(_, count)| count.differ == 0 && count.compared >= LEAST)
        .map(|((op, dtype), count)| format!("{} {dtype} ({} elements)", op.as_str(), count.compared))
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

/// The dtype of the weight, which is a segment of the id; f32 where none is named.
fn weight(case: &CaseRecord) -> &'static str {
    let named = |dtype: &&DType| case.id.split('/').any(|segment| segment == dtype.as_str());
    DType::ALL.iter().find(named).unwrap_or(&DType::F32).as_str()
}

/// True for an op case that was answered and is judged within a bound.
fn is_bound(case: &CaseRecord) -> bool {
    case.rung == Rung::R1
        && matches!(case.outcome, Outcome::Pass | Outcome::Mismatch { .. })
        && case.quality.worst.is_some()
        && case.quality.bits_compared > 0
}
