//! Trees of the products of a backend, as the record keeps them, and what they say together.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Tree, TreeError, describe};

/// A sum of products whose order is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Product {
    /// A row of `matmul` with many rows.
    Matmul,
    /// `matmul` with a single row.
    MatmulOneRow,
    /// A row of `batched_matmul`.
    BatchedMatmul,
    /// The weighted sum of values in `attention`.
    AttentionSum,
}

impl Product {
    /// Every product.
    pub const ALL: [Product; 4] =
        [Product::Matmul, Product::MatmulOneRow, Product::BatchedMatmul, Product::AttentionSum];

    /// The name used in records.
    pub fn as_str(self) -> &'static str {
        match self {
            Product::Matmul => "matmul",
            Product::MatmulOneRow => "matmul-one-row",
            Product::BatchedMatmul => "batched-matmul",
            Product::AttentionSum => "attention-sum",
        }
    }
}

/// The order in which a backend adds the `k` terms of a product.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProductTree {
    /// The product.
    pub product: Product,
    /// Number of terms.
    pub k: u64,
    /// The full text form of the tree, from which everything else is derived.
    pub tree: String,
    /// What the order says of an ordinary product, if one was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foretold: Option<Foretold>,
}

/// Results of an ordinary product of the same shape, and how many of them have the bits which the order gives.
///
/// Whoever recognises probes can add them in an order of his own; whoever gives all other products the bits of that order
/// has added them himself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Foretold {
    /// Results that were compared.
    pub results: u64,
    /// Those that are right if each product and each addition is rounded to f32.
    pub rounded: u64,
    /// Those that are right if a product is fused into the addition that takes it.
    pub fused: u64,
    /// Those that are right if only the sum is rounded to f32, and everything before to f64.
    pub wide: u64,
    /// Those that are right if a fused adder cuts its terms off below the largest, the same number of bits everywhere.
    pub cut: u64,
}

impl Foretold {
    /// Results that one way of rounding explains, at the most.
    pub fn explained(&self) -> u64 {
        self.rounded.max(self.fused).max(self.wide).max(self.cut)
    }

    /// True if one way of rounding explains every result, and there are any. Of sums with fused adders more than half
    /// are enough: how many bits these keep below their largest term, and how they round, differs from one to the
    /// other, while a sum in another order seldom has the same bits.
    pub fn holds(&self, tree: &Tree) -> bool {
        let explained = self.explained();
        if tree.widest() > 2 {
            explained > self.results.saturating_sub(explained)
        } else {
            0 < self.results && explained == self.results
        }
    }
}

impl ProductTree {
    /// The tree.
    ///
    /// # Errors
    /// [`TreeError`] if the text is no tree, or one over other terms than `0..k`.
    pub fn parse(&self) -> Result<Tree, TreeError> {
        let tree: Tree = self.tree.parse()?;
        let k = usize::try_from(self.k).unwrap_or(usize::MAX);
        if k == 0 || !tree.is_over(k) {
            let indices = tree.indices();
            let once = |i: &usize| indices.iter().filter(|index| *index == i).count() == 1;
            return Err(TreeError::Terms {
                product: self.product.as_str(),
                k: self.k,
                last: self.k.saturating_sub(1),
                leaves: tree.leaves(),
                wrong: (0..k).take(indices.len() + 1).find(|i| !once(i)),
            });
        }
        Ok(tree)
    }
}

/// A product whose order could not be found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotMeasured {
    /// The product.
    pub product: Product,
    /// Number of terms.
    pub k: u64,
    /// Why, in words.
    pub reason: String,
}

/// What the probes of one product and one number of terms gave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measured {
    /// A tree.
    Tree(ProductTree),
    /// No tree. It never counts for a backend.
    NotMeasured(NotMeasured),
}

impl Measured {
    /// The product.
    pub fn product(&self) -> Product {
        match self {
            Measured::Tree(found) => found.product,
            Measured::NotMeasured(missing) => missing.product,
        }
    }

    /// Number of terms.
    pub fn k(&self) -> u64 {
        match self {
            Measured::Tree(found) => found.k,
            Measured::NotMeasured(missing) => missing.k,
        }
    }

    /// The trees alone.
    pub fn trees(all: &[Measured]) -> Vec<ProductTree> {
        let tree = |measured: &Measured| match measured {
            Measured::Tree(found) => Some(found.clone()),
            Measured::NotMeasured(_) => None,
        };
        all.iter().filter_map(tree).collect()
    }
}

/// What the trees of one product say together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TreeSummary {
    /// The product.
    pub product: Product,
    /// Numbers of terms for which there is a tree, ascending.
    pub probed: Vec<u64>,
    /// Those of them for which the tree is not cpu-ref's. Empty means: cpu-ref's order wherever it was looked.
    pub differs_at: Vec<u64>,
    /// The notation of the tree with the most terms.
    pub order: String,
    /// Its depth.
    pub depth: u64,
}

impl TreeSummary {
    /// True if every tree is cpu-ref's.
    pub fn is_cpu_ref(&self) -> bool {
        !self.probed.is_empty() && self.differs_at.is_empty()
    }
}

/// One summary for each product that has a tree, in the order of [`Product::ALL`].
///
/// # Errors
/// [`TreeError`] if a text is no tree over its terms, or a product and number of terms occurs twice.
pub fn summary(trees: &[ProductTree]) -> Result<Vec<TreeSummary>, TreeError> {
    let mut parsed = BTreeMap::<(Product, u64), Tree>::new();
    for found in trees {
        if parsed.insert((found.product, found.k), found.parse()?).is_some() {
            return Err(TreeError::Twice { product: found.product.as_str(), k: found.k });
        }
    }
    let mut summaries: Vec<TreeSummary> = Vec::new();
    for ((product, k), tree) in &parsed {
        let differs = Tree::cpu_ref(*product, tree.leaves()) != *tree;
        if summaries.last().is_none_or(|last| last.product != *product) {
            summaries.push(TreeSummary {
                product: *product,
                probed: Vec::new(),
                differs_at: Vec::new(),
                order: String::new(),
                depth: 0,
            });
        }
        if let Some(last) = summaries.last_mut() {
            last.probed.push(*k);
            last.differs_at.extend(differs.then_some(*k));
            // Trees come with ascending k, so that the last one stays.
            last.order = describe(tree);
            last.depth = tree.depth() as u64;
        }
    }
    Ok(summaries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(product: Product, tree: &Tree) -> ProductTree {
        ProductTree { product, k: tree.leaves() as u64, tree: tree.to_string(), foretold: None }
    }

    #[test]
    fn numpys_sum_is_cpu_refs_up_to_128_terms_only() {
        let numpy = |k: usize| super::super::families::numpy(&(0..k).collect::<Vec<_>>(), 128);
        let trees: Vec<ProductTree> =
            [8, 17, 64, 100, 128, 200, 256].map(|k| found(Product::Matmul, &numpy(k))).into();
        let all = summary(&trees).expect("trees");
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].differs_at, [200, 256]);
        assert!(!all[0].is_cpu_ref());
        assert!(summary(&trees[..5]).expect("trees")[0].is_cpu_ref());
    }

    #[test]
    fn the_largest_k_gives_the_notation_whatever_the_order() {
        let trees: Vec<ProductTree> = [64, 200, 8]
            .into_iter()
            .flat_map(|k| Product::ALL.map(|product| found(product, &Tree::cpu_ref(product, k))))
            .collect();
        let all = summary(&trees).expect("trees");
        assert_eq!(all.iter().map(|s| s.product).collect::<Vec<_>>(), Product::ALL);
        assert!(all.iter().all(TreeSummary::is_cpu_ref));
        assert_eq!(all[0].probed, [8, 64, 200]);
        assert_eq!((all[0].order.as_str(), all[0].depth), ("8 lanes strided, then pairwise", 27));
        assert_eq!((all[3].order.as_str(), all[3].depth), ("sequential", 199));
    }

    #[test]
    fn a_tree_over_other_terms_is_refused() {
        for (k, tree, says) in [
            (3, "(0 1)", "terms 0 to 2"),
            (2, "((0 1) 2)", "got 3 terms"),
            (2, "(0 0)", "term 0 missing or not alone"),
            (2, "(0 2)", "term 1 missing"),
            (2, "(1 0)", "sorted"),
            (0, "0", "k=0"),
        ] {
            let given = ProductTree { product: Product::Matmul, k, tree: tree.to_owned(), foretold: None };
            let error = summary(&[given]).expect_err(tree).to_string();
            assert!(error.contains(says), "{tree}: {error}");
        }
        let one = ProductTree { product: Product::Matmul, k: 2, tree: "(0 1)".to_owned(), foretold: None };
        let error = summary(&[one.clone(), one]).expect_err("twice");
        assert_eq!(error, TreeError::Twice { product: "matmul", k: 2 });
        assert_eq!(summary(&[]), Ok(Vec::new()));
    }

    #[test]
    fn records_refuse_what_they_do_not_know() {
        let text = r#"{"tree":{"product":"matmul-one-row","k":2,"tree":"(0 1)"}}"#;
        let read: Measured = serde_json::from_str(text).expect("a record");
        assert_eq!(serde_json::to_string(&read).expect("text"), text);
        for wrong in [
            r#"{"tree":{"product":"matmul","k":2,"tree":"(0 1)","x":1}}"#,
            r#"{"tree":{"product":"dot","k":2,"tree":"(0 1)"}}"#,
            r#"{"not-measured":{"product":"matmul","k":2}}"#,
            r#"{"not-measured":{"product":"matmul","k":2,"reason":"","tree":"(0 1)"}}"#,
        ] {
            assert!(serde_json::from_str::<Measured>(wrong).is_err(), "{wrong}");
        }
    }
}
