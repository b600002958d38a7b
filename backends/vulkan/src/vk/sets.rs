//! Descriptor sets, remembered: a loop that calls the same ops on the same memory binds the same sets.

use std::collections::HashMap;
use std::sync::Arc;

use vulkano::descriptor_set::allocator::DescriptorSetAllocator;
use vulkano::descriptor_set::{DescriptorBufferInfo, DescriptorSet, WriteDescriptorSet};

use super::device::BINDINGS;
use super::{Device, Fault, Kernel, Part, TEXEL};
use crate::hazard::Span;

/// Remembered sets; beyond, all are forgotten at the next wait.
const MOST: usize = 8192;

/// The bytes that a set shows, and which of its parts it shows by texel.
type Key = ([Span; BINDINGS], &'static [usize]);

/// All sets by what they show. They keep their buffers alive.
#[derive(Debug, Default)]
pub(super) struct Sets {
    known: HashMap<Key, Arc<DescriptorSet>>,
}

impl Sets {
    /// The descriptor set of these parts; bindings that the kernel does not have repeat the first.
    pub(super) fn get(
        &mut self,
        device: &Device,
        kernel: Kernel,
        parts: &[&Part],
    ) -> Result<Arc<DescriptorSet>, Fault> {
        let Some(first) = parts.first().filter(|_| parts.len() <= BINDINGS) else {
            let text = format!("{} bindings for {kernel:?}", parts.len());
            return Err(Fault::Invalid { call: "a dispatch", text });
        };
        let all: [&Part; BINDINGS] = std::array::from_fn(|i| *parts.get(i).unwrap_or(first));
        let key = (all.map(Part::span), kernel.texels());
        if let Some(set) = self.known.get(&key) {
            return Ok(Arc::clone(set));
        }
        let storage = all.iter().zip(0..).map(|(part, binding)| {
            let range = part.offset..part.offset + part.len;
            let info = DescriptorBufferInfo { buffer: part.buffer.whole(), range };
            WriteDescriptorSet::buffer_with_range(binding, info)
        });
        let mut writes: Vec<WriteDescriptorSet> = storage.collect();
        for (&number, binding) in kernel.texels().iter().zip(BINDINGS as u32..) {
            let part = all.get(number).unwrap_or(&all[0]);
            // The pool gives out more than whole texels; what lies behind the part is never used.
            let view = part.buffer.texels(part.offset, part.len.next_multiple_of(TEXEL))?;
            writes.push(WriteDescriptorSet::buffer_view(binding, view));
        }
        let allocator: Arc<dyn DescriptorSetAllocator> = Arc::clone(&device.sets) as _;
        let set = DescriptorSet::new(allocator, Arc::clone(&device.set_layout), writes, [])
            .map_err(Fault::checked("a descriptor set"))?;
        self.known.insert(key, Arc::clone(&set));
        Ok(set)
    }

    /// Forgets everything if it is too much; right after a wait, when no command uses a set.
    pub(super) fn trim(&mut self) {
        if self.known.len() > MOST {
            self.clear();
        }
    }

    /// Forgets everything; right after a wait.
    pub(super) fn clear(&mut self) {
        self.known.clear();
    }
}
