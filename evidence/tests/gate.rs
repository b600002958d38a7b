//! Each rule of the non-reference gate.

use std::collections::BTreeMap;

use modelbench_contract::{Class, DeviceKind};
use modelbench_evidence::gate::{self, Gate, GateVerdict, WitnessKind, WitnessVerdict};
use modelbench_evidence::outcome::Outcome;
use modelbench_evidence::record::{CaseRecord, Header};

mod sample;

/// Decides the sample run after a change.
fn decided(change: impl FnOnce(&mut Header, &mut Vec<CaseRecord>)) -> Gate {
    let mut cases = sample::cases();
    let mut header = sample::header(&cases);
    change(&mut header, &mut cases);
    gate::decide(&header, &cases)
}

fn witness(gate: &Gate, kind: WitnessKind) -> (WitnessVerdict, &str) {
    let witness = gate.witnesses.iter().find(|witness| witness.kind == kind).expect("every kind is there");
    (witness.verdict, &witness.detail)
}

fn probe(cases: &mut [CaseRecord]) -> &mut CaseRecord {
    cases.iter_mut().find(|case| case.bits_probe).expect("a probe")
}

#[test]
fn an_honest_backend_passes_on_its_bits() {
    let gate = decided(|_, _| {});
    assert_eq!((gate.verdict, gate.required, gate.reasons.len()), (GateVerdict::Passed, true, 0));
    assert_eq!(witness(&gate, WitnessKind::Selection).0, WitnessVerdict::Neutral);
    assert_eq!(witness(&gate, WitnessKind::Attribution).0, WitnessVerdict::Neutral);
    let (verdict, detail) = witness(&gate, WitnessKind::Bits);
    assert_eq!(verdict, WitnessVerdict::Positive);
    assert!(detail.starts_with("3 of 64 elements in 1 probe cases"), "{detail}");
}

#[test]
fn what_was_not_measured_is_not_passed() {
    let gate = decided(|_, _| {});
    for kind in [WitnessKind::Order, WitnessKind::CpuTime, WitnessKind::Counters, WitnessKind::Challenge] {
        assert_eq!(witness(&gate, kind), (WitnessVerdict::NotMeasured, "not measured in this version"));
    }
    let gate = decided(|header, _| header.backend.device.kind = DeviceKind::Cpu);
    assert_eq!(witness(&gate, WitnessKind::CpuTime).0, WitnessVerdict::NotApplicable);
}

#[test]
fn the_class_reference_contradicts() {
    let gate = decided(|header, _| header.backend.class = Class::Reference);
    let (verdict, detail) = witness(&gate, WitnessKind::Selection);
    assert_eq!(verdict, WitnessVerdict::Contradiction);
    assert!(detail.contains("class is Reference"), "{detail}");
    assert_eq!(gate.verdict, GateVerdict::Failed);
    // Differing bits are no witness for a backend that promises cpu-ref's.
    assert_eq!(witness(&gate, WitnessKind::Bits).0, WitnessVerdict::Neutral);
}

#[test]
fn a_software_device_is_named() {
    let gate = decided(|header, _| {
        header.backend.device.kind = DeviceKind::Software;
        header.backend.tier = "software:llvmpipe".into();
    });
    assert!(
        witness(&gate, WitnessKind::Selection)
            .1
            .contains("software device: Vendor X200, tier software:llvmpipe")
    );
    assert_eq!(gate.verdict, GateVerdict::Passed);
}

#[test]
fn equal_bits_contradict_even_in_one_element_less_than_all() {
    let gate = decided(|_, cases| probe(cases).quality.bits_differ = 0);
    let (verdict, detail) = witness(&gate, WitnessKind::Bits);
    assert_eq!(verdict, WitnessVerdict::Contradiction);
    assert!(detail.contains("arithmetic is indistinguishable from cpu-ref"), "{detail}");
    assert_eq!(gate.verdict, GateVerdict::Failed);
    let gate = decided(|_, cases| probe(cases).quality.bits_differ = 1);
    assert_eq!(gate.verdict, GateVerdict::Passed);
}

#[test]
fn without_a_compared_probe_nothing_is_proven() {
    let changes: [fn(&mut CaseRecord); 3] = [
        |case| case.bits_probe = false,
        |case| (case.quality.bits_compared, case.quality.bits_differ) = (0, 0),
        |case| *case = sample::with_outcome(case.clone(), Outcome::Delegated { ops: vec!["rope".into()] }),
    ];
    for change in changes {
        let gate = decided(|_, cases| change(probe(cases)));
        assert_eq!(witness(&gate, WitnessKind::Bits).0, WitnessVerdict::NotMeasured);
        assert_eq!(gate.verdict, GateVerdict::Failed);
        assert!(gate.reasons[0].contains("no positive witness"), "{:?}", gate.reasons);
    }
}

#[test]
fn a_wrong_answer_is_still_an_answer_of_its_own() {
    let gate = decided(|_, cases| {
        let wrong = Outcome::Mismatch { detail: String::new() };
        *probe(cases) = sample::with_outcome(probe(cases).clone(), wrong);
    });
    assert_eq!(witness(&gate, WitnessKind::Bits).0, WitnessVerdict::Positive);
}

#[test]
fn a_delegated_hot_op_contradicts() {
    for op in ["matmul", "batched_matmul", "attention"] {
        let gate = decided(|_, cases| cases[0].delegated = BTreeMap::from([(op.to_owned(), 1)]));
        let (verdict, detail) = witness(&gate, WitnessKind::Attribution);
        assert_eq!(verdict, WitnessVerdict::Contradiction, "{op}");
        assert!(detail.contains(&format!("hot ops ran on cpu-ref: {op} (1)")), "{detail}");
        assert_eq!(gate.verdict, GateVerdict::Failed);
    }
}

#[test]
fn another_delegated_op_is_neutral_but_named() {
    let gate = decided(|_, cases| cases[0].delegated = BTreeMap::from([("rope".to_owned(), 2)]));
    let (verdict, detail) = witness(&gate, WitnessKind::Attribution);
    assert_eq!(verdict, WitnessVerdict::Neutral);
    assert!(detail.contains("2 delegated: rope 2"), "{detail}");
}

#[test]
fn a_run_without_a_native_hot_op_contradicts() {
    for count in [None, Some(0)] {
        let gate = decided(|_, cases| {
            for case in cases {
                case.native.retain(|op, _| op == "upload");
                case.native.extend(count.map(|n| ("matmul".to_owned(), n)));
            }
        });
        let (verdict, detail) = witness(&gate, WitnessKind::Attribution);
        assert_eq!(verdict, WitnessVerdict::Contradiction);
        assert!(detail.contains("nothing ran natively"), "{detail}");
        assert_eq!(gate.verdict, GateVerdict::Failed);
    }
}
