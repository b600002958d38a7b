//! The backend under test, as the tests of `backends/tests` know it.

use modelbench_vulkan::{Options, Vulkan, VulkanKv, VulkanTensor};

pub(crate) type Subject = Vulkan;
pub(crate) type Tensor = VulkanTensor;
pub(crate) type Kv = VulkanKv;

/// Whether f32 tensors lie on the host, where they can be read in place.
pub(crate) const ON_HOST: bool = false;

pub(crate) fn subject() -> Subject {
    Vulkan::new(&Options::from_environment().unwrap()).unwrap()
}
