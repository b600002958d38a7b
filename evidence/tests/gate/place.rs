//! Where the work was done, and what nobody could know beforehand.

use std::collections::BTreeMap;

use modelbench_contract::DeviceKind;
use modelbench_evidence::counters::{CounterReading, Unit};
use modelbench_evidence::gate::WitnessVerdict::{
    Contradiction, Neutral, NotApplicable, NotMeasured, Positive,
};
use modelbench_evidence::gate::{self, GateVerdict, WitnessKind};
use modelbench_evidence::measured::{Load, Measured, Reading};
use modelbench_evidence::outcome::Outcome;
use modelbench_evidence::record::{CaseRecord, Header};

use crate::{as_is, decided, idle, on, same, sample, says, witness};

#[test]
fn cpu_time_of_the_load() {
    let load = |worker: u64, reference: u64| {
        move |all: &mut Measured| {
            all.load = Reading::Measured(Load {
                calls: 4,
                multiplications: 9,
                worker_cpu_ns: worker,
                reference_cpu_ns: reference,
                wrong: None,
            });
        }
    };
    let table = [
        (0, 1_000_000_000, Positive),
        (99_999_999, 1_000_000_000, Positive),
        (100_000_000, 1_000_000_000, Neutral),
        (500_000_000, 1_000_000_000, Neutral),
        (500_000_001, 1_000_000_000, Contradiction),
        (5_000_000_000, 1_000_000_000, Contradiction),
        (0, 999_999_999, NotMeasured),
        (999_999_999, 999_999_999, NotMeasured),
    ];
    for (worker, reference, verdict) in table {
        for kind in [DeviceKind::Discrete, DeviceKind::Integrated, DeviceKind::Virtual] {
            let gate = decided(on(kind), load(worker, reference));
            assert_eq!(witness(&gate, WitnessKind::CpuTime).0, verdict, "{worker} of {reference}");
        }
        for kind in [DeviceKind::Cpu, DeviceKind::Software] {
            let gate = decided(on(kind), load(worker, reference));
            assert_eq!(witness(&gate, WitnessKind::CpuTime).0, NotApplicable);
        }
    }
    says(
        &decided(same, load(9, 2_000_000_000)),
        WitnessKind::CpuTime,
        Positive,
        "0.00 s of CPU for 4 products",
    );
    let lazy = |all: &mut Measured| {
        if let Reading::Measured(load) = &mut all.load {
            load.wrong = Some("product 3 of 10 is wrong".into());
        }
    };
    says(&decided(same, lazy), WitnessKind::CpuTime, Contradiction, "not done: product 3 of 10");
}

#[test]
fn counters_of_the_device() {
    let engine = |unit: Unit, before: u64, after: u64| {
        move |all: &mut Measured| {
            if let Reading::Measured(reading) = &mut all.counters {
                let counter = &mut reading.counters[0];
                (counter.unit, counter.before, counter.after) = (unit, before, after);
            }
        }
    };
    says(
        &decided(same, engine(Unit::Ns, 1, 2)),
        WitnessKind::Counters,
        Positive,
        "engine compute: 1 to 2 ns",
    );
    let gate = decided(same, engine(Unit::Ns, 2, 2));
    says(&gate, WitnessKind::Counters, Contradiction, "the device was idle during the load");
    assert_eq!(gate.verdict, GateVerdict::Failed);
    says(&decided(same, engine(Unit::Bytes, 1, 2)), WitnessKind::Counters, Neutral, "memory alone");
    let nothing = |all: &mut Measured| {
        let unavailable = vec!["no DRM client".to_owned()];
        all.counters = Reading::Measured(CounterReading { unavailable, ..CounterReading::default() });
    };
    says(&decided(same, nothing), WitnessKind::Counters, NotMeasured, "unavailable: no DRM client");
    says(&decided(on(DeviceKind::Cpu), as_is), WitnessKind::Counters, NotApplicable, "a CPU");
    // A software driver may open a real device while it lists what there is.
    says(&decided(on(DeviceKind::Software), as_is), WitnessKind::Counters, NotApplicable, "a program");
}

#[test]
fn an_accelerator_must_be_seen_to_work() {
    let gate = decided(same, idle);
    assert_eq!(witness(&gate, WitnessKind::Order).0, Positive);
    assert_eq!(gate.verdict, GateVerdict::Failed);
    assert!(gate.reasons[0].contains("neither CPU time nor counters"), "{:?}", gate.reasons);
}

#[test]
fn poison_that_comes_back_contradicts() {
    let poison = |served: &'static [(&str, u64)], found: &'static [(&str, u64)]| {
        move |all: &mut Measured| {
            if let Reading::Measured(watermark) = &mut all.watermark {
                let map = |pairs: &[(&str, u64)]| {
                    pairs.iter().map(|(op, n)| ((*op).to_owned(), *n)).collect::<BTreeMap<_, _>>()
                };
                (watermark.served, watermark.found) = (map(served), map(found));
            }
        }
    };
    says(
        &decided(same, as_is),
        WitnessKind::Watermark,
        Neutral,
        "3 questions; no poisoned answer was needed",
    );
    let served = decided(same, poison(&[("rope", 2)], &[]));
    says(&served, WitnessKind::Watermark, Neutral, "served for rope 2; none came back");
    let gate = decided(same, poison(&[("matmul", 2)], &[("matmul", 64)]));
    says(&gate, WitnessKind::Watermark, Contradiction, "came back as the backend's own in matmul 64");
    assert_eq!(gate.verdict, GateVerdict::Failed);
    let unasked = |all: &mut Measured| {
        if let Reading::Measured(watermark) = &mut all.watermark {
            watermark.asked.clear();
        }
    };
    says(&decided(same, unasked), WitnessKind::Watermark, NotMeasured, "no op was asked");
}

#[test]
fn cases_that_hold_only_with_known_inputs_contradict() {
    let failing = |n: usize| {
        move |all: &mut Measured| {
            if let Reading::Measured(tier) = &mut all.tier {
                for case in tier.cases.iter_mut().take(n) {
                    case.outcome = Outcome::Mismatch { detail: String::new() };
                }
            }
        }
    };
    says(
        &decided(same, as_is),
        WitnessKind::Challenge,
        Neutral,
        "3 of 3 cases hold with inputs from a verifier's nonce",
    );
    let own = |header: &mut Header, _: &mut Vec<CaseRecord>| header.challenge = None;
    says(&decided(own, as_is), WitnessKind::Challenge, Neutral, "a nonce drawn after the start");
    let gate = decided(same, failing(1));
    says(&gate, WitnessKind::Challenge, Contradiction, "2 of 3 cases hold");
    assert_eq!(gate.verdict, GateVerdict::Failed);
    // What failed before may fail again; but if nothing holds, nothing was shown.
    let mut cases = sample::cases();
    let header = sample::header(&cases);
    let mut all = sample::measured(&header, &cases);
    failing(1)(&mut all);
    let first = match &all.tier {
        Reading::Measured(tier) => tier.cases[0].id.clone(),
        Reading::NotMeasured(_) => unreachable!("the sample is measured"),
    };
    for case in cases.iter_mut().filter(|case| case.id == first) {
        case.outcome = Outcome::Error { detail: String::new() };
    }
    says(&gate::decide(&header, &cases, Some(&all)), WitnessKind::Challenge, Neutral, "2 of 3");
    let nothing = |all: &mut Measured| {
        if let Reading::Measured(tier) = &mut all.tier {
            tier.cases.clear();
        }
    };
    says(&decided(same, nothing), WitnessKind::Challenge, NotMeasured, "0 of 0");
}
