//! A counter-based generator: element `i` of an operand depends only on (seed, case id, operand, i).

use sha2::{Digest, Sha256};

/// Random numbers of one operand of one case, the same on every machine and in any order.
#[derive(Debug, Clone, Copy)]
pub struct Stream {
    key: u64,
}

impl Stream {
    /// The stream of an operand.
    pub fn new(seed: u64, case_id: &str, operand: &str) -> Stream {
        let mut hash = Sha256::new();
        hash.update(seed.to_le_bytes());
        hash.update(case_id.as_bytes());
        hash.update([0]);
        hash.update(operand.as_bytes());
        let digest = hash.finalize();
        let mut key = [0; 8];
        key.copy_from_slice(&digest[..8]);
        Stream { key: u64::from_le_bytes(key) }
    }

    /// 64 random bits for element `i` (the output function of SplitMix64, Steele et al. 2014, on a counter).
    pub fn bits(&self, i: u64) -> u64 {
        let mut z = self.key.wrapping_add(i.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`, which must not be 0. The bias of the multiply-shift is below `n * 2^-64`.
    pub fn below(&self, i: u64, n: u64) -> u64 {
        ((u128::from(self.bits(i)) * u128::from(n)) >> 64) as u64
    }

    /// The numbers below `n` in a random order, decided by the elements from `first` on.
    pub fn order(&self, first: u64, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by_key(|&i| self.bits(first + i as u64));
        order
    }

    /// A real in (-1, 1) with a full 24-bit significand and a random sign; never 0.
    pub fn real(&self, i: u64) -> f32 {
        let bits = self.bits(i);
        let magnitude = ((bits >> 40) | 1) as f32 * (-24f32).exp2();
        if bits & 1 == 0 { magnitude } else { -magnitude }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depends_on_every_part_of_its_name() {
        let first = Stream::new(1, "a", "w").bits(0);
        assert_eq!(first, Stream::new(1, "a", "w").bits(0));
        for other in [Stream::new(2, "a", "w"), Stream::new(1, "b", "w"), Stream::new(1, "a", "x")] {
            assert_ne!(first, other.bits(0));
        }
        assert_ne!(first, Stream::new(1, "a", "w").bits(1));
    }

    #[test]
    fn reals_use_the_low_bits_and_stay_inside() {
        let stream = Stream::new(7, "case", "x");
        let values: Vec<f32> = (0..1000).map(|i| stream.real(i)).collect();
        assert!(values.iter().all(|v| v.abs() < 1.0 && *v != 0.0));
        assert!(values.iter().any(|v| half::bf16::from_f32(*v).to_f32() != *v));
    }
}
