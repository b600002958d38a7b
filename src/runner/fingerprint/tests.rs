//! Trees from simulated counts, and from backends in this process.

use std::collections::HashSet;

use modelbench_contract::{Backend, NumericProfile, Precision};
use modelbench_evidence::tree::{Foretold, Measured, Product, ProductTree, Tree, TreeSummary, summary};
use modelbench_reference::CpuRef;
use modelbench_zoo::Mock;
use proptest::prelude::*;

use super::*;
use crate::inputs::Stream;

/// A random tree over `0..n` whose nodes have up to `most` children.
fn random(seed: u64, n: usize, most: usize) -> Tree {
    let stream = Stream::new(seed, "tree", "shape");
    let mut parts: Vec<Tree> = (0..n).map(Tree::leaf).collect();
    let mut at = 0;
    let mut draw = |below: usize| {
        at += 1;
        stream.below(at, below as u64) as usize
    };
    while parts.len() > 1 {
        let ways = 2 + draw(most.min(parts.len()) - 1);
        let first = parts.swap_remove(draw(parts.len()));
        let others: Vec<Tree> = (1..ways).map(|_| parts.swap_remove(draw(parts.len()))).collect();
        parts.push(Tree::join(first, others));
    }
    parts.remove(0)
}

/// The counts of a tree, as a backend that adds up like this would give them.
struct Simulated {
    n: usize,
    sizes: Vec<usize>,
    calls: usize,
    asked: HashSet<(usize, usize)>,
}

impl Simulated {
    fn new(tree: &Tree) -> Simulated {
        let sizes = tree.meetings().unwrap();
        Simulated { n: tree.leaves(), sizes, calls: 0, asked: HashSet::new() }
    }

    fn counts(&mut self, pairs: &[(usize, usize)]) -> Result<Vec<usize>, ProbeError> {
        self.calls += 1;
        self.asked.extend(pairs);
        Ok(pairs.iter().map(|&(i, j)| self.n - self.sizes[i * self.n + j]).collect())
    }

    fn rebuild(&mut self, scheme: Scheme) -> Result<Tree, ProbeError> {
        rebuild(self.n, scheme, |pairs| self.counts(pairs))
    }
}

proptest! {
    #[test]
    fn any_tree_comes_back(seed: u64, n in 1usize..=70, most in 2usize..=9, divide: bool) {
        let tree = random(seed, n, most);
        let scheme = if divide { Scheme::Divide } else { Scheme::AllPairs };
        prop_assert_eq!(Simulated::new(&tree).rebuild(scheme).unwrap(), tree);
    }

    /// Another count means another tree with just these counts, or none.
    #[test]
    fn a_wrong_count_is_never_explained_away(
        seed: u64, n in 3usize..=24, most in 2usize..=5, i: usize, j: usize, size: usize, divide: bool,
    ) {
        let tree = random(seed, n, most);
        let (i, j) = (i % n, j % n);
        prop_assume!(i != j);
        let mut simulated = Simulated::new(&tree);
        let size = 2 + size % (n - 1);
        (simulated.sizes[i * n + j], simulated.sizes[j * n + i]) = (size, size);
        let scheme = if divide { Scheme::Divide } else { Scheme::AllPairs };
        if let Ok(found) = simulated.rebuild(scheme) {
            let sizes = found.meetings().unwrap();
            for &(i, j) in &simulated.asked {
                prop_assert_eq!(sizes[i * n + j], simulated.sizes[i * n + j]);
            }
        }
    }
}

#[test]
fn chains_and_lanes_need_few_probes_and_calls() {
    let n = 256;
    let chain = |order: &mut dyn Iterator<Item = usize>| {
        order.map(Tree::leaf).reduce(|sum, term| Tree::join(sum, [term])).unwrap()
    };
    for tree in [
        chain(&mut (0..n)),
        chain(&mut (0..n).rev()),
        Tree::cpu_ref(Product::Matmul, n),
        random(1, n, 2),
        random(1, n, 5),
    ] {
        let mut simulated = Simulated::new(&tree);
        assert_eq!(simulated.rebuild(Scheme::Divide).unwrap(), tree);
        assert!(simulated.asked.len() < n * n / 6, "{} probes", simulated.asked.len());
        assert!(simulated.calls < 40, "{} calls", simulated.calls);
    }
}

#[test]
fn what_is_no_sum_of_the_terms_is_named() {
    // As if sums were exact: every pair cancels, and all other terms survive.
    for scheme in [Scheme::AllPairs, Scheme::Divide] {
        let error = rebuild(8, scheme, |pairs| Ok(vec![6; pairs.len()])).unwrap_err().to_string();
        assert!(error.starts_with("not a sum of these products: probe ("), "{error}");
        assert!(error.contains("of 8 terms counts 6 terms outside"), "{error}");
        let error = rebuild(8, scheme, |pairs| Ok(vec![7; pairs.len()])).unwrap_err().to_string();
        assert!(error.contains("gave 7, expected a whole number from 0 to 6"), "{error}");
    }
}

/// A pair that no group needed contradicts the tree that all others give.
#[test]
fn divide_and_conquer_asks_more_than_it_needs() {
    let tree = Tree::cpu_ref(Product::Matmul, 64);
    let mut simulated = Simulated::new(&tree);
    simulated.rebuild(Scheme::Divide).unwrap();
    let needed = simulated.asked.clone();
    let mut lying = Simulated::new(&tree);
    // 62 and 63 are in lanes 6 and 7 and meet late; they are asked for as neighbours.
    assert!(needed.contains(&(62, 63)));
    (lying.sizes[62 * 64 + 63], lying.sizes[63 * 64 + 62]) = (64, 64);
    assert!(matches!(lying.rebuild(Scheme::Divide), Err(ProbeError::NoTree { .. })));
}

fn measured(backend: &mut impl Backend) -> Vec<TreeSummary> {
    let profile = backend.numerics();
    let measured = measure(backend, &profile, 7, &[]).unwrap();
    assert_eq!(measured.len(), 3 * TERMS.len() + 5);
    for one in &measured {
        assert!(matches!(one, Measured::Tree(_)), "{one:?}");
    }
    summary(&Measured::trees(&measured)).unwrap()
}

#[test]
fn cpu_ref_is_cpu_ref() {
    let all = measured(&mut CpuRef::new());
    assert_eq!(all.len(), 4);
    assert!(all.iter().all(TreeSummary::is_cpu_ref), "{all:?}");
    assert_eq!(all[0].probed, TERMS.map(|k| k as u64));
}

#[test]
fn orders_of_the_zoo_are_found() {
    for (name, order) in [
        ("honest", "sequential"),
        ("reversed-sum", "reverse"),
        ("fused-multiply-add", "sequential"),
        ("f64-accumulation", "sequential"),
        ("pairwise-sum", "pairwise down to 8 terms, each sequential"),
    ] {
        let all = measured(&mut Mock::by_name(name).unwrap());
        assert_eq!(all[0].order, order, "{name}");
        assert_eq!(all[2].order, order, "{name}");
        assert_eq!(all[3].order, "sequential", "{name}");
    }
}

/// What the longest sums say of ordinary results: their trees, and how many each way of rounding explains.
fn foretold(backend: &mut impl Backend) -> Vec<(Tree, Foretold)> {
    let profile = backend.numerics();
    let found = measure(backend, &profile, 7, &drawn(7)).unwrap();
    let trees = Measured::trees(&found);
    let asked = |found: &ProductTree| found.k > 128 && found.product != Product::AttentionSum;
    assert!(trees.iter().all(|found| found.foretold.is_some() == asked(found)));
    let all: Vec<_> =
        trees.iter().filter_map(|found| Some((found.parse().unwrap(), found.foretold?))).collect();
    // Two products over 200, 256 and two drawn numbers of terms.
    assert_eq!(all.len(), 8);
    all
}

#[test]
fn the_order_of_an_honest_backend_foretells_its_ordinary_products() {
    let sums = [
        "sums-reverse",
        "sums-pairwise",
        "sums-sixteen-lanes",
        "sums-blocks-of-32",
        "sums-fused-4",
        "sums-fused-8",
    ];
    for name in ["honest", "reversed-sum", "pairwise-sum"].into_iter().chain(sums) {
        for (tree, found) in foretold(&mut Mock::by_name(name).unwrap()) {
            assert!(found.holds(&tree), "{name}: {found:?}");
        }
    }
    for (_, found) in foretold(&mut CpuRef::new()) {
        assert!(found.rounded == found.results && found.fused < found.results, "{found:?}");
    }
    for (_, found) in foretold(&mut Mock::by_name("fused-multiply-add").unwrap()) {
        assert!(found.fused == found.results && found.rounded < found.results, "{found:?}");
    }
    for (_, found) in foretold(&mut Mock::by_name("f64-accumulation").unwrap()) {
        assert!(found.wide == found.results && found.rounded < found.results, "{found:?}");
    }
    for (tree, found) in foretold(&mut modelbench_candle::Candle::new().unwrap()) {
        assert!(found.holds(&tree), "candle: {found:?}");
    }
}

#[test]
fn who_recognises_probes_is_not_foretold_by_them() {
    let mut knowing = Mock::by_name("recognises-probes").unwrap();
    let all = measured(&mut knowing);
    assert_eq!(all[0].order, "reverse", "the probes are its own");
    for (tree, found) in foretold(&mut knowing) {
        assert!(!found.holds(&tree) && 2 * found.explained() < found.results, "{found:?}");
    }
}

#[test]
fn what_a_backend_lacks_or_garbles_is_not_measured() {
    for (name, says) in [
        ("delegates-matmul", "unimplemented"),
        ("nan", "NaN"),
        ("off-by-one-element", "not a sum of these products"),
    ] {
        let mut mock = Mock::by_name(name).unwrap();
        let profile = mock.numerics();
        let all = measure(&mut mock, &profile, 7, &[]).unwrap();
        let reasons: Vec<&str> = all
            .iter()
            .filter(|one| one.product() == Product::Matmul)
            .filter_map(|one| match one {
                Measured::NotMeasured(missing) => Some(missing.reason.as_str()),
                Measured::Tree(_) => None,
            })
            .collect();
        assert!(
            !reasons.is_empty() && reasons.iter().any(|reason| reason.contains(says)),
            "{name}: {reasons:?}"
        );
    }
}

#[test]
fn coarse_arithmetic_is_measured_where_it_can_count() {
    let coarse =
        |precision| NumericProfile { operand: precision, accumulator: precision, ..NumericProfile::F32 };
    let mut reference = CpuRef::new();
    // Whatever is declared, the data stay within it, so that finer arithmetic shows its order too.
    for precision in [Precision::Bf16, Precision::F16, Precision::Tf32] {
        let tree = tree_of(&mut reference, &coarse(precision), Product::Matmul, 100, 7).unwrap();
        assert_eq!(tree, Tree::cpu_ref(Product::Matmul, 100), "{precision:?}");
    }
    let error = tree_of(&mut reference, &coarse(Precision::Bf16), Product::AttentionSum, 100, 7).unwrap_err();
    assert!(error.to_string().contains("does not tell how many"), "{error}");
}
