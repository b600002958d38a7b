//! Which bytes of which block of device memory are taken. Bookkeeping only: it never touches the device.

use std::collections::BTreeMap;

/// Offsets and lengths are multiples of this: the largest alignment that Vulkan lets a device ask of a storage buffer.
pub(crate) const ALIGNMENT: u64 = 256;
/// Bytes of a block that small requests share.
pub(crate) const SHARED_BLOCK: u64 = 16 << 20;
/// Requests above this get a block of their own, which goes back to the device as soon as it is free.
const LARGEST_SHARED: u64 = 2 << 20;

/// Bytes of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Slot {
    /// Number of the block.
    pub(crate) block: usize,
    /// First byte.
    pub(crate) offset: u64,
    /// Bytes, rounded up to [`ALIGNMENT`].
    pub(crate) len: u64,
}

#[derive(Debug)]
struct Block {
    size: u64,
    /// Free ranges by offset; neighbours are merged.
    free: BTreeMap<u64, u64>,
    shared: bool,
}

impl Block {
    fn is_empty(&self) -> bool {
        self.free.get(&0) == Some(&self.size)
    }

    fn give_back(&mut self, offset: u64, len: u64) {
        let (mut offset, mut len) = (offset, len);
        if let Some(behind) = self.free.remove(&(offset + len)) {
            len += behind;
        }
        let before = self.free.range(..offset).next_back().map(|(&at, &n)| (at, n));
        if let Some((at, n)) = before.filter(|(at, n)| at + n == offset) {
            self.free.remove(&at);
            (offset, len) = (at, len + n);
        }
        self.free.insert(offset, len);
    }
}

/// All blocks, by number; numbers are reused.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    blocks: Vec<Option<Block>>,
}

/// `len` rounded up to [`ALIGNMENT`], at least one unit; `None` if it overflows.
pub(crate) fn rounded(len: u64) -> Option<u64> {
    len.max(1).checked_next_multiple_of(ALIGNMENT)
}

/// Size of the block that a request of `len` bytes (rounded) needs if none has room.
pub(crate) fn block_size(len: u64) -> u64 {
    if len > LARGEST_SHARED { len } else { SHARED_BLOCK }
}

impl Pool {
    /// Takes `len` bytes (rounded) from the smallest free range that holds them, if a shared block has one.
    pub(crate) fn take(&mut self, len: u64) -> Option<Slot> {
        if len > LARGEST_SHARED {
            return None;
        }
        let fitting = self.blocks.iter().enumerate().filter_map(|(number, block)| {
            let block = block.as_ref().filter(|block| block.shared)?;
            let fits = block.free.iter().filter(|&(_, &room)| room >= len);
            fits.map(|(&offset, &room)| (room, number, offset)).min()
        });
        let (room, number, offset) = fitting.min()?;
        let block = self.blocks.get_mut(number)?.as_mut()?;
        block.free.remove(&offset);
        if room > len {
            block.free.insert(offset + len, room - len);
        }
        Some(Slot { block: number, offset, len })
    }

    /// The number that the next block will get.
    pub(crate) fn next_number(&self) -> usize {
        self.blocks.iter().position(Option::is_none).unwrap_or(self.blocks.len())
    }

    /// Adds a block of [`block_size`]`(len)` bytes and takes `len` bytes (rounded) of it.
    pub(crate) fn add(&mut self, len: u64) -> Slot {
        let (number, size) = (self.next_number(), block_size(len));
        let mut block = Block { size, free: BTreeMap::new(), shared: len <= LARGEST_SHARED };
        if size > len {
            block.free.insert(len, size - len);
        }
        match self.blocks.get_mut(number) {
            Some(place) => *place = Some(block),
            None => self.blocks.push(Some(block)),
        }
        Slot { block: number, offset: 0, len }
    }

    /// Gives bytes back.
    pub(crate) fn release(&mut self, slot: Slot) {
        if let Some(block) = self.blocks.get_mut(slot.block).and_then(Option::as_mut) {
            block.give_back(slot.offset, slot.len);
        }
    }

    /// Bytes of blocks of a single request that have been given back.
    pub(crate) fn idle(&self) -> u64 {
        let idle = self.blocks.iter().flatten().filter(|block| !block.shared && block.is_empty());
        idle.map(|block| block.size).sum()
    }

    /// Removes every block without a taken byte, but for one shared block, and gives their numbers.
    pub(crate) fn remove_empty(&mut self) -> Vec<usize> {
        let mut spared = false;
        let mut removed = Vec::new();
        for (number, place) in self.blocks.iter_mut().enumerate() {
            let Some(block) = place.as_ref().filter(|block| block.is_empty()) else { continue };
            if block.shared && !spared {
                spared = true;
                continue;
            }
            *place = None;
            removed.push(number);
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_reused_and_merge_with_both_neighbours() {
        let mut pool = Pool::default();
        assert_eq!(pool.take(ALIGNMENT), None);
        let a = pool.add(ALIGNMENT);
        let slots: Vec<Slot> = (0..3).filter_map(|_| pool.take(2 * ALIGNMENT)).collect();
        let [b, c, d] = slots[..] else { panic!("three slots") };
        assert_eq!([a.offset, b.offset, c.offset, d.offset], [0, 256, 768, 1280]);
        pool.release(b);
        // The smallest range that fits, not the large one behind.
        assert_eq!(pool.take(ALIGNMENT).map(|slot| slot.offset), Some(256));
        pool.release(Slot { offset: 256, len: ALIGNMENT, ..b });
        for slot in [d, a, c] {
            pool.release(slot);
        }
        assert_eq!(pool.take(LARGEST_SHARED).map(|slot| slot.offset), Some(0));
    }

    #[test]
    fn large_blocks_go_back_and_one_shared_block_stays() {
        let mut pool = Pool::default();
        let large = pool.add(LARGEST_SHARED + ALIGNMENT);
        let small = [pool.add(ALIGNMENT), pool.add(ALIGNMENT)];
        assert!(pool.remove_empty().is_empty());
        pool.release(large);
        assert_eq!(pool.take(LARGEST_SHARED + ALIGNMENT), None);
        assert_eq!(pool.idle(), LARGEST_SHARED + ALIGNMENT);
        assert_eq!(pool.remove_empty(), [0]);
        assert_eq!(pool.next_number(), 0);
        small.into_iter().for_each(|slot| pool.release(slot));
        assert_eq!(pool.remove_empty(), [2]);
    }

    #[test]
    fn sizes_are_rounded_and_overflow_is_found() {
        assert_eq!(
            [rounded(0), rounded(1), rounded(256), rounded(257)],
            [Some(256), Some(256), Some(256), Some(512)]
        );
        assert_eq!(rounded(u64::MAX), None);
    }
}
