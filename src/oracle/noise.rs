//! Random roundings that depend on nothing but their place.

/// Noise of one op in one perturbed run, uniform in (-1, 1), element by element.
///
/// Counter-based, so that the values do not depend on threads or on the order in which they are taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Noise {
    key: u64,
}

impl Noise {
    /// The noise of op number `op` in run `run` of the ensemble with this seed.
    pub(super) fn new(seed: u64, run: u64, op: u64) -> Noise {
        Noise { key: mix(mix(mix(seed).wrapping_add(run)).wrapping_add(op)) }
    }

    /// Element `i`.
    pub(super) fn at(&self, i: usize) -> f64 {
        let bits = mix(self.key.wrapping_add(i as u64));
        // An odd multiple of 2^-53 in (0, 2), moved to (-1, 1).
        ((bits >> 11) | 1) as f64 * (2.0 / (1u64 << 53) as f64) - 1.0
    }
}

/// The output function of SplitMix64 (Steele, Lea and Flood, 2014) at state `z`.
fn mix(z: u64) -> u64 {
    let z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
