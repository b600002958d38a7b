//! Faults that the crate's unit tests inject.

use vulkano::VulkanError;

use super::{Fault, Stream};
use crate::hazard::Hazard;

impl Stream {
    /// Leaves out the barrier before the next hazard of this kind.
    pub(crate) fn leave_out(&mut self, hazard: Hazard) {
        self.hazards.left_out = Some(hazard);
    }

    /// Whether a barrier is still to be left out.
    pub(crate) fn leaves_out(&self) -> bool {
        self.hazards.left_out.is_some()
    }

    /// What a wait does when the device is gone.
    pub(crate) fn lose(&mut self) -> Fault {
        self.failed(Fault::vulkan("vkWaitForFences")(VulkanError::DeviceLost))
    }
}
