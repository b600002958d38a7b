//! Each rule of the non-reference gate: every witness in every branch, and the decision for every combination.

use std::collections::BTreeMap;

use modelbench_contract::{Class, DeviceKind};
use modelbench_evidence::counters::{CounterReading, Unit};
use modelbench_evidence::gate::{self, Gate, GateVerdict, Witness, WitnessKind, WitnessVerdict};
use modelbench_evidence::measured::{Load, Measured, Reading};
use modelbench_evidence::outcome::Outcome;
use modelbench_evidence::record::{CaseRecord, Header};
use modelbench_evidence::tree::{self, Product, Tree};

mod sample;

use WitnessVerdict::{Contradiction, Neutral, NotApplicable, NotMeasured, Positive};

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

/// Lengths for which the sample has trees, all of them over the same products.
fn with_trees(matmul: fn(usize) -> Tree, batched: fn(usize) -> Tree) -> impl Fn(&mut Measured) {
    move |all| {
        let trees = [
            sample::trees(Product::Matmul, matmul),
            sample::trees(Product::BatchedMatmul, batched),
            sample::trees(Product::AttentionSum, |k| Tree::cpu_ref(Product::AttentionSum, k)),
        ];
        all.order = Reading::Measured(trees.concat());
    }
}

fn cpu_ref(k: usize) -> Tree {
    Tree::cpu_ref(Product::Matmul, k)
}

fn idle(all: &mut Measured) {
    all.counters = Reading::Measured(CounterReading::default());
    all.load = Reading::NotMeasured("no clock".into());
}

#[test]
fn the_order_decides_on_a_cpu() {
    for kind in [DeviceKind::Cpu, DeviceKind::Software] {
        let gate = decided(on(kind), with_trees(sample::reverse, sample::reverse));
        says(&gate, WitnessKind::Order, Positive, "matmul reverse (K = 256), not cpu-ref's");
        says(&gate, WitnessKind::Order, Positive, "attention-sum sequential (K = 256), cpu-ref's");
        let gate = decided(on(kind), |all| {
            with_trees(sample::reverse, sample::reverse)(all);
            idle(all);
        });
        assert_eq!(gate.verdict, GateVerdict::Passed, "{:?}", gate.reasons);
        for trees in [with_trees(cpu_ref, sample::reverse), with_trees(sample::reverse, cpu_ref)] {
            let gate = decided(on(kind), |all| {
                trees(all);
                idle(all);
            });
            says(&gate, WitnessKind::Order, Contradiction, "adds in cpu-ref's order");
            assert_eq!(gate.verdict, GateVerdict::Failed);
        }
    }
}

#[test]
fn an_equal_order_is_a_coincidence_only_where_the_device_was_seen_to_work() {
    let gate = decided(same, with_trees(cpu_ref, cpu_ref));
    says(&gate, WitnessKind::Order, Neutral, "a coincidence");
    assert_eq!(gate.verdict, GateVerdict::Passed);
    let gate = decided(same, |all| {
        with_trees(cpu_ref, cpu_ref)(all);
        idle(all);
    });
    assert_eq!(witness(&gate, WitnessKind::Order).0, Contradiction);
}

/// cpu-ref's trees, but for one length.
fn switched(special: usize) -> impl Fn(&mut Measured) {
    move |all| {
        let tree = |k: usize| if k == special { sample::reverse(k) } else { cpu_ref(k) };
        let trees = [sample::trees(Product::Matmul, tree), sample::trees(Product::BatchedMatmul, tree)];
        all.order = Reading::Measured(trees.concat());
    }
}

#[test]
fn an_order_that_differs_somewhere_is_another_order() {
    let pairwise_later = |k: usize| if k > 128 { sample::reverse(k) } else { cpu_ref(k) };
    let gate = decided(on(DeviceKind::Cpu), with_trees(pairwise_later, pairwise_later));
    says(&gate, WitnessKind::Order, Positive, "not cpu-ref's at K = 200, 201, 256");
    // A switch at one short length leaves cpu-ref's order wherever it counts; so does one at some of the long ones.
    for special in [17, 200] {
        let gate = decided(on(DeviceKind::Cpu), switched(special));
        says(&gate, WitnessKind::Order, Neutral, "cpu-ref's order for some long sums with a tail");
        assert_eq!(gate.verdict, GateVerdict::Failed);
    }
}

#[test]
fn probes_that_cannot_tell_are_no_measurement() {
    let only = |ks: &'static [u64]| {
        move |all: &mut Measured| {
            if let Reading::Measured(found) = &mut all.order {
                found.retain(|found| ks.contains(&found.k()));
            }
        }
    };
    for ks in [&[8, 17, 64][..], &[17, 64, 256][..]] {
        let gate = decided(same, only(ks));
        says(&gate, WitnessKind::Order, NotMeasured, "matmul was not probed");
    }
    let gate = decided(same, only(&[17, 201]));
    assert_eq!(witness(&gate, WitnessKind::Order).0, Positive);
    let missing = |all: &mut Measured| {
        let why = tree::NotMeasured { product: Product::Matmul, k: 8, reason: "no matmul".into() };
        all.order = Reading::Measured(vec![tree::Measured::NotMeasured(why)]);
    };
    says(&decided(same, missing), WitnessKind::Order, NotMeasured, "matmul over 8 terms: no matmul");
    // One product that nobody could read may be the one that cpu-ref did.
    let unread = |all: &mut Measured| {
        let why = tree::NotMeasured { product: Product::BatchedMatmul, k: 8, reason: "no sum".into() };
        let read = sample::trees(Product::Matmul, sample::reverse);
        all.order = Reading::Measured([read, vec![tree::Measured::NotMeasured(why)]].concat());
    };
    let batched = |_: &mut Header, cases: &mut Vec<CaseRecord>| {
        cases[0].native.insert("batched_matmul".into(), 1);
    };
    says(&decided(batched, unread), WitnessKind::Order, NotMeasured, "batched-matmul over 8 terms: no sum");
    // What the backend does not have needs no order.
    assert_eq!(witness(&decided(same, unread), WitnessKind::Order).0, Positive);
    let neither = |header: &mut Header, cases: &mut Vec<CaseRecord>| {
        on(DeviceKind::Discrete)(header, cases);
        cases.iter_mut().for_each(|case| case.native.retain(|op, _| op == "upload"));
    };
    let nothing = |all: &mut Measured| all.order = Reading::Measured(Vec::new());
    says(&decided(neither, nothing), WitnessKind::Order, NotMeasured, "no product was probed");
    let broken = |all: &mut Measured| {
        let tree = tree::ProductTree { product: Product::Matmul, k: 8, tree: "(0 1)".into() };
        all.order = Reading::Measured(vec![tree::Measured::Tree(tree)]);
    };
    says(&decided(same, broken), WitnessKind::Order, Contradiction, "holds no trees");
}

#[test]
fn bits_of_all_bound_cases_count() {
    let gate = decided(same, as_is);
    says(&gate, WitnessKind::Bits, Neutral, "6 of 128 elements in 2 bound cases");
    let equal = |_: &mut Header, cases: &mut Vec<CaseRecord>| {
        cases.iter_mut().for_each(|case| case.quality.bits_differ = 0);
    };
    let gate = decided(equal, as_is);
    says(&gate, WitnessKind::Bits, Contradiction, "arithmetic is indistinguishable from cpu-ref");
    assert_eq!(gate.verdict, GateVerdict::Failed);
}

#[test]
fn one_hot_op_with_cpu_refs_bits_contradicts() {
    let gate = decided(|_, cases| cases[2].quality.bits_differ = 0, as_is);
    says(
        &gate,
        WitnessKind::Bits,
        Contradiction,
        "every bit of matmul f32 (64 elements) is cpu-ref's; 3 of 128",
    );
    // An op that is not hot may have one right answer only.
    let gate = decided(|_, cases| cases[3].quality.bits_differ = 0, as_is);
    assert_eq!(witness(&gate, WitnessKind::Bits).0, Neutral);
}

#[test]
fn without_a_compared_bound_case_nothing_is_proven() {
    let changes: [fn(&mut CaseRecord); 4] = [
        |case| case.quality.worst = None,
        |case| (case.quality.bits_compared, case.quality.bits_differ) = (0, 0),
        |case| *case = sample::with_outcome(case.clone(), Outcome::Delegated { ops: vec!["rope".into()] }),
        |case| case.rung = modelbench_evidence::record::Rung::R2,
    ];
    for change in changes {
        let gate = decided(|_, cases| cases.iter_mut().for_each(change), as_is);
        says(&gate, WitnessKind::Bits, NotMeasured, "was compared");
        assert_eq!(gate.verdict, GateVerdict::Failed);
        assert!(
            gate.reasons.iter().any(|reason| reason.contains("bits was not measured")),
            "{:?}",
            gate.reasons
        );
    }
    let wrong = |_: &mut Header, cases: &mut Vec<CaseRecord>| {
        let wrong = Outcome::Mismatch { detail: String::new() };
        cases[2] = sample::with_outcome(cases[2].clone(), wrong);
    };
    says(&decided(wrong, as_is), WitnessKind::Bits, Neutral, "in 2 bound cases");
}

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
