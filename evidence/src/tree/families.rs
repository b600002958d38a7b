//! Orders that people write down in loops, from which larger ones are put together.

use super::Tree;

/// One tree for each index.
pub(super) fn leaves(indices: impl IntoIterator<Item = usize>) -> Vec<Tree> {
    indices.into_iter().map(Tree::leaf).collect()
}

/// How a list of partial sums becomes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fold {
    /// Each is added to the sum of those before it.
    InOrder,
    /// Neighbours are added, and the list is half as long; a last one without neighbour stays.
    Pairwise,
    /// The first half takes up the second, element by element; needs a power of two.
    Halves,
    /// The sum of the first half plus the sum of the second, each made the same way.
    Split,
    /// All in one step.
    Fused,
}

impl Fold {
    /// The sum of some trees, of which there must be one at least; `None` where the fold does not apply.
    pub(super) fn of(self, mut parts: Vec<Tree>) -> Option<Tree> {
        match self {
            Fold::InOrder => (!parts.is_empty()).then(|| chain(parts)),
            Fold::Pairwise => {
                while parts.len() > 1 {
                    let mut rest = parts.into_iter();
                    parts = Vec::new();
                    while let Some(a) = rest.next() {
                        parts.push(Tree::join(a, rest.next()));
                    }
                }
                parts.pop()
            }
            Fold::Halves => {
                if !parts.len().is_power_of_two() {
                    return None;
                }
                while parts.len() > 1 {
                    let upper = parts.split_off(parts.len() / 2);
                    parts = parts.into_iter().zip(upper).map(|(a, b)| Tree::join(a, [b])).collect();
                }
                parts.pop()
            }
            Fold::Split => {
                if parts.len() < 2 {
                    return parts.pop();
                }
                let upper = parts.split_off(parts.len() / 2);
                Some(Tree::join(Fold::Split.of(parts)?, [Fold::Split.of(upper)?]))
            }
            Fold::Fused => {
                let mut parts = parts.into_iter();
                parts.next().map(|first| Tree::join(first, parts))
            }
        }
    }
}

/// Each is added to the sum of those before it. Of nothing it is the term 0, which no caller asks for.
pub(super) fn chain(parts: Vec<Tree>) -> Tree {
    let whole = parts.into_iter().reduce(|sum, part| Tree::join(sum, [part]));
    whole.unwrap_or_else(|| Tree::leaf(0))
}

/// Where the terms go that do not fill a whole round of lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tail {
    /// Each is added to the sum of the lanes.
    InOrder,
    /// Each is the last of a lane.
    InLanes,
    /// They are added up by themselves, and then to the sum of the lanes.
    Apart,
}

/// The sums of `lanes` strided lanes over the terms `indices`, each in order, and the terms left over.
fn strided(indices: &[usize], lanes: usize, tail: Tail) -> (Vec<Tree>, Vec<Tree>) {
    let whole = if tail == Tail::InLanes { indices.len() } else { indices.len() / lanes * lanes };
    let (main, rest) = indices.split_at(whole);
    let lane = |l: usize| chain(leaves(main.iter().skip(l).step_by(lanes).copied()));
    ((0..lanes.min(main.len())).map(lane).collect(), leaves(rest.iter().copied()))
}

/// Lanes and how they meet: `vectors` of `width` lanes each, which are added up lane by lane, and then across.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lanes {
    pub(super) vectors: usize,
    pub(super) width: usize,
    /// How vectors meet; of no meaning for one.
    pub(super) between: Fold,
    /// How the lanes of the vector that remains meet.
    pub(super) across: Fold,
    pub(super) tail: Tail,
}

impl Lanes {
    /// The tree over some terms; `None` if they do not fill every lane once.
    pub(super) fn over(&self, indices: &[usize]) -> Option<Tree> {
        let count = self.vectors * self.width;
        if indices.len() < count {
            return None;
        }
        let (sums, rest) = strided(indices, count, self.tail);
        let across = (0..self.width)
            .map(|l| self.between.of(sums.iter().skip(l).step_by(self.width).cloned().collect()))
            .collect::<Option<Vec<Tree>>>()?;
        let main = self.across.of(across)?;
        Some(match self.tail {
            Tail::Apart if !rest.is_empty() => Tree::join(main, [chain(rest)]),
            _ => rest.into_iter().fold(main, |sum, term| Tree::join(sum, [term])),
        })
    }
}

/// cpu-ref's: eight lanes that meet as a tree, then the tail in order.
pub(super) fn eight_lanes(k: usize) -> Tree {
    let indices: Vec<usize> = (0..k).collect();
    let lanes =
        Lanes { vectors: 1, width: 8, between: Fold::InOrder, across: Fold::Pairwise, tail: Tail::InOrder };
    lanes.over(&indices).unwrap_or_else(|| chain(leaves(indices)))
}

/// Recursive halves down to `base` terms, cut at multiples of eight, and eight lanes in each: numpy's sum.
pub(super) fn numpy(indices: &[usize], base: usize) -> Tree {
    const LANES: usize = 8;
    if indices.len() <= base {
        let own = eight_lanes(indices.len());
        return renumbered(&own, indices);
    }
    let half = indices.len() / 2 / LANES * LANES;
    let (low, high) = indices.split_at(half.max(1));
    Tree::join(numpy(low, base), [numpy(high, base)])
}

/// The same tree over other terms, which keep their order.
fn renumbered(tree: &Tree, indices: &[usize]) -> Tree {
    let mut children = tree.children().iter().map(|child| renumbered(child, indices));
    match children.next() {
        Some(first) => Tree::join(first, children),
        None => Tree::leaf(indices.get(tree.first).copied().unwrap_or(tree.first)),
    }
}
