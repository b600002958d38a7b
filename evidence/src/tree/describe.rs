//! What an order of summation is called.
//!
//! A tree is recognised by making the trees of the families that engines use, from the simplest on, and comparing. The
//! first that is equal gives the name, so that a name is never a guess.

use super::Tree;
use super::families::{Fold, Lanes, Tail, chain, leaves, numpy};
use super::text::shortened;

/// The compact notation of a tree over `0..n`, such as `8 lanes strided, then pairwise, tail in order`. One that
/// belongs to no known family is written out, shortened.
pub fn describe(tree: &Tree) -> String {
    let n = tree.leaves();
    let named = match n {
        1 => Some("one term".to_owned()),
        _ if !tree.is_over(n) => None,
        _ if tree.widest() > 2 => fused(tree, n),
        _ => {
            simple(tree, n).or_else(|| lanes(tree, n)).or_else(|| halves(tree, n)).or_else(|| blocks(tree, n))
        }
    };
    named.unwrap_or_else(|| format!("{} (no known family, depth {})", shortened(tree), tree.depth()))
}

/// Candidates in their order, with names that are made only for the one that fits.
fn first<N: FnOnce() -> String>(
    tree: &Tree,
    candidates: impl Iterator<Item = (Option<Tree>, N)>,
) -> Option<String> {
    let mut candidates = candidates;
    candidates.find(|(candidate, _)| candidate.as_ref() == Some(tree)).map(|(_, name)| name())
}

fn simple(tree: &Tree, n: usize) -> Option<String> {
    let all = || leaves(0..n);
    let candidates = [
        (Some(chain(all())), "sequential"),
        (Some(chain(leaves((0..n).rev()))), "reverse"),
        (Fold::Split.of(all()).filter(|_| n.is_power_of_two()), "pairwise"),
        (Fold::Split.of(all()), "pairwise by recursive halves"),
        (Fold::Pairwise.of(all()), "pairwise by neighbours"),
        (Fold::Halves.of(all()), "pairwise by halves"),
    ];
    first(tree, candidates.into_iter().map(|(tree, name)| (tree, move || name.to_owned())))
}

/// Most lanes that are looked for.
const LANES: usize = 64;
/// Lanes of a vector.
const WIDTHS: [usize; 4] = [4, 8, 16, 32];
/// Most vectors that are added up lane by lane.
const VECTORS: usize = 16;
const MEETINGS: [Fold; 3] = [Fold::Pairwise, Fold::Halves, Fold::InOrder];
const TAILS: [Tail; 3] = [Tail::InOrder, Tail::InLanes, Tail::Apart];

fn word(fold: Fold) -> &'static str {
    match fold {
        Fold::InOrder => "in order",
        Fold::Pairwise => "pairwise",
        Fold::Split => "by recursive halves",
        Fold::Halves => "by halves",
        Fold::Fused => "fused",
    }
}

/// How many lanes, and how they meet.
fn lanes_text(lanes: &Lanes) -> String {
    let (vectors, width) = (lanes.vectors, lanes.width);
    if vectors == 1 {
        return format!("{width} lanes strided, then {}", word(lanes.across));
    }
    let (between, across) = (word(lanes.between), word(lanes.across));
    format!("{vectors} vectors of {width} lanes strided, vectors {between}, then lanes {across}")
}

fn tail_text(lanes: &Lanes, n: usize) -> &'static str {
    match lanes.tail {
        _ if n.is_multiple_of(lanes.vectors * lanes.width) => "",
        Tail::InOrder => ", tail in order",
        Tail::InLanes => ", tail in the lanes",
        Tail::Apart => ", tail apart",
    }
}

/// One vector of any width first, then several vectors.
fn every_lanes() -> impl Iterator<Item = Lanes> {
    let single = (2..=LANES).flat_map(|width| {
        let each =
            move |across| TAILS.map(|tail| Lanes { vectors: 1, width, between: Fold::InOrder, across, tail });
        MEETINGS.into_iter().flat_map(each)
    });
    let several = WIDTHS.into_iter().flat_map(|width| (2..=VECTORS).map(move |vectors| (vectors, width)));
    let several = several.flat_map(|(vectors, width)| {
        let each = move |between| {
            let each = move |across| TAILS.map(|tail| Lanes { vectors, width, between, across, tail });
            MEETINGS.into_iter().flat_map(each)
        };
        MEETINGS.into_iter().flat_map(each)
    });
    single.chain(several)
}

fn lanes(tree: &Tree, n: usize) -> Option<String> {
    let all: Vec<usize> = (0..n).collect();
    // A lane of a single term is no lane, and a tail as long as the rest is no tail. Vectors may have one term for each
    // lane: then they are met in every lane.
    let told = |lanes: &Lanes| match lanes.tail {
        _ if lanes.vectors > 1 && n == lanes.vectors * lanes.width => true,
        Tail::InLanes => n > lanes.vectors * lanes.width,
        Tail::InOrder | Tail::Apart => n >= 2 * lanes.vectors * lanes.width,
    };
    let candidates = every_lanes()
        .filter(told)
        .map(|lanes| (lanes.over(&all), move || format!("{}{}", lanes_text(&lanes), tail_text(&lanes, n))));
    first(tree, candidates)
}

/// Halves of halves, down to short runs that are added otherwise.
fn halves(tree: &Tree, n: usize) -> Option<String> {
    fn split(indices: &[usize], base: usize) -> Tree {
        if indices.len() <= base {
            return chain(leaves(indices.iter().copied()));
        }
        let (low, high) = indices.split_at(indices.len() / 2);
        Tree::join(split(low, base), [split(high, base)])
    }
    let all: Vec<usize> = (0..n).collect();
    let short = (2..=LANES).map(|base| {
        let name: Box<dyn FnOnce() -> String> =
            Box::new(move || format!("pairwise down to {base} terms, each sequential"));
        (Some(split(&all, base)), name)
    });
    let like_numpy = [128usize, 64, 32, 16].into_iter().map(|base| {
        let name: Box<dyn FnOnce() -> String> =
            Box::new(move || format!("pairwise down to {base} terms, each 8 lanes strided, then pairwise"));
        (Some(numpy(&all, base)), name)
    });
    first(tree, short.chain(like_numpy))
}

/// Largest block that is looked for.
const BLOCK: usize = 128;

fn blocks(tree: &Tree, n: usize) -> Option<String> {
    let all: Vec<usize> = (0..n).collect();
    let inner = |indices: &[usize], lanes: Option<&Lanes>| {
        lanes.and_then(|lanes| lanes.over(indices)).unwrap_or_else(|| chain(leaves(indices.iter().copied())))
    };
    let sizes: Vec<usize> = (2..=BLOCK.min(n - 1)).filter(|block| holds_front(tree, *block)).collect();
    let candidates = sizes.into_iter().flat_map(|block| {
        let kinds = std::iter::once(None).chain(every_lanes().map(Some));
        let fitting = kinds.filter(move |lanes| lanes.is_none_or(|l| l.vectors * l.width < block));
        let all = &all;
        fitting.flat_map(move |lanes| {
            let sums: Vec<Tree> = all.chunks(block).map(|part| inner(part, lanes.as_ref())).collect();
            [Fold::InOrder, Fold::Pairwise, Fold::Split, Fold::Halves].into_iter().map(move |fold| {
                let name = move || {
                    let each = lanes.map_or("sequential".to_owned(), |lanes| {
                        format!("{}{}", lanes_text(&lanes), tail_text(&lanes, block))
                    });
                    format!("blocked by {block}, each {each}, blocks {}", word(fold))
                };
                (fold.of(sums.clone()), name)
            })
        })
    });
    first(tree, candidates)
}

/// True if some node has the terms `0..n` and no others.
fn holds_front(tree: &Tree, n: usize) -> bool {
    let mut node = tree;
    // The term 0 is always in the first child.
    while node.leaves() > n {
        let Some(child) = node.children().first() else { return false };
        node = child;
    }
    node.is_over(n)
}

/// Groups of `ways` neighbours that are added in one step.
fn fused(tree: &Tree, n: usize) -> Option<String> {
    let ways = (3..=n).flat_map(|ways| {
        let groups = move || -> Vec<Tree> {
            (0..n).step_by(ways).filter_map(|from| Fold::Fused.of(leaves(from..n.min(from + ways)))).collect()
        };
        let name = |text: String| -> Box<dyn FnOnce() -> String> { Box::new(move || text) };
        let whole = (ways == n).then(|| (Fold::Fused.of(leaves(0..n)), name("fused in one step".to_owned())));
        let meetings = [
            (with_accumulator(n, ways), format!("fused {ways}-way with the accumulator as one more term")),
            (Some(chain(groups())), format!("fused {ways}-way, then sequential")),
            (Fold::Pairwise.of(groups()), format!("fused {ways}-way, then pairwise")),
            (Fold::Split.of(groups()), format!("fused {ways}-way, then by recursive halves")),
            (every_level(groups(), ways), format!("fused {ways}-way at every level")),
            (including_accumulator(n, ways), format!("fused {ways}-way, the accumulator one of the terms")),
        ];
        whole.into_iter().chain(meetings.into_iter().map(move |(tree, text)| (tree, name(text))))
    });
    first(tree, ways)
}

/// The running sum and the next `ways` terms in one step; the first step starts from zero.
fn with_accumulator(n: usize, ways: usize) -> Option<Tree> {
    let first = Fold::Fused.of(leaves(0..ways.min(n)))?;
    Some((ways..n).step_by(ways).fold(first, |sum, from| Tree::join(sum, leaves(from..n.min(from + ways)))))
}

/// The first `ways` terms in one step, and then the running sum and the next `ways - 1`.
fn including_accumulator(n: usize, ways: usize) -> Option<Tree> {
    let first = Fold::Fused.of(leaves(0..ways.min(n)))?;
    let step = ways - 1;
    Some((ways..n).step_by(step).fold(first, |sum, from| Tree::join(sum, leaves(from..n.min(from + step)))))
}

/// The sums of groups are themselves added in groups.
fn every_level(mut parts: Vec<Tree>, ways: usize) -> Option<Tree> {
    while parts.len() > 1 {
        parts = parts.chunks(ways).filter_map(|group| Fold::Fused.of(group.to_vec())).collect();
    }
    parts.pop()
}

#[cfg(test)]
mod tests {
    use super::super::Product;
    use super::*;

    fn all(n: usize) -> Vec<usize> {
        (0..n).collect()
    }

    fn one(width: usize, across: Fold, tail: Tail) -> Lanes {
        Lanes { vectors: 1, width, between: Fold::InOrder, across, tail }
    }

    #[test]
    fn every_family_gets_its_name() {
        let chained = |blocks: usize| {
            chain(all(256).chunks(blocks).map(|part| chain(leaves(part.iter().copied()))).collect())
        };
        for (tree, name) in [
            (Some(chain(leaves(0..64))), "sequential"),
            (Some(chain(leaves((0..64).rev()))), "reverse"),
            (Fold::Split.of(leaves(0..128)), "pairwise"),
            (Fold::Split.of(leaves(0..100)), "pairwise by recursive halves"),
            (Fold::Pairwise.of(leaves(0..100)), "pairwise by neighbours"),
            (
                one(8, Fold::Pairwise, Tail::InOrder).over(&all(100)),
                "8 lanes strided, then pairwise, tail in order",
            ),
            (
                one(16, Fold::Halves, Tail::InLanes).over(&all(100)),
                "16 lanes strided, then by halves, tail in the lanes",
            ),
            (one(16, Fold::Halves, Tail::InLanes).over(&all(256)), "16 lanes strided, then by halves"),
            (
                one(4, Fold::InOrder, Tail::Apart).over(&all(102)),
                "4 lanes strided, then in order, tail apart",
            ),
            (
                Lanes { vectors: 4, between: Fold::InOrder, ..one(8, Fold::Halves, Tail::InOrder) }
                    .over(&all(200)),
                "4 vectors of 8 lanes strided, vectors in order, then lanes by halves, tail in order",
            ),
            (
                Lanes { vectors: 8, between: Fold::Pairwise, ..one(8, Fold::InOrder, Tail::InOrder) }
                    .over(&all(64)),
                "8 vectors of 8 lanes strided, vectors pairwise, then lanes in order",
            ),
            (Some(chained(32)), "blocked by 32, each sequential, blocks in order"),
            (Some(numpy(&all(200), 128)), "pairwise down to 128 terms, each 8 lanes strided, then pairwise"),
            (with_accumulator(64, 4), "fused 4-way with the accumulator as one more term"),
            (
                Some(chain(leaves(0..8).chunks(2).filter_map(|g| Fold::Fused.of(g.to_vec())).collect())),
                "blocked by 2, each sequential, blocks in order",
            ),
            (
                Some(chain(leaves(0..64).chunks(8).filter_map(|g| Fold::Fused.of(g.to_vec())).collect())),
                "fused 8-way, then sequential",
            ),
            (
                Fold::Split.of(leaves(0..64).chunks(8).filter_map(|g| Fold::Fused.of(g.to_vec())).collect()),
                "fused 8-way, then pairwise",
            ),
            (Fold::Fused.of(leaves(0..16)), "fused in one step"),
            (Some(Tree::leaf(0)), "one term"),
        ] {
            assert_eq!(describe(&tree.expect(name)), name);
        }
    }

    #[test]
    fn names_tell_trees_apart() {
        // Whatever has the same name and the same number of terms is the same tree.
        let n = 68;
        let mut named = std::collections::BTreeMap::new();
        for lanes in every_lanes().filter(|lanes| lanes.vectors * lanes.width <= n / 2) {
            let Some(tree) = lanes.over(&all(n)) else { continue };
            let earlier = named.entry(describe(&tree)).or_insert_with(|| tree.clone());
            assert_eq!(*earlier, tree, "{lanes:?}");
        }
        assert!(named.len() > 100, "{}", named.len());
        assert!(named.keys().all(|name| !name.contains("no known family")));
    }

    #[test]
    fn an_unknown_tree_is_written_out() {
        let tree: Tree = "(((0 3) (1 4)) ((2 5) 6))".parse().expect("a tree");
        assert_eq!(describe(&tree), "(((0 3) (1 4)) ((2 5) 6)) (no known family, depth 3)");
        let odd = Tree::join(Tree::leaf(0), [chain(leaves((1..200).rev().step_by(1).chain(200..256)))]);
        let text = describe(&odd);
        assert!(text.contains("no known family") && text.chars().count() < 120, "{text}");
        // Terms that are not 0..n have no family either, and no place where the search goes wrong.
        assert!(describe(&"(5 7)".parse().expect("a tree")).starts_with("(5 7)"));
    }

    #[test]
    fn cpu_refs_own_order_is_known() {
        for k in [16, 17, 32, 64, 100, 200, 256] {
            let name = describe(&Tree::cpu_ref(Product::Matmul, k));
            assert!(name.starts_with("8 lanes strided, then pairwise"), "{k}: {name}");
        }
    }
}
