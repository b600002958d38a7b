//! Seeded data for the tests.

/// A small generator (xorshift64*), seeded so that no test depends on another.
pub(super) struct Data(u64);

impl Data {
    /// Data of a seed.
    pub(super) fn new(seed: u64) -> Data {
        Data(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// 64 bits.
    pub(super) fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A real in (-1, 1) with a full significand.
    pub(super) fn real(&mut self) -> f32 {
        let bits = self.bits();
        let magnitude = ((bits >> 40) | 1) as f32 / (1u32 << 24) as f32;
        if bits & 1 == 0 { magnitude } else { -magnitude }
    }

    /// Reals in (-scale, scale).
    pub(super) fn reals(&mut self, n: usize, scale: f32) -> Vec<f32> {
        (0..n).map(|_| self.real() * scale).collect()
    }

    /// Reals whose magnitudes spread over `2^0..2^octaves`, so that sums cancel.
    pub(super) fn spread(&mut self, n: usize, octaves: u64) -> Vec<f32> {
        (0..n).map(|_| self.real() * (1u64 << (self.bits() % (octaves + 1))) as f32).collect()
    }

    /// A permutation of `0..n`.
    pub(super) fn permutation(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            order.swap(i, (self.bits() % (i as u64 + 1)) as usize);
        }
        order
    }
}
