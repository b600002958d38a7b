//! From nothing to a physical device: the loader, the instance, and which device it is.

use std::sync::Arc;

use modelbench_contract::{BackendError, DeviceKind, ErrorKind};
use vulkano::device::QueueFlags;
use vulkano::device::physical::{DriverId, PhysicalDevice, PhysicalDeviceType};
use vulkano::instance::debug::ValidationFeatureEnable;
use vulkano::instance::{Instance, InstanceCreateFlags, InstanceCreateInfo, InstanceExtensions};
use vulkano::{LoadingError, Version, VulkanLibrary};

use super::Fault;
use super::messages::Messages;
use crate::Options;

/// Hexadecimal digits of a UUID.
const UUID_DIGITS: usize = 32;
const LAYER: &str = "VK_LAYER_KHRONOS_validation";
const NO_LOADER: &str = "vulkan: no loader (install libvulkan1)";
const NO_DEVICE: &str = "vulkan: no device with Vulkan 1.2 (install your GPU's driver, or mesa-vulkan-drivers for the software device)";

fn unavailable(text: impl Into<String>) -> Fault {
    BackendError::new(ErrorKind::Unavailable, text).into()
}

/// Opens the loader and makes an instance, with the validation layer if it is asked for.
///
/// # Errors
/// `Unavailable` without a loader, a driver or the layer.
pub(super) fn instance(options: &Options, messages: &Messages) -> Result<Arc<Instance>, Fault> {
    let library = VulkanLibrary::new().map_err(|error| match error {
        LoadingError::LibraryLoadFailure(why) => unavailable(format!("{NO_LOADER}: {why}")),
        LoadingError::VulkanError(error) => unavailable(format!("vulkan: the loader failed: {error}")),
    })?;
    let mut info = InstanceCreateInfo {
        // Drivers that are not fully conformant (MoltenVK) are listed too; the identity says what they are.
        flags: InstanceCreateFlags::ENUMERATE_PORTABILITY,
        application_name: Some("modelbench".to_owned()),
        max_api_version: Some(Version::V1_2),
        enabled_extensions: InstanceExtensions {
            khr_portability_enumeration: library.supported_extensions().khr_portability_enumeration,
            ..InstanceExtensions::empty()
        },
        ..InstanceCreateInfo::default()
    };
    if !info.enabled_extensions.khr_portability_enumeration {
        info.flags = InstanceCreateFlags::empty();
    }
    if options.validation {
        let mut layers = library.layer_properties().map_err(Fault::vulkan("listing the layers"))?;
        if !layers.any(|layer| layer.name() == LAYER) {
            return Err(unavailable(format!(
                "vulkan: validation is asked for, but there is no {LAYER} (install vulkan-validationlayers)"
            )));
        }
        info.enabled_layers = vec![LAYER.to_owned()];
        info.enabled_extensions.ext_debug_utils = true;
        info.enabled_extensions.ext_validation_features = true;
        info.enabled_validation_features = vec![ValidationFeatureEnable::SynchronizationValidation];
        // For what is said while the instance is made; [`Messages::listen`] does the rest.
        info.debug_utils_messengers = vec![messages.messenger()];
    }
    // Without a driver the loader's own error text speaks of API versions.
    Instance::new(library, info).map_err(|error| match Fault::checked("vkCreateInstance")(error) {
        Fault::Vulkan { error, .. } => unavailable(format!("{NO_DEVICE}: {error}")),
        other => other,
    })
}

/// What kind of thing a device is, by its type and, for software, by who drives it.
pub(super) fn kind(device: &PhysicalDevice) -> DeviceKind {
    let properties = device.properties();
    if matches!(properties.driver_id, Some(DriverId::MesaLLVMpipe | DriverId::GoogleSwiftshader)) {
        return DeviceKind::Software;
    }
    match properties.device_type {
        PhysicalDeviceType::DiscreteGpu => DeviceKind::Discrete,
        PhysicalDeviceType::IntegratedGpu => DeviceKind::Integrated,
        PhysicalDeviceType::Cpu => DeviceKind::Software,
        _ => DeviceKind::Virtual,
    }
}

/// UUID in hexadecimal.
pub(super) fn uuid(device: &PhysicalDevice) -> String {
    let bytes = device.properties().device_uuid.unwrap_or_default();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A device by index, UUID or whole name; without a wish the first of the best kind.
///
/// # Errors
/// `Unavailable` if there is none, or none that is meant; the message lists those that are there.
pub(super) fn device(instance: &Arc<Instance>, wish: Option<&str>) -> Result<Arc<PhysicalDevice>, Fault> {
    let listed: Vec<Arc<PhysicalDevice>> =
        instance.enumerate_physical_devices().map_err(Fault::vulkan("vkEnumeratePhysicalDevices"))?.collect();
    let usable = |device: &Arc<PhysicalDevice>| {
        device.api_version() >= Version::V1_2
            && device.queue_family_properties().iter().any(|f| f.queue_flags.contains(QueueFlags::COMPUTE))
    };
    let Some(wish) = wish else {
        let rank = |kind| match kind {
            DeviceKind::Discrete => 0,
            DeviceKind::Integrated => 1,
            DeviceKind::Virtual => 2,
            DeviceKind::Cpu | DeviceKind::Software => 3,
        };
        let best = listed.into_iter().filter(usable).min_by_key(|device| rank(kind(device)));
        return best.ok_or_else(|| unavailable(NO_DEVICE));
    };
    let names = listed.iter().map(|device| (device.properties().device_name.clone(), uuid(device)));
    let names: Vec<(String, String)> = names.collect();
    match matching(wish, &names).as_slice() {
        [one] => match listed.get(*one).filter(|device| usable(device)) {
            Some(device) => Ok(Arc::clone(device)),
            None => {
                Err(unavailable(format!("vulkan: device {wish:?} has no Vulkan 1.2 with a compute queue")))
            }
        },
        [] => Err(unavailable(format!("vulkan: no device {wish:?}; there are: {}", list(&names)))),
        _ => Err(unavailable(format!(
            "vulkan: several devices are {wish:?}; choose by index or UUID among: {}",
            list(&names)
        ))),
    }
}

fn list(names: &[(String, String)]) -> String {
    let one = |(index, (name, uuid)): (usize, &(String, String))| format!("{index}: {name} ({uuid})");
    let all: Vec<String> = names.iter().enumerate().map(one).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

/// Indices of the devices that `wish` means. An index is a decimal number of fewer digits than a UUID has; names and
/// UUIDs match whole, in any case.
fn matching(wish: &str, names: &[(String, String)]) -> Vec<usize> {
    if wish.len() < UUID_DIGITS && !wish.is_empty() && wish.bytes().all(|byte| byte.is_ascii_digit()) {
        let index = wish.parse().ok().filter(|&index: &usize| index < names.len());
        return index.into_iter().collect();
    }
    let plain = wish.replace('-', "");
    let meant = |(name, uuid): &(String, String)| {
        name.eq_ignore_ascii_case(wish) || uuid.eq_ignore_ascii_case(&plain)
    };
    (0..names.len()).filter(|&i| names.get(i).is_some_and(meant)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_meant_by_index_uuid_or_whole_name() {
        let id = |byte: &str| byte.repeat(16);
        let names = [("GPU A", id("0a")), ("GPU A", id("0b")), ("llvmpipe", id("0c"))]
            .map(|(name, uuid)| (name.to_owned(), uuid));
        assert_eq!(matching("1", &names), [1]);
        assert!(matching("3", &names).is_empty());
        assert_eq!(matching("gpu a", &names), [0, 1]);
        assert!(matching("GPU", &names).is_empty());
        assert_eq!(matching(&id("0C"), &names), [2]);
        assert_eq!(matching("0b0b0b0b-0b0b-0b0b-0b0b-0b0b0b0b0b0b", &names), [1]);
        assert!(list(&names).contains("2: llvmpipe (0c0c"));
        for garbage in ["", " ", "-", "+1", "-1", "1 ", "0x1", "99999999999999999999999"] {
            assert!(matching(garbage, &names).is_empty(), "{garbage:?}");
        }
        // A UUID of decimal digits is no index, however small the number.
        let low = format!("{:032}", 1);
        let names = [("a".to_owned(), id("00")), ("b".to_owned(), id("0b")), ("c".to_owned(), low.clone())];
        assert_eq!(matching(&low, &names), [2]);
        assert_eq!(matching(&id("00"), &names), [0]);
    }
}
