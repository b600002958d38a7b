//! The logical device: its queue, the one layout that every kernel has, and its memory figures.

use std::sync::Arc;

use ash::vk;
use modelbench_contract::{BackendError, Capacity, DeviceKind, ErrorKind};
use vulkano::VulkanObject;
use vulkano::command_buffer::allocator::StandardCommandBufferAllocator;
use vulkano::descriptor_set::allocator::StandardDescriptorSetAllocator;
use vulkano::descriptor_set::layout::{
    DescriptorSetLayout, DescriptorSetLayoutBinding, DescriptorSetLayoutCreateInfo, DescriptorType,
};
use vulkano::device::physical::PhysicalDevice;
use vulkano::device::{
    Device as Logical, DeviceCreateInfo, DeviceExtensions, Queue, QueueCreateInfo, QueueFlags,
};
use vulkano::instance::debug::DebugUtilsMessenger;
use vulkano::memory::MemoryHeapFlags;
use vulkano::pipeline::PipelineLayout;
use vulkano::pipeline::layout::{PipelineLayoutCreateInfo, PushConstantRange};
use vulkano::shader::ShaderStages;

use super::messages::Messages;
use super::{Facts, Fault, PUSH_WORDS, choose};
use crate::Options;

/// Storage buffers that a kernel can have.
pub(super) const BINDINGS: usize = 4;
/// Buffers that it can read by texel, behind them.
const TEXEL_BINDINGS: usize = 2;

/// A device that is ready for work.
#[derive(Debug)]
pub(crate) struct Device {
    logical: Arc<Logical>,
    pub(super) queue: Arc<Queue>,
    pub(super) set_layout: Arc<DescriptorSetLayout>,
    pub(super) layout: Arc<PipelineLayout>,
    pub(super) sets: Arc<StandardDescriptorSetAllocator>,
    pub(super) commands: Arc<StandardCommandBufferAllocator>,
    pub(super) messages: Messages,
    _listening: Option<DebugUtilsMessenger>,
    /// Length of a tick of the device's clock in nanoseconds, if kernels are to be timed and the queue has a clock.
    pub(super) tick: Option<f32>,
    facts: Facts,
}

impl Device {
    /// Opens the loader, the instance and the device that `options` mean.
    ///
    /// # Errors
    /// `Unavailable` if any of them is not there; the message says what to install.
    pub(crate) fn open(options: &Options) -> Result<Device, Fault> {
        let messages = Messages::default();
        let instance = choose::instance(options, &messages)?;
        let listening = if options.validation { Some(messages.listen(&instance)?) } else { None };
        let physical = choose::device(&instance, options.device.as_deref())?;
        let families = physical.queue_family_properties().iter().enumerate();
        // A family without graphics is the one that a driver runs beside the display.
        let family = families
            .filter(|(_, family)| family.queue_flags.contains(QueueFlags::COMPUTE))
            .min_by_key(|(_, family)| family.queue_flags.contains(QueueFlags::GRAPHICS))
            .map(|(index, _)| index as u32);
        let no_queue =
            || BackendError::new(ErrorKind::Unavailable, "vulkan: the device has no compute queue");
        let supported = physical.supported_extensions();
        let extensions = DeviceExtensions {
            ext_memory_budget: supported.ext_memory_budget,
            khr_portability_subset: supported.khr_portability_subset,
            ..DeviceExtensions::empty()
        };
        let used: Vec<&str> = [
            ("VK_EXT_memory_budget", extensions.ext_memory_budget),
            ("VK_KHR_portability_subset", extensions.khr_portability_subset),
        ]
        .into_iter()
        .filter_map(|(name, used)| used.then_some(name))
        .collect();
        let used = if used.is_empty() { "none".to_owned() } else { used.join(" ") };
        let clock = families_clock(&physical, family);
        let facts = Facts::new(&physical, &used);
        let info = DeviceCreateInfo {
            queue_create_infos: vec![QueueCreateInfo {
                queue_family_index: family.ok_or_else(no_queue)?,
                ..QueueCreateInfo::default()
            }],
            enabled_extensions: extensions,
            ..DeviceCreateInfo::default()
        };
        let (logical, mut queues) = Logical::new(physical, info).map_err(Fault::checked("vkCreateDevice"))?;
        let queue = queues.next().ok_or_else(no_queue)?;
        let set_layout = set_layout(&logical)?;
        let info = PipelineLayoutCreateInfo {
            set_layouts: vec![Arc::clone(&set_layout)],
            push_constant_ranges: vec![PushConstantRange {
                stages: ShaderStages::COMPUTE,
                offset: 0,
                size: (PUSH_WORDS * size_of::<u32>()) as u32,
            }],
            ..PipelineLayoutCreateInfo::default()
        };
        let layout = PipelineLayout::new(Arc::clone(&logical), info)
            .map_err(Fault::checked("vkCreatePipelineLayout"))?;
        Ok(Device {
            sets: Arc::new(StandardDescriptorSetAllocator::new(Arc::clone(&logical), Default::default())),
            commands: Arc::new(StandardCommandBufferAllocator::new(Arc::clone(&logical), Default::default())),
            logical,
            queue,
            set_layout,
            layout,
            messages,
            _listening: listening,
            tick: clock.filter(|_| options.timing),
            facts,
        })
    }

    pub(super) fn logical(&self) -> &Arc<Logical> {
        &self.logical
    }

    /// What the device says about itself.
    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Memory of the largest heap on the device; free memory only where the driver tells it, and not on a software device:
    /// its budget is the memory of the whole machine, in which others come and go.
    pub(crate) fn capacity(&self) -> Capacity {
        let physical = self.logical.physical_device();
        let heaps = &physical.memory_properties().memory_heaps;
        let largest = heaps
            .iter()
            .enumerate()
            .filter(|(_, heap)| heap.flags.intersects(MemoryHeapFlags::DEVICE_LOCAL))
            .max_by_key(|(_, heap)| heap.size);
        let Some((index, heap)) = largest else { return Capacity { total: self.facts.heap, free: None } };
        let tells = self.logical.enabled_extensions().ext_memory_budget;
        let free = (tells && self.facts.kind != DeviceKind::Software).then(|| {
            let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
            let mut properties = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
            let fns = physical.instance().fns();
            // SAFETY: the handle is valid, both structures are initialised and chained, and the extension is supported.
            unsafe {
                (fns.v1_1.get_physical_device_memory_properties2)(physical.handle(), &mut properties);
            }
            let of = |figures: &[u64]| figures.get(index).copied().unwrap_or(0);
            of(&budget.heap_budget).saturating_sub(of(&budget.heap_usage)).min(heap.size)
        });
        Capacity { total: heap.size, free }
    }
}

/// Nanoseconds in a tick, if the queue family has a clock.
fn families_clock(physical: &PhysicalDevice, family: Option<u32>) -> Option<f32> {
    let family = physical.queue_family_properties().get(family? as usize)?;
    family.timestamp_valid_bits.map(|_| physical.properties().timestamp_period)
}

/// [`BINDINGS`] storage buffers and [`TEXEL_BINDINGS`] texel buffers, for every kernel alike.
fn set_layout(device: &Arc<Logical>) -> Result<Arc<DescriptorSetLayout>, Fault> {
    let binding = |number: usize| {
        let storage = number < BINDINGS;
        let kind = if storage { DescriptorType::StorageBuffer } else { DescriptorType::UniformTexelBuffer };
        DescriptorSetLayoutBinding {
            stages: ShaderStages::COMPUTE,
            ..DescriptorSetLayoutBinding::descriptor_type(kind)
        }
    };
    let numbers = 0..BINDINGS + TEXEL_BINDINGS;
    let bindings = numbers.map(|number| (number as u32, binding(number))).collect();
    let info = DescriptorSetLayoutCreateInfo { bindings, ..DescriptorSetLayoutCreateInfo::default() };
    DescriptorSetLayout::new(Arc::clone(device), info).map_err(Fault::checked("vkCreateDescriptorSetLayout"))
}
