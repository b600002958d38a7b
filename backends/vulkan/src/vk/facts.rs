//! What a device says about itself.

use modelbench_contract::DeviceKind;
use vulkano::device::physical::PhysicalDevice;
use vulkano::memory::MemoryHeapFlags;

use super::choose;

/// Version of vulkano; a test compares it with the lock file.
const VULKANO: &str = "0.35.2";

/// Facts for the identity, and limits that shape dispatches.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    /// What kind of thing it is.
    pub(crate) kind: DeviceKind,
    /// The device's own name.
    pub(crate) name: String,
    /// Name, vendor, device and UUID.
    pub(crate) hardware: String,
    /// Driver, its version, its conformance version and the API version.
    pub(crate) driver: String,
    /// vulkano, memory heaps, subgroup size, float controls and extensions.
    pub(crate) runtime: String,
    /// Bytes of the largest heap on the device.
    pub(crate) heap: u64,
    /// Lanes of a subgroup.
    pub(crate) subgroup: u32,
    /// Largest number of bytes that a kernel may see of one buffer.
    pub(crate) largest_binding: u64,
    /// Largest number of texels that a kernel may see of one buffer.
    pub(crate) texels: u64,
    /// Largest number of bytes in one allocation.
    pub(crate) largest_allocation: u64,
    /// Most groups in the first two dimensions of a dispatch.
    pub(crate) groups: [u32; 2],
}

impl Facts {
    pub(super) fn new(device: &PhysicalDevice, extensions: &str) -> Facts {
        let p = device.properties();
        let text =
            |text: &Option<String>| text.clone().filter(|t| !t.is_empty()).unwrap_or("unknown".to_owned());
        let conformance = p
            .conformance_version
            .map_or("unknown".to_owned(), |v| format!("{}.{}.{}.{}", v.major, v.minor, v.subminor, v.patch));
        let mib = |bytes: u64| bytes >> 20;
        let heaps = device.memory_properties().memory_heaps.iter().map(|heap| {
            let local = heap.flags.intersects(MemoryHeapFlags::DEVICE_LOCAL);
            format!("{} MiB{}", mib(heap.size), if local { " on the device" } else { "" })
        });
        let heaps: Vec<String> = heaps.collect();
        let can = |flag: Option<bool>| if flag == Some(true) { "yes" } else { "no" };
        let subgroup = p.subgroup_size.unwrap_or(1).max(1);
        Facts {
            kind: choose::kind(device),
            name: p.device_name.clone(),
            hardware: format!(
                "{} (vendor {:#06x}, device {:#06x}, uuid {})",
                p.device_name,
                p.vendor_id,
                p.device_id,
                choose::uuid(device)
            ),
            driver: format!(
                "{} {} (conformance {conformance}, Vulkan {})",
                text(&p.driver_name),
                text(&p.driver_info),
                p.api_version
            ),
            runtime: format!(
                "vulkano {VULKANO}; heaps: {}; subgroups of {subgroup}; float controls: denormals preserved on request: \
                 {}, rounding to nearest even on request: {}, signed zero, infinity and NaN preserved on request: {}; \
                 extensions: {extensions}",
                heaps.join(", "),
                can(p.shader_denorm_preserve_float32),
                can(p.shader_rounding_mode_rte_float32),
                can(p.shader_signed_zero_inf_nan_preserve_float32),
            ),
            heap: device
                .memory_properties()
                .memory_heaps
                .iter()
                .filter(|heap| heap.flags.intersects(MemoryHeapFlags::DEVICE_LOCAL))
                .map(|heap| heap.size)
                .max()
                .unwrap_or(0),
            subgroup,
            largest_binding: u64::from(p.max_storage_buffer_range),
            texels: u64::from(p.max_texel_buffer_elements),
            largest_allocation: p.max_memory_allocation_size.unwrap_or(u64::MAX),
            groups: [p.max_compute_work_group_count[0], p.max_compute_work_group_count[1]],
        }
    }

    /// Private tier string.
    pub(crate) fn tier(&self) -> String {
        let kind = match self.kind {
            DeviceKind::Discrete => "discrete",
            DeviceKind::Integrated => "integrated",
            DeviceKind::Virtual => "virtual",
            DeviceKind::Software | DeviceKind::Cpu => "software",
        };
        format!("{kind}:{}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_locked_one() {
        let lock = include_str!("../../../../Cargo.lock");
        let expected = format!("name = \"vulkano\"\nversion = \"{VULKANO}\"");
        assert!(lock.contains(&expected), "Cargo.lock has another vulkano than {VULKANO}");
    }
}
