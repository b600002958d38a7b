//! Which device candle runs on, and what it says about it.

use candle_core::Device;
use modelbench_contract::{BackendError, DeviceInfo, DeviceKind, ErrorKind};

/// Version of candle-core; a test compares it with the lock file.
pub(crate) const VERSION: &str = "0.11.1";

/// The first CUDA device with the feature `cuda`, otherwise the CPU.
///
/// # Errors
/// `Unavailable` if there is no CUDA device.
pub(crate) fn open() -> Result<Device, BackendError> {
    if !cfg!(feature = "cuda") {
        return Ok(Device::Cpu);
    }
    Device::new_cuda(0).map_err(|error| {
        BackendError::new(
            ErrorKind::Unavailable,
            format!(
                "no CUDA device 0: {error}; expected a CUDA device and its driver, or a build without `cuda`"
            ),
        )
    })
}

/// What the device's kernels dispatch on.
pub(crate) fn tier(device: &Device) -> &'static str {
    if device.is_cpu() { cpu_tier() } else { "cuda" }
}

/// The products run in the `gemm` crate, which takes its AVX2 kernels where the CPU has FMA and has no AVX-512 ones in
/// candle's build; everything else is candle's, on AVX2 alike.
fn cpu_tier() -> &'static str {
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    let fma = std::arch::is_x86_feature_detected!("fma");
    #[cfg(not(any(target_arch = "x86", target_arch = "x86_64")))]
    let fma = false;
    if fma && candle_core::utils::with_avx() {
        "avx2"
    } else if candle_core::utils::with_neon() {
        "neon"
    } else {
        "scalar"
    }
}

/// Kind, hardware, driver and runtime.
pub(crate) fn describe(device: &Device) -> DeviceInfo {
    let runtime = format!("candle-core {VERSION}");
    if device.is_cpu() {
        return DeviceInfo { kind: DeviceKind::Cpu, hardware: cpu_name(), driver: String::new(), runtime };
    }
    let driver = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    let driver = driver.lines().next().unwrap_or("unknown").trim().to_owned();
    DeviceInfo { kind: DeviceKind::Discrete, hardware: gpu_name(), driver, runtime }
}

/// The value of the first line `key : value`.
fn field(text: &str, key: &str) -> Option<String> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim() == key)
        .map(|(_, value)| value.trim().to_owned())
        .filter(|value| !value.is_empty())
}

fn cpu_name() -> String {
    std::fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|text| field(&text, "model name"))
        .unwrap_or_else(|| format!("{} CPU", std::env::consts::ARCH))
}

/// Names every GPU that the driver lists: candle does not say which of several is its device 0.
fn gpu_name() -> String {
    let Ok(gpus) = std::fs::read_dir("/proc/driver/nvidia/gpus") else { return "CUDA device 0".to_owned() };
    let mut names: Vec<String> = gpus
        .filter_map(|gpu| std::fs::read_to_string(gpu.ok()?.path().join("information")).ok())
        .filter_map(|text| field(&text, "Model"))
        .collect();
    names.sort_unstable();
    match names.as_slice() {
        [] => "CUDA device 0".to_owned(),
        [one] => one.clone(),
        several => format!("CUDA device 0 of {}", several.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_locked_one() {
        let lock = include_str!("../../../Cargo.lock");
        let expected = format!("name = \"candle-core\"\nversion = \"{VERSION}\"");
        assert!(lock.contains(&expected), "Cargo.lock has another candle-core than {VERSION}");
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "model\t\t: 1\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: Other\nempty :\n";
        assert_eq!(field(text, "model name").as_deref(), Some("Some CPU @ 2 GHz"));
        assert_eq!(field(text, "empty"), None);
        assert_eq!(field(text, "name"), None);
    }
}
