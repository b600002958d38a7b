//! The decision, and what the record itself says: who was chosen, and who ran the ops.

use std::collections::BTreeMap;

use modelbench_contract::{Class, DeviceKind};
use modelbench_evidence::gate::WitnessVerdict::{
    Contradiction, Neutral, NotApplicable, NotMeasured, Positive,
};
use modelbench_evidence::gate::{self, GateVerdict, Witness, WitnessKind};
use modelbench_evidence::measured::Reading;
use modelbench_evidence::record::{CaseRecord, Header};

use crate::{as_is, decided, same, sample, says, witness};

#[test]
fn an_honest_accelerator_passes() {
    let gate = decided(same, as_is);
    assert_eq!((gate.verdict, gate.required, gate.reasons.len()), (GateVerdict::Passed, true, 0));
    let kinds: Vec<WitnessKind> = gate.witnesses.iter().map(|witness| witness.kind).collect();
    assert_eq!(kinds, WitnessKind::ALL);
}

/// The whole decision: whatever the eight witnesses say, on an accelerator or not.
#[test]
fn the_decision_for_every_combination_of_verdicts() {
    let verdicts = [Positive, Neutral, Contradiction, NotMeasured, NotApplicable];
    let combinations = 5usize.pow(WitnessKind::ALL.len() as u32);
    let mut passed = 0;
    for number in 0..combinations {
        let mut rest = number;
        let chosen = WitnessKind::ALL.map(|kind| {
            let verdict = verdicts[rest % 5];
            rest /= 5;
            (kind, verdict)
        });
        let witnesses = || {
            let one = |(kind, verdict)| Witness { kind, verdict, detail: String::new() };
            chosen.map(one).into_iter().collect::<Vec<_>>()
        };
        let any = |kinds: &[WitnessKind], verdict| {
            chosen.iter().any(|(kind, found)| kinds.contains(kind) && *found == verdict)
        };
        let refuted = any(&WitnessKind::ALL, Contradiction);
        let needed = [WitnessKind::Bits, WitnessKind::Watermark, WitnessKind::Challenge];
        let holds = !refuted && any(&WitnessKind::ALL, Positive) && !any(&needed, NotMeasured);
        let placed = any(&[WitnessKind::CpuTime, WitnessKind::Counters], Positive);
        for (accelerator, expected) in [(false, holds), (true, holds && placed)] {
            let gate = gate::conclude(number % 2 == 0, accelerator, witnesses());
            assert_eq!(gate.verdict == GateVerdict::Passed, expected, "{chosen:?}");
            assert_eq!(gate.reasons.is_empty(), expected, "every refusal has a reason");
            assert_eq!(gate.required, number % 2 == 0);
            passed += usize::from(expected);
        }
    }
    assert!(passed > 0);
}

#[test]
fn a_record_without_measurements_fails() {
    let cases = sample::cases();
    let gate = gate::decide(&sample::header(&cases), &cases, None);
    assert_eq!(gate.verdict, GateVerdict::Failed);
    for kind in [
        WitnessKind::Order,
        WitnessKind::CpuTime,
        WitnessKind::Counters,
        WitnessKind::Watermark,
        WitnessKind::Challenge,
    ] {
        says(&gate, kind, NotMeasured, "ended before");
    }
}

#[test]
fn a_reading_that_failed_says_why() {
    let why = || "the worker ended".to_owned();
    let gate = decided(same, |all| {
        all.order = Reading::NotMeasured(why());
        all.load = Reading::NotMeasured(why());
        all.counters = Reading::NotMeasured(why());
        all.watermark = Reading::NotMeasured(why());
        all.tier = Reading::NotMeasured(why());
    });
    for kind in [
        WitnessKind::Order,
        WitnessKind::CpuTime,
        WitnessKind::Counters,
        WitnessKind::Watermark,
        WitnessKind::Challenge,
    ] {
        says(&gate, kind, NotMeasured, "the worker ended");
    }
    assert_eq!(gate.verdict, GateVerdict::Failed);
}

#[test]
fn the_class_reference_contradicts() {
    let gate = decided(|header, _| header.backend.class = Class::Reference, as_is);
    says(&gate, WitnessKind::Selection, Contradiction, "class is Reference");
    assert_eq!(gate.verdict, GateVerdict::Failed);
    // Differing bits and another order are no witness for a backend that promises cpu-ref's.
    assert_eq!(witness(&gate, WitnessKind::Bits).0, Neutral);
    assert_eq!(witness(&gate, WitnessKind::Order).0, Neutral);
}

#[test]
fn a_software_device_is_named_and_refused_where_hardware_is_required() {
    let software = |require: bool| {
        move |header: &mut Header, _: &mut Vec<CaseRecord>| {
            header.backend.device.kind = DeviceKind::Software;
            header.backend.tier = "software:llvmpipe".into();
            header.require_hardware = require;
        }
    };
    let gate = decided(software(false), as_is);
    says(&gate, WitnessKind::Selection, Neutral, "software device: Vendor X200, tier software:llvmpipe");
    assert_eq!(gate.verdict, GateVerdict::Passed);
    let gate = decided(software(true), as_is);
    says(&gate, WitnessKind::Selection, Contradiction, "hardware is required");
    assert_eq!(gate.verdict, GateVerdict::Failed);
    // To require hardware is to require the gate, which would otherwise be shown and not heeded.
    let gate = decided(
        |header, cases| {
            software(true)(header, cases);
            header.require_non_reference = false;
        },
        as_is,
    );
    assert!(gate.required);
    let gate = decided(|header, _| header.require_hardware = true, as_is);
    assert_eq!(gate.verdict, GateVerdict::Passed);
}

#[test]
fn a_delegated_hot_op_contradicts() {
    for op in ["matmul", "batched_matmul", "attention"] {
        let gate = decided(|_, cases| cases[0].delegated = BTreeMap::from([(op.to_owned(), 1)]), as_is);
        says(&gate, WitnessKind::Attribution, Contradiction, &format!("hot ops ran on cpu-ref: {op} (1)"));
        assert_eq!(gate.verdict, GateVerdict::Failed);
    }
}

#[test]
fn another_delegated_op_is_neutral_but_named() {
    let gate = decided(|_, cases| cases[0].delegated = BTreeMap::from([("rope".to_owned(), 2)]), as_is);
    says(&gate, WitnessKind::Attribution, Neutral, "2 delegated: rope 2");
}

#[test]
fn a_run_without_a_native_hot_op_contradicts() {
    for count in [None, Some(0)] {
        let change = |_: &mut Header, cases: &mut Vec<CaseRecord>| {
            for case in cases {
                case.native.retain(|op, _| op == "upload");
                case.native.extend(count.map(|n| ("matmul".to_owned(), n)));
            }
        };
        let gate = decided(change, as_is);
        says(&gate, WitnessKind::Attribution, Contradiction, "nothing ran natively");
        assert_eq!(gate.verdict, GateVerdict::Failed);
    }
}
