//! Whose arithmetic it was: the order of sums, and bits.

use modelbench_contract::DeviceKind;
use modelbench_evidence::gate::WitnessVerdict::{Contradiction, Neutral, NotMeasured, Positive};
use modelbench_evidence::gate::{GateVerdict, WitnessKind};
use modelbench_evidence::measured::{Measured, Reading};
use modelbench_evidence::outcome::Outcome;
use modelbench_evidence::record::{CaseRecord, Header};
use modelbench_evidence::tree::{self, Foretold, Product, Tree};

use crate::{as_is, decided, idle, on, same, sample, says, witness};

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
        let tree = tree::ProductTree { product: Product::Matmul, k: 8, tree: "(0 1)".into(), foretold: None };
        all.order = Reading::Measured(vec![tree::Measured::Tree(tree)]);
    };
    says(&decided(same, broken), WitnessKind::Order, Contradiction, "holds no trees");
}

/// Changes what one length says of ordinary results.
fn foretelling(k: u64, foretold: Option<Foretold>) -> impl Fn(&mut Measured) {
    move |all| {
        let Reading::Measured(orders) = &mut all.order else { return };
        for found in orders {
            if let tree::Measured::Tree(found) = found
                && found.k == k
            {
                found.foretold = foretold;
            }
        }
    }
}

#[test]
fn an_order_counts_only_if_ordinary_products_have_its_bits() {
    let gate = decided(on(DeviceKind::Cpu), as_is);
    says(&gate, WitnessKind::Order, Positive, "384 ordinary results are as these orders foretell");
    let explained =
        |rounded, fused, wide| Some(Foretold { results: 192, rounded, fused, wide, cut: rounded });
    for one_way in [explained(192, 0, 0), explained(0, 192, 0), explained(191, 191, 192)] {
        let gate = decided(on(DeviceKind::Cpu), foretelling(201, one_way));
        assert_eq!(witness(&gate, WitnessKind::Order).0, Positive);
    }
    for (foretold, says_what) in [
        (
            explained(191, 40, 7),
            "matmul over 201 terms: the order that probes show gives the bits of 191 of 192",
        ),
        (explained(100, 92, 0), "100 of 192"),
        (Some(Foretold { results: 0, rounded: 0, fused: 0, wide: 0, cut: 0 }), "0 of 0"),
        (None, "matmul over 201 terms: no ordinary product was compared"),
    ] {
        let gate = decided(on(DeviceKind::Cpu), |all| {
            idle(all);
            foretelling(201, foretold)(all);
        });
        says(&gate, WitnessKind::Order, NotMeasured, says_what);
        assert_eq!(gate.verdict, GateVerdict::Failed);
        assert!(
            gate.reasons.iter().any(|reason| reason.contains("no positive witness")),
            "{:?}",
            gate.reasons
        );
        // A device that was seen to work needs no order.
        let gate = decided(same, foretelling(201, foretold));
        assert_eq!(gate.verdict, GateVerdict::Passed, "{:?}", gate.reasons);
    }
    // Lengths at which an honest pairwise sum is cpu-ref's say nothing, and need not.
    assert_eq!(
        witness(&decided(on(DeviceKind::Cpu), foretelling(200, None)), WitnessKind::Order).0,
        Positive
    );
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
