//! The order in which a backend adds up products, as a tree.
//!
//! A leaf is a term of the sum, by its index; a node adds its children. A node with more than two children is a fused
//! adder, which adds several terms in one step and rounds once. Addition commutes, so the children of a node have no
//! order: a [`Tree`] keeps them sorted by their smallest leaf, and two trees are equal exactly when they add in the same
//! order.
//!
//! How such trees are found from the outside is published: "FPRev: Revealing Floating-Point Accumulation Order in
//! Software/Hardware Implementations", Xie et al., USENIX ATC 2025. Here are only the trees, what they are called and
//! how they compare with cpu-ref's; everything is a pure function, so that whoever verifies a row derives it again from
//! the text form.

mod describe;
mod families;
mod product;
mod text;

pub use describe::describe;
pub use product::{Foretold, Measured, NotMeasured, Product, ProductTree, TreeSummary, summary};
pub use text::TreeError;

/// Most leaves that a tree read from a text may have.
pub const MAX_LEAVES: usize = 4096;

/// An order of summation. Always canonical: children are sorted by their smallest leaf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// The smallest leaf.
    first: usize,
    leaves: usize,
    /// Empty for a leaf, two or more otherwise.
    children: Vec<Tree>,
}

impl Tree {
    /// One term, by its index.
    pub fn leaf(index: usize) -> Tree {
        Tree { first: index, leaves: 1, children: Vec::new() }
    }

    /// Adds the others to a tree, all in one step. With no others the tree stays as it is.
    pub fn join(tree: Tree, others: impl IntoIterator<Item = Tree>) -> Tree {
        let mut children: Vec<Tree> = std::iter::once(tree).chain(others).collect();
        if children.len() == 1 {
            return children.remove(0);
        }
        children.sort_by_key(|child| child.first);
        let leaves = children.iter().map(|child| child.leaves).sum();
        Tree { first: children.iter().map(|child| child.first).min().unwrap_or(0), leaves, children }
    }

    /// Number of terms.
    pub fn leaves(&self) -> usize {
        self.leaves
    }

    /// The children, sorted by their smallest leaf; none for a leaf.
    pub fn children(&self) -> &[Tree] {
        &self.children
    }

    /// Most additions between a term and the sum; 0 for a leaf.
    pub fn depth(&self) -> usize {
        self.children.iter().map(|child| child.depth() + 1).max().unwrap_or(0)
    }

    /// Most children of a node: 2 if every addition takes two numbers, more with fused adders, 0 for a leaf.
    pub fn widest(&self) -> usize {
        self.children.iter().map(Tree::widest).fold(self.children.len(), usize::max)
    }

    /// The indices of the terms, in the order of the text form.
    pub fn indices(&self) -> Vec<usize> {
        let mut found = Vec::with_capacity(self.leaves);
        self.collect(&mut found);
        found
    }

    fn collect(&self, into: &mut Vec<usize>) {
        if self.children.is_empty() {
            into.push(self.first);
        }
        self.children.iter().for_each(|child| child.collect(into));
    }

    /// True if the terms are `0..n`, each once.
    pub fn is_over(&self, n: usize) -> bool {
        let mut indices = self.indices();
        indices.sort_unstable();
        indices.into_iter().eq(0..n)
    }

    /// For a tree over `0..n`: how many terms the smallest subtree has that holds both `i` and `j`, at `i * n + j`; 1
    /// where they are the same.
    ///
    /// `None` if the terms are not `0..n`.
    pub fn meetings(&self) -> Option<Vec<usize>> {
        let n = self.leaves;
        if !self.is_over(n) {
            return None;
        }
        let mut sizes = vec![1; n * n];
        self.meet(&mut sizes, n);
        Some(sizes)
    }

    fn meet(&self, sizes: &mut [usize], n: usize) {
        let below: Vec<Vec<usize>> = self.children.iter().map(Tree::indices).collect();
        for (a, some) in below.iter().enumerate() {
            for others in &below[a + 1..] {
                for (&i, &j) in some.iter().flat_map(|i| others.iter().map(move |j| (i, j))) {
                    sizes[i * n + j] = self.leaves;
                    sizes[j * n + i] = self.leaves;
                }
            }
        }
        self.children.iter().for_each(|child| child.meet(sizes, n));
    }

    /// The order in which cpu-ref adds `k` terms of a product.
    pub fn cpu_ref(product: Product, k: usize) -> Tree {
        match product {
            Product::Matmul | Product::MatmulOneRow | Product::BatchedMatmul => families::eight_lanes(k),
            Product::AttentionSum => families::chain(families::leaves(0..k)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_have_no_order() {
        let one = Tree::join(Tree::leaf(2), [Tree::join(Tree::leaf(1), [Tree::leaf(0)])]);
        let other = Tree::join(Tree::join(Tree::leaf(0), [Tree::leaf(1)]), [Tree::leaf(2)]);
        assert_eq!(one, other);
        assert_eq!((one.leaves(), one.depth(), one.widest()), (3, 2, 2));
        assert!(one.is_over(3) && !one.is_over(2) && !one.is_over(4));
    }

    #[test]
    fn meetings_are_the_sizes_of_the_joining_subtrees() {
        let tree: Tree = "((0 1) (2 3 4))".parse().expect("a tree");
        let sizes = tree.meetings().expect("over 0..5");
        let at = |i: usize, j: usize| sizes[i * 5 + j];
        assert_eq!((at(0, 1), at(1, 0), at(2, 4), at(3, 4), at(0, 4), at(3, 3)), (2, 2, 3, 3, 5, 1));
        assert_eq!(Tree::join(Tree::leaf(1), [Tree::leaf(2)]).meetings(), None);
    }

    #[test]
    fn cpu_ref_has_eight_lanes_a_tree_and_a_tail() {
        let text = |product, k| Tree::cpu_ref(product, k).to_string();
        assert_eq!(text(Product::Matmul, 8), "(((0 1) (2 3)) ((4 5) (6 7)))");
        assert_eq!(
            text(Product::BatchedMatmul, 17),
            "(((((0 8) (1 9)) ((2 10) (3 11))) (((4 12) (5 13)) ((6 14) (7 15)))) 16)"
        );
        assert_eq!(text(Product::MatmulOneRow, 4), "(((0 1) 2) 3)");
        assert_eq!(text(Product::AttentionSum, 8), "(((((((0 1) 2) 3) 4) 5) 6) 7)");
    }
}
