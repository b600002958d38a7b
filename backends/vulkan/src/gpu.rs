//! The device with its memory: what the ops of this crate are written against.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use modelbench_contract::{BackendError, Capacity, DeviceKind, ErrorKind};

use crate::pool::{Pool, Slot, block_size, rounded};
use crate::probe::Arithmetic;
use crate::vk::{Buffer, Device, Facts, Fault, Kernel, Kind, PUSH_WORDS, Part, Stream, TEXEL, Times};
use crate::{Options, probe};

/// Bytes that were given back and wait for the device to be done with them, before it is waited for.
const MOST_IDLE: u64 = 256 << 20;

/// Result of the functions behind the seam.
pub(crate) type Result<T> = std::result::Result<T, Fault>;

/// Some device memory; it goes back to the pool when this is dropped.
///
/// Commands that are recorded but not yet done may still use it. That is sound, because whoever gets the bytes next uses
/// them by later commands of the same stream, which wait where they must.
#[derive(Debug)]
pub(crate) struct Memory {
    slot: Slot,
    len: u64,
    buffer: Arc<Buffer>,
    pool: Rc<RefCell<Pool>>,
}

impl Memory {
    /// All of it.
    pub(crate) fn whole(&self) -> Part {
        self.part(0, self.len)
    }

    /// `len` bytes from `offset`, which lie inside.
    pub(crate) fn part(&self, offset: u64, len: u64) -> Part {
        Part { buffer: Arc::clone(&self.buffer), offset: self.slot.offset + offset, len }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.pool.borrow_mut().release(self.slot);
    }
}

/// The device, its stream and its memory.
#[derive(Debug)]
pub(crate) struct Gpu {
    device: Arc<Device>,
    stream: Stream,
    pool: Rc<RefCell<Pool>>,
    blocks: Vec<Option<Arc<Buffer>>>,
    arithmetic: Arithmetic,
    /// Requests for memory that are still granted; all of them, if there is no figure.
    #[cfg(test)]
    pub(crate) rooms_left: Option<usize>,
}

impl Gpu {
    /// Opens the device and finds out how it computes.
    ///
    /// # Errors
    /// `Unavailable` if there is no such device.
    pub(crate) fn open(options: &Options) -> Result<Gpu> {
        let device = Arc::new(Device::open(options)?);
        let stream = Stream::new(Arc::clone(&device))?;
        let mut gpu = Gpu {
            device,
            stream,
            pool: Rc::default(),
            blocks: Vec::new(),
            arithmetic: Arithmetic::default(),
            #[cfg(test)]
            rooms_left: None,
        };
        gpu.arithmetic = probe::run(&mut gpu)?;
        Ok(gpu)
    }

    pub(crate) fn facts(&self) -> &Facts {
        self.device.facts()
    }

    /// How the device computes.
    pub(crate) fn arithmetic(&self) -> &Arithmetic {
        &self.arithmetic
    }

    pub(crate) fn capacity(&self) -> Capacity {
        self.device.capacity()
    }

    /// Kernels given to the device, submissions and barriers so far.
    pub(crate) fn counts(&self) -> [u64; 3] {
        [self.stream.dispatches, self.stream.submissions, self.stream.barriers]
    }

    #[cfg(test)]
    pub(crate) fn stream(&mut self) -> &mut Stream {
        &mut self.stream
    }

    /// Time on the device by kernel; empty unless [`Options::timing`] asked for it.
    pub(crate) fn times(&self) -> &Times {
        &self.stream.times
    }

    /// Lanes of a group: `on_device` on hardware; on a software device one subgroup, which is one thread's vector.
    pub(crate) fn lanes(&self, on_device: u32) -> u32 {
        match self.facts().kind {
            DeviceKind::Software | DeviceKind::Cpu => self.facts().subgroup.min(on_device),
            _ => on_device,
        }
    }

    /// True if a kernel can see all of these by texel.
    pub(crate) fn by_texel(&self, memories: &[&Memory]) -> bool {
        memories.iter().all(|memory| memory.len.div_ceil(TEXEL) <= self.facts().texels)
    }

    /// Room for `len` bytes.
    ///
    /// # Errors
    /// `ResourceExhausted` if a kernel could not see so much, or the device has no memory left; `DeviceLost`.
    pub(crate) fn room(&mut self, what: &str, len: u64) -> Result<Memory> {
        self.stream.ready()?;
        #[cfg(test)]
        if let Some(left) = &mut self.rooms_left {
            *left = left.checked_sub(1).ok_or_else(|| exhausted(format!("a test grants no {what}")))?;
        }
        let facts = self.facts();
        let largest = facts.largest_binding.min(facts.largest_allocation);
        let Some(needed) = rounded(len).filter(|_| len <= largest) else {
            return Err(exhausted(format!(
                "{what} needs {len} bytes; a kernel of this device sees at most {largest} (maxStorageBufferRange)"
            )));
        };
        if self.pool.borrow().idle() > MOST_IDLE {
            self.finish()?;
        }
        if let Some(slot) = self.pool.borrow_mut().take(needed)
            && let Some(Some(buffer)) = self.blocks.get(slot.block)
        {
            return Ok(Memory { slot, len, buffer: Arc::clone(buffer), pool: Rc::clone(&self.pool) });
        }
        let buffer = Arc::new(self.block(what, block_size(needed))?);
        let slot = self.pool.borrow_mut().add(needed);
        if self.blocks.len() <= slot.block {
            self.blocks.resize(slot.block + 1, None);
        }
        if let Some(place) = self.blocks.get_mut(slot.block) {
            *place = Some(Arc::clone(&buffer));
        }
        Ok(Memory { slot, len, buffer, pool: Rc::clone(&self.pool) })
    }

    /// A new block; if the device has no memory for it, once more after everything freed has gone back.
    fn block(&mut self, what: &str, size: u64) -> Result<Buffer> {
        for last in [false, true] {
            let (held, heap) = (self.held(), self.facts().heap);
            let refused = if held + size > heap {
                format!("{held} of the heap's {heap} bytes are taken")
            } else {
                match Buffer::new(&self.device, size, Kind::Resident) {
                    Err(fault) if fault.exhausted() => fault.to_string(),
                    other => return other,
                }
            };
            if last {
                return Err(exhausted(format!("no device memory for {size} bytes of {what}: {refused}")));
            }
            self.finish()?;
        }
        Err(exhausted(format!("no device memory for {size} bytes of {what}")))
    }

    /// Bytes of all blocks.
    pub(crate) fn held(&self) -> u64 {
        self.blocks.iter().flatten().map(|block| block.size()).sum()
    }

    /// Room for `elements` f32 values.
    pub(crate) fn floats(&mut self, what: &str, elements: usize) -> Result<Memory> {
        self.room(what, (elements as u64).saturating_mul(4))
    }

    /// Room with these bytes in it, padded to whole words.
    pub(crate) fn filled(&mut self, what: &str, bytes: &[u8]) -> Result<Memory> {
        let memory = self.room(what, (bytes.len() as u64).next_multiple_of(4))?;
        self.stream.upload(bytes, &memory.whole())?;
        Ok(memory)
    }

    /// Hands bytes over to memory that is at least as long.
    pub(crate) fn fill(&mut self, memory: &Memory, bytes: &[u8]) -> Result<()> {
        self.stream.upload(bytes, &memory.whole())
    }

    /// Runs a kernel on whole memories; see [`Stream::dispatch`].
    pub(crate) fn run(
        &mut self,
        kernel: Kernel,
        lanes: u32,
        memories: &[&Memory],
        push: &[u32],
        groups: u64,
    ) -> Result<()> {
        let parts: Vec<Part> = memories.iter().map(|memory| memory.whole()).collect();
        let parts: Vec<&Part> = parts.iter().collect();
        let mut words = [0; PUSH_WORDS];
        for (word, value) in words.iter_mut().zip(push) {
            *word = *value;
        }
        self.stream.dispatch(kernel, (lanes, self.arithmetic.unpack_is_exact), &parts, words, groups)
    }

    pub(crate) fn copy(&mut self, from: &Part, to: &Part) -> Result<()> {
        self.stream.copy(from, to)
    }

    /// Waits, and takes bytes back.
    pub(crate) fn download(&mut self, from: &Part) -> Result<Vec<u8>> {
        let bytes = self.stream.download(from)?;
        self.collect();
        Ok(bytes)
    }

    /// Waits, and takes f32 values back.
    pub(crate) fn download_floats(&mut self, from: &Part) -> Result<Vec<f32>> {
        let bytes = self.download(from)?;
        let (words, _) = bytes.as_chunks::<4>();
        Ok(words.iter().map(|&word| f32::from_le_bytes(word)).collect())
    }

    /// Waits for everything, and gives unused blocks back to the device.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.stream.finish()?;
        self.collect();
        Ok(())
    }

    /// Gives unused blocks back; right after a wait, when no command uses them.
    fn collect(&mut self) {
        let empty = self.pool.borrow_mut().remove_empty();
        if empty.is_empty() {
            return;
        }
        self.stream.forget_buffers();
        for number in empty {
            if let Some(place) = self.blocks.get_mut(number) {
                *place = None;
            }
        }
    }
}

fn exhausted(text: String) -> Fault {
    BackendError::new(ErrorKind::ResourceExhausted, text).into()
}
