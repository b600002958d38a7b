//! Each rule of the non-reference gate: every witness in every branch, and the decision for every combination.

use modelbench_contract::DeviceKind;
use modelbench_evidence::counters::CounterReading;
use modelbench_evidence::gate::{self, Gate, WitnessKind, WitnessVerdict};
use modelbench_evidence::measured::{Measured, Reading};
use modelbench_evidence::record::{CaseRecord, Header};

mod claims;
mod order;
mod place;
#[path = "../sample/mod.rs"]
mod sample;

/// Decides the sample run after a change of its record and then of its measurements.
fn decided(
    change: impl FnOnce(&mut Header, &mut Vec<CaseRecord>),
    measured: impl FnOnce(&mut Measured),
) -> Gate {
    let mut cases = sample::cases();
    let mut header = sample::header(&cases);
    change(&mut header, &mut cases);
    let mut all = sample::measured(&header, &cases);
    measured(&mut all);
    gate::decide(&header, &cases, Some(&all))
}

fn same(_: &mut Header, _: &mut Vec<CaseRecord>) {}
fn as_is(_: &mut Measured) {}

fn on(kind: DeviceKind) -> impl Fn(&mut Header, &mut Vec<CaseRecord>) {
    move |header, _| header.backend.device.kind = kind
}

#[track_caller]
fn witness(gate: &Gate, kind: WitnessKind) -> (WitnessVerdict, &str) {
    let witness = gate.witnesses.iter().find(|witness| witness.kind == kind).expect("every kind is there");
    (witness.verdict, &witness.detail)
}

#[track_caller]
fn says(gate: &Gate, kind: WitnessKind, verdict: WitnessVerdict, part: &str) {
    let (found, detail) = witness(gate, kind);
    assert_eq!(found, verdict, "{detail}");
    assert!(detail.contains(part), "{part:?} is not in {detail:?}");
}

fn idle(all: &mut Measured) {
    all.counters = Reading::Measured(CounterReading::default());
    all.load = Reading::NotMeasured("no clock".into());
}
