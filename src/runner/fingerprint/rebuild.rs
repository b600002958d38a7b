//! From counts to a tree.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use modelbench_evidence::tree::Tree;

use super::ProbeError;

/// Which pairs are probed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Every pair, in one question.
    AllPairs,
    /// Divide and conquer: one term against all others, then the groups that they fall into, with one question for each
    /// level; and a question of pairs that were not needed, which must fit.
    Divide,
}

/// Members of a group up to which all pairs are asked for once the group is seen to be several subtrees.
const SMALL_GROUP: usize = 64;

/// The tree over `0..n` whose counts a function gives: for each pair `(i, j)`, how many terms lie outside the smallest
/// subtree that holds both. Every count is compared with the tree in the end.
///
/// # Errors
/// Those of the function; [`ProbeError::NoCount`] for a count above `n - 2`; [`ProbeError::NoTree`] if the counts fit no
/// tree; [`ProbeError::NoRoom`] for `n = 0`.
pub fn rebuild(
    n: usize,
    scheme: Scheme,
    mut probe: impl FnMut(&[(usize, usize)]) -> Result<Vec<usize>, ProbeError>,
) -> Result<Tree, ProbeError> {
    if n == 0 {
        return Err(ProbeError::NoRoom("a sum of no terms has no order".to_owned()));
    }
    let mut known = Counts { n, sizes: HashMap::new(), missing: BTreeSet::new() };
    let all: Vec<usize> = (0..n).collect();
    if scheme == Scheme::AllPairs {
        known.missing = pairs(&all).collect();
        known.ask(&mut probe)?;
    }
    let tree = loop {
        let built = known.build(&all)?;
        if known.missing.is_empty()
            && let Some(tree) = built
        {
            break tree;
        }
        known.ask(&mut probe)?;
    };
    if scheme == Scheme::Divide {
        // Neighbours, mirror images, and a stride that meets all: none of them is chosen by what was seen so far.
        let others = (0..n).flat_map(|i| [(i, (i + 1) % n), (i, n - 1 - i), (i, (i * 5 + 3) % n)]);
        known.missing = others.filter(|(i, j)| i != j).map(|(i, j)| (i.min(j), i.max(j))).collect();
        known.missing.retain(|pair| !known.sizes.contains_key(pair));
        known.ask(&mut probe)?;
    }
    known.check(&tree)?;
    Ok(tree)
}

fn pairs(all: &[usize]) -> impl Iterator<Item = (usize, usize)> {
    all.iter().enumerate().flat_map(|(at, &i)| all[at + 1..].iter().map(move |&j| (i.min(j), i.max(j))))
}

/// What is known so far.
struct Counts {
    n: usize,
    /// Terms of the smallest subtree that holds both, by pair with the smaller first.
    sizes: HashMap<(usize, usize), usize>,
    /// Pairs of the next question.
    missing: BTreeSet<(usize, usize)>,
}

impl Counts {
    fn ask(
        &mut self,
        probe: &mut impl FnMut(&[(usize, usize)]) -> Result<Vec<usize>, ProbeError>,
    ) -> Result<(), ProbeError> {
        let asked: Vec<(usize, usize)> = std::mem::take(&mut self.missing).into_iter().collect();
        if asked.is_empty() {
            return Ok(());
        }
        let counts = probe(&asked)?;
        if counts.len() != asked.len() {
            let text = format!("{} probes were asked for and {} answered", asked.len(), counts.len());
            return Err(ProbeError::NoRoom(text));
        }
        let (n, most) = (self.n, self.n.saturating_sub(2));
        for (&(i, j), count) in asked.iter().zip(counts) {
            if count > most {
                return Err(ProbeError::NoCount { i, j, n, value: count as f64, most });
            }
            self.sizes.insert((i, j), n - count);
        }
        Ok(())
    }

    /// How many terms the smallest subtree with both has; `None` if that is not known yet, which is noted.
    fn size(&mut self, i: usize, j: usize) -> Option<usize> {
        let pair = (i.min(j), i.max(j));
        let known = self.sizes.get(&pair).copied();
        if known.is_none() {
            self.missing.insert(pair);
        }
        known
    }

    fn misfit(&self, i: usize, j: usize, expected: String) -> ProbeError {
        let (i, j) = (i.min(j), i.max(j));
        let count = self.n - self.sizes.get(&(i, j)).copied().unwrap_or(self.n);
        ProbeError::NoTree { i, j, n: self.n, count, expected }
    }

    /// The subtree over some terms, sorted, which are known to be all of its terms; `None` if pairs are missing.
    ///
    /// One term, the pivot, meets the others in groups: those that join it in the same node have the same size. The
    /// pivot is the middle one, so that a chain from either end falls into halves.
    fn build(&mut self, terms: &[usize]) -> Result<Option<Tree>, ProbeError> {
        let Some(&pivot) = terms.get(terms.len() / 2) else { return Ok(None) };
        let mut groups = BTreeMap::<usize, Vec<usize>>::new();
        let mut complete = true;
        for &other in terms.iter().filter(|other| **other != pivot) {
            match self.size(pivot, other) {
                Some(size) => groups.entry(size).or_default().push(other),
                None => complete = false,
            }
        }
        if !complete {
            return Ok(None);
        }
        let mut tree = Some(Tree::leaf(pivot));
        let mut held = 1;
        for (size, group) in groups {
            held += group.len();
            if held != size {
                let expected =
                    format!("{} (as many meet term {pivot} that early)", self.n.saturating_sub(held));
                return Err(self.misfit(pivot, group[0], expected));
            }
            let children = self.children(&group, size)?;
            tree = tree.zip(children).map(|(tree, children)| Tree::join(tree, children));
        }
        Ok(tree)
    }

    /// The subtrees over a group that a node with `size` terms joins to the pivot; `None` if pairs are missing.
    fn children(&mut self, group: &[usize], size: usize) -> Result<Option<Vec<Tree>>, ProbeError> {
        let mut children = Some(Vec::new());
        let mut rest = group.to_vec();
        while !rest.is_empty() {
            let pivot = rest[rest.len() / 2];
            let (mut inside, mut outside, mut complete) = (vec![pivot], Vec::new(), true);
            for &other in rest.iter().filter(|other| **other != pivot) {
                match self.size(pivot, other) {
                    None => complete = false,
                    Some(found) if found < size => inside.push(other),
                    Some(found) if found == size => outside.push(other),
                    Some(_) => {
                        let most = format!("{} at least", self.n - size);
                        return Err(self.misfit(pivot, other, most));
                    }
                }
            }
            if !complete {
                return Ok(None);
            }
            if outside.len() <= SMALL_GROUP {
                // A fused adder: all of its members now, or each would be a question of its own.
                for (i, j) in pairs(&outside) {
                    self.size(i, j);
                }
            }
            inside.sort_unstable();
            let child = self.build(&inside)?;
            children = children.zip(child).map(|(mut children, child)| {
                children.push(child);
                children
            });
            rest = outside;
        }
        Ok(children)
    }

    /// Compares every count with the tree.
    fn check(&self, tree: &Tree) -> Result<(), ProbeError> {
        let n = self.n;
        let Some(sizes) = tree.meetings().filter(|sizes| sizes.len() == n * n) else {
            return Err(ProbeError::NoRoom(format!("the tree found has {} of {n} terms", tree.leaves())));
        };
        let mut known: Vec<_> = self.sizes.iter().collect();
        known.sort_unstable();
        for (&(i, j), &size) in known {
            let expected = sizes[i * n + j];
            if expected != size {
                return Err(self.misfit(i, j, (n - expected).to_string()));
            }
        }
        Ok(())
    }
}
