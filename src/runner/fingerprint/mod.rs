//! The order in which a backend adds up products, found from the outside.
//!
//! This is the idea of "FPRev: Revealing Floating-Point Accumulation Order in Software/Hardware Implementations", Xie et
//! al., USENIX ATC 2025. A probe `(i, j)` is a product whose terms are all 1, except for +M at `i` and -M at `j`, with M
//! so large that adding all the ones to it changes nothing. A one that meets +M or -M before these two cancel is lost;
//! one that is added later survives. So the result counts the terms outside the smallest subtree that holds both `i` and
//! `j`, and the counts of enough pairs give the whole tree ([`rebuild`]). A fused adder, which aligns several terms to the
//! largest of them and adds them in one step, shows as a node with more than two children.
//!
//! The probes are ordinary products, and nothing marks them as probes but their masks: every row has a scale of its own,
//! M is drawn anew for each, the other operand is not constant, and rows come in random order. All of these are powers of
//! two, so that the counts stay exact.

mod ask;
mod foretell;
mod rebuild;
mod scale;
mod worker;

#[cfg(test)]
mod tests;

use modelbench_contract::{Backend, BackendError, ErrorKind, NumericProfile};
use modelbench_evidence::tree::{Measured, NotMeasured, Product, ProductTree, Tree};

use crate::inputs::Stream;
use ask::Asker;
pub use rebuild::{Scheme, rebuild};
pub use worker::{FingerprintError, FingerprintPlan, Fingerprinted, fingerprint};

/// Numbers of terms that are probed.
pub const TERMS: [usize; 8] = [8, 16, 17, 32, 64, 100, 200, 256];
/// Most terms of a product that takes one call for each probe.
const ONE_ROW_TERMS: usize = 64;
/// Most terms for which no ordinary product is asked: up to here honest pairwise sums have cpu-ref's order.
const PROBES_ALONE: usize = 128;
/// Most terms for which every pair is probed.
const ALL_PAIRS: usize = 64;

/// Why a tree was not found.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The backend refused, or its worker is gone.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A result is no count.
    #[error(
        "not a sum of these products: probe ({i}, {j}) of {n} terms gave {value}, expected a whole number from 0 to \
         {most} (terms added after these two met)"
    )]
    NoCount {
        /// Place of +M.
        i: usize,
        /// Place of -M.
        j: usize,
        /// Number of terms.
        n: usize,
        /// The result in units.
        value: f64,
        /// `n - 2`.
        most: usize,
    },
    /// The counts belong to no tree.
    #[error(
        "not a sum of these products: probe ({i}, {j}) of {n} terms counts {count} terms outside, the tree that the other \
         probes give has {expected}"
    )]
    NoTree {
        /// Place of +M.
        i: usize,
        /// Place of -M.
        j: usize,
        /// Number of terms.
        n: usize,
        /// The count.
        count: usize,
        /// What it would be.
        expected: String,
    },
    /// The declared arithmetic leaves no room for probes.
    #[error("cannot be measured: {0}")]
    NoRoom(String),
}

/// The worker or device is gone, so that nothing more can be measured.
#[derive(Debug, thiserror::Error)]
#[error("the order of {} over k={k}: {source}", .product.as_str())]
pub struct Gone {
    /// The product that was asked for.
    pub product: Product,
    /// Its number of terms.
    pub k: usize,
    /// What the backend's transport said.
    pub source: BackendError,
}

/// Finds the order of every product for every number of terms of [`TERMS`]; the one-row product, which needs a call for
/// each probe, up to 64 terms.
///
/// Beyond 128 terms an ordinary matrix product is asked too, and compared with what the order foretells.
///
/// `profile` is what the backend declares; `seed` decides scales and order of the probes. `more` are numbers of terms
/// beside [`TERMS`]. What a backend lacks, refuses,
/// or answers with something that is no count of its terms is [`Measured::NotMeasured`] with the reason. All handles are
/// freed.
///
/// # Errors
/// [`Gone`] if the worker or device is lost.
pub fn measure<B: Backend>(
    backend: &mut B,
    profile: &NumericProfile,
    seed: u64,
    more: &[usize],
) -> Result<Vec<Measured>, Gone> {
    let mut all = Vec::new();
    for product in Product::ALL {
        for k in TERMS.into_iter().chain(more.iter().copied()) {
            if product == Product::MatmulOneRow && k > ONE_ROW_TERMS {
                continue;
            }
            let terms = k as u64;
            let found = tree_of(backend, profile, product, k, seed).and_then(|tree| {
                let ordinary =
                    matches!(product, Product::Matmul | Product::BatchedMatmul) && k > PROBES_ALONE;
                let foretold = ordinary
                    .then(|| foretell::foretell(backend, profile, product, &tree, seed))
                    .transpose()?;
                Ok(ProductTree { product, k: terms, tree: tree.to_string(), foretold })
            });
            all.push(match found {
                Ok(found) => Measured::Tree(found),
                Err(ProbeError::Backend(source))
                    if matches!(source.kind, ErrorKind::Unavailable | ErrorKind::DeviceLost) =>
                {
                    return Err(Gone { product, k, source });
                }
                Err(error) => {
                    Measured::NotMeasured(NotMeasured { product, k: terms, reason: error.to_string() })
                }
            });
        }
    }
    Ok(all)
}

/// Two more numbers of terms, which the seed decides: odd, and beyond what a pairwise sum adds as cpu-ref does. Whoever
/// knows [`TERMS`] does not know these.
pub(super) fn drawn(seed: u64) -> [usize; 2] {
    let stream = Stream::new(seed, "fingerprint", "terms");
    let first = stream.below(0, 32) as usize;
    let second = stream.below(1, 31) as usize;
    [first, (first + 1 + second) % 32].map(|n| 129 + 4 * n)
}

/// The order of one product.
///
/// # Errors
/// [`ProbeError`].
pub fn tree_of<B: Backend>(
    backend: &mut B,
    profile: &NumericProfile,
    product: Product,
    k: usize,
    seed: u64,
) -> Result<Tree, ProbeError> {
    let mut asker = Asker::new(product, k, profile, seed);
    // A call for each of a thousand pairs would be slow; a few hundred tell the same.
    let scheme =
        if k <= ALL_PAIRS && product != Product::MatmulOneRow { Scheme::AllPairs } else { Scheme::Divide };
    rebuild(k, scheme, |pairs| asker.counts(backend, pairs))
}
