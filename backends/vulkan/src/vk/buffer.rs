//! Buffers with memory of their own.

use std::sync::Arc;

use vulkano::Handle;
use vulkano::VulkanObject;
use vulkano::buffer::sys::RawBuffer;
use vulkano::buffer::view::{BufferView, BufferViewCreateInfo};
use vulkano::buffer::{Buffer as Inner, BufferCreateInfo, BufferUsage, Subbuffer};
use vulkano::device::DeviceOwned;
use vulkano::format::Format;
use vulkano::memory::{
    DeviceMemory, MemoryAllocateInfo, MemoryMapInfo, MemoryPropertyFlags, MemoryType, ResourceMemory,
};

use super::{Device, Fault};
use crate::hazard::Span;

/// Bytes of a texel.
pub(crate) const TEXEL: u64 = 16;

/// What a buffer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Tensors and stores: on the device, whether or not the host could see it.
    Resident,
    /// Written by the host, copied from by the device.
    Upload,
    /// Written by the device, read by the host.
    Download,
}

impl Kind {
    /// How well a memory type suits; `None` if it does not serve.
    fn suits(self, kind: &MemoryType) -> Option<u32> {
        let has = |flags| kind.property_flags.contains(flags);
        let visible = has(MemoryPropertyFlags::HOST_VISIBLE | MemoryPropertyFlags::HOST_COHERENT);
        match self {
            // A driver may hand out little of the memory that both can see; tensors leave it alone where they can.
            Kind::Resident => {
                Some(2 * u32::from(has(MemoryPropertyFlags::DEVICE_LOCAL)) + u32::from(!visible))
            }
            Kind::Upload => visible.then(|| u32::from(!has(MemoryPropertyFlags::DEVICE_LOCAL))),
            Kind::Download => visible.then(|| u32::from(has(MemoryPropertyFlags::HOST_CACHED))),
        }
    }
}

/// A buffer that is all of its memory.
#[derive(Debug)]
pub(crate) struct Buffer {
    inner: Arc<Inner>,
    memory: Arc<DeviceMemory>,
}

impl Buffer {
    /// A buffer of `size` bytes, mapped unless it is [`Kind::Resident`].
    ///
    /// # Errors
    /// `ResourceExhausted` if the device has no memory left; what vulkano or the driver refuse.
    pub(crate) fn new(device: &Device, size: u64, kind: Kind) -> Result<Buffer, Fault> {
        let usage = match kind {
            Kind::Resident => {
                BufferUsage::STORAGE_BUFFER
                    | BufferUsage::UNIFORM_TEXEL_BUFFER
                    | BufferUsage::TRANSFER_SRC
                    | BufferUsage::TRANSFER_DST
            }
            Kind::Upload => BufferUsage::TRANSFER_SRC,
            Kind::Download => BufferUsage::TRANSFER_DST,
        };
        let info = BufferCreateInfo { size, usage, ..BufferCreateInfo::default() };
        let raw =
            RawBuffer::new(Arc::clone(device.logical()), info).map_err(Fault::checked("vkCreateBuffer"))?;
        let needs = *raw.memory_requirements();
        let types = &device.logical().physical_device().memory_properties().memory_types;
        let index = types
            .iter()
            .enumerate()
            .filter(|(index, _)| needs.memory_type_bits & (1 << index) != 0)
            .filter_map(|(index, memory)| Some((kind.suits(memory)?, std::cmp::Reverse(index))))
            .max()
            .map(|(_, std::cmp::Reverse(index))| index as u32);
        let no_memory =
            || Fault::Invalid { call: "vkAllocateMemory", text: format!("no memory for {kind:?}") };
        let info = MemoryAllocateInfo {
            allocation_size: needs.layout.size(),
            memory_type_index: index.ok_or_else(no_memory)?,
            ..MemoryAllocateInfo::default()
        };
        let mut memory = DeviceMemory::allocate(Arc::clone(device.logical()), info)
            .map_err(Fault::checked("vkAllocateMemory"))?;
        if kind != Kind::Resident {
            let whole = MemoryMapInfo { offset: 0, size: memory.allocation_size(), ..Default::default() };
            memory.map(whole).map_err(Fault::checked("vkMapMemory"))?;
        }
        let bound = raw.bind_memory(ResourceMemory::new_dedicated(memory));
        let inner = bound.map_err(|(error, _, _)| Fault::checked("vkBindBufferMemory")(error))?;
        let vulkano::buffer::BufferMemory::Normal(resource) = inner.memory() else {
            return Err(Fault::Invalid { call: "vkBindBufferMemory", text: "no memory is bound".to_owned() });
        };
        let memory = Arc::clone(resource.device_memory());
        Ok(Buffer { inner: Arc::new(inner), memory })
    }

    /// Bytes.
    pub(crate) fn size(&self) -> u64 {
        self.inner.size()
    }

    /// The whole buffer, as vulkano wants it.
    pub(super) fn whole(&self) -> Subbuffer<[u8]> {
        Subbuffer::new(Arc::clone(&self.inner))
    }

    /// A view of some of its bytes by texels of [`TEXEL`] bytes; both figures are multiples of it.
    pub(super) fn texels(&self, offset: u64, len: u64) -> Result<Arc<BufferView>, Fault> {
        self.check(offset, len)?;
        let info = BufferViewCreateInfo { format: Format::R32G32B32A32_UINT, ..Default::default() };
        BufferView::new(self.whole().slice(offset..offset + len), info)
            .map_err(Fault::checked("vkCreateBufferView"))
    }

    /// Some of its bytes, for the bookkeeping of hazards.
    pub(super) fn span(&self, begin: u64, len: u64) -> Span {
        Span { buffer: self.inner.handle().as_raw(), begin, end: begin + len }
    }

    /// True if it was made on this very device object.
    pub(super) fn is_of(&self, device: &Device) -> bool {
        Arc::ptr_eq(self.inner.device(), device.logical())
    }

    /// Refuses a range that is not inside.
    pub(super) fn check(&self, offset: u64, len: u64) -> Result<(), Fault> {
        if offset.checked_add(len).is_some_and(|end| end <= self.size()) {
            return Ok(());
        }
        let text = format!("{len} bytes from {offset} of a buffer of {}", self.size());
        Err(Fault::Invalid { call: "a range", text })
    }

    fn mapped(&self, offset: u64, len: u64) -> Result<std::ptr::NonNull<[u8]>, Fault> {
        self.check(offset, len)?;
        let mapped = self.memory.mapping_state().and_then(|state| state.slice(offset..offset + len));
        mapped
            .ok_or_else(|| Fault::Invalid { call: "a mapping", text: "the buffer is not mapped".to_owned() })
    }

    /// Writes mapped bytes.
    ///
    /// # Safety
    /// The device does not use these bytes before the next submission.
    pub(super) unsafe fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        let target = self.mapped(offset, bytes.len() as u64)?;
        // SAFETY: the mapping lives as long as `self.memory`, is coherent, is as long as `bytes`, and nobody else uses
        // it, as the caller promises; `bytes` is host memory of the program and overlaps no mapping.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target.as_ptr().cast::<u8>(), bytes.len()) };
        Ok(())
    }

    /// Appends mapped bytes to `into`.
    ///
    /// # Safety
    /// The device has finished writing these bytes, and a barrier has made them visible to the host.
    pub(super) unsafe fn read(&self, offset: u64, len: u64, into: &mut Vec<u8>) -> Result<(), Fault> {
        let source = self.mapped(offset, len)?;
        // SAFETY: as for `write`; nobody writes these bytes while the slice lives.
        into.extend_from_slice(unsafe { source.as_ref() });
        Ok(())
    }
}
