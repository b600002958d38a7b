//! The choices of an adversary: the same in every run.

use std::ops::Range;

/// SplitMix64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of a range that is not empty.
    pub(crate) fn within(&mut self, range: Range<usize>) -> usize {
        range.start + usize::try_from(self.next() % range.len() as u64).expect("below a usize")
    }

    /// One of some items.
    pub(crate) fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.within(0..items.len())].clone()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        (self.next() >> 56) as u8
    }
}
