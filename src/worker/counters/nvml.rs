//! NVIDIA's management library: how busy a device was for the worker's processes, and how much of its memory they hold.
//!
//! `libnvidia-ml` is loaded at run time, into this process; where it is missing, or there is no driver, the answer says
//! so. This code was checked against the interface of the library and has not run on a device yet.

/// A sample of how busy a device was for one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    /// End of the sampled period, microseconds of the system clock.
    pub(super) at_us: u64,
    /// Share of that period in which the compute engines were busy, in percent.
    pub(super) sm_percent: u32,
}

/// What the library says about the worker on one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeviceReading {
    /// Name and unique id: `NVIDIA H200 GPU-6f1c…`.
    pub(super) device: String,
    /// Device memory of the worker's compute processes; `None` if the driver knows none of them.
    pub(super) bytes: Option<u64>,
    /// Buffered samples of the worker's processes.
    pub(super) samples: Vec<Sample>,
    /// What the library would not tell.
    pub(super) unavailable: Vec<String>,
}

/// What the library says about the worker on all devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reading {
    /// Moment of the reading, microseconds of the system clock.
    pub(super) at_us: u64,
    /// Device by device.
    pub(super) devices: Vec<DeviceReading>,
    /// Why there is nothing, or less than there could be.
    pub(super) unavailable: Vec<String>,
}

/// Whether NVIDIA's management library can be used here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NvmlState {
    /// It can.
    Available {
        /// Version of the driver.
        driver: String,
        /// Devices, by name and unique id.
        devices: Vec<String>,
    },
    /// It cannot.
    Unavailable {
        /// Why not.
        reason: String,
    },
}

/// Looks for the library, its driver and its devices.
pub fn nvml_state() -> NvmlState {
    let state = Library::load().and_then(|library| library.state());
    state.unwrap_or_else(|reason| NvmlState::Unavailable { reason })
}

/// The library, or the reason why there is none.
#[derive(Debug)]
pub(super) struct Nvml {
    library: Result<Library, String>,
}

impl Nvml {
    /// Loads the library, once for many readings.
    pub(super) fn load() -> Nvml {
        Nvml { library: Library::load() }
    }

    /// Reads the figures of some processes.
    pub(super) fn read(&self, pids: &[i32]) -> Reading {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let at_us = now.map_or(0, |now| u64::try_from(now.as_micros()).unwrap_or(u64::MAX));
        let pids: Vec<u32> = pids.iter().filter_map(|&pid| u32::try_from(pid).ok()).collect();
        let (devices, unavailable) = match self.library.as_ref().map(|library| library.read(&pids)) {
            Ok((devices, unavailable)) => (devices, unavailable),
            Err(reason) => (Vec::new(), vec![reason.clone()]),
        };
        Reading { at_us, devices, unavailable }
    }
}

#[cfg(target_os = "linux")]
use linked::Library;

#[cfg(target_os = "linux")]
mod linked {
    use nvml_wrapper::enums::device::UsedGpuMemory;
    use nvml_wrapper::error::NvmlError;
    use nvml_wrapper::{Device, Nvml};

    use super::{DeviceReading, NvmlState, Sample};

    #[derive(Debug)]
    pub(super) struct Library(Nvml);

    impl Library {
        pub(super) fn load() -> Result<Library, String> {
            Nvml::init().map(Library).map_err(|error| error.to_string())
        }

        pub(super) fn state(&self) -> Result<NvmlState, String> {
            let driver = self.0.sys_driver_version().map_err(|error| format!("driver version: {error}"))?;
            let count = self.0.device_count().map_err(|error| format!("number of devices: {error}"))?;
            let label = |index| match self.0.device_by_index(index) {
                Ok(device) => label(&device, index),
                Err(error) => format!("device {index}: {error}"),
            };
            Ok(NvmlState::Available { driver, devices: (0..count).map(label).collect() })
        }

        pub(super) fn read(&self, pids: &[u32]) -> (Vec<DeviceReading>, Vec<String>) {
            let count = match self.0.device_count() {
                Ok(count) => count,
                Err(error) => return (Vec::new(), vec![format!("number of devices: {error}")]),
            };
            let (mut devices, mut unavailable) = (Vec::new(), Vec::new());
            for index in 0..count {
                match self.0.device_by_index(index) {
                    Ok(device) => devices.push(read(&device, index, pids)),
                    Err(error) => unavailable.push(format!("device {index}: {error}")),
                }
            }
            (devices, unavailable)
        }
    }

    fn label(device: &Device<'_>, index: u32) -> String {
        let name = device.name().unwrap_or_else(|_| format!("device {index}"));
        match device.uuid() {
            Ok(uuid) => format!("{name} {uuid}"),
            // Two devices of one name must not fall into one figure.
            Err(_) => format!("{name} (index {index})"),
        }
    }

    fn read(device: &Device<'_>, index: u32, pids: &[u32]) -> DeviceReading {
        let mut unavailable = Vec::new();
        let bytes = match device.running_compute_processes() {
            Ok(processes) => {
                let used =
                    processes.iter().filter(|process| pids.contains(&process.pid)).filter_map(|process| {
                        match process.used_gpu_memory {
                            UsedGpuMemory::Used(bytes) => Some(bytes),
                            UsedGpuMemory::Unavailable => None,
                        }
                    });
                used.reduce(u64::saturating_add)
            }
            Err(error) => {
                unavailable.push(format!("memory of processes: {error}"));
                None
            }
        };
        let samples = match device.process_utilization_stats(None) {
            Ok(samples) => samples
                .iter()
                .filter(|sample| pids.contains(&sample.pid))
                .map(|sample| Sample { at_us: sample.timestamp, sm_percent: sample.sm_util })
                .collect(),
            // The library's way of saying that no process was busy lately.
            Err(NvmlError::NotFound) => Vec::new(),
            Err(error) => {
                unavailable.push(format!("utilisation of processes: {error}"));
                Vec::new()
            }
        };
        DeviceReading { device: label(device, index), bytes, samples, unavailable }
    }
}

/// Where the library is not looked for.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
enum Library {}

#[cfg(not(target_os = "linux"))]
impl Library {
    fn load() -> Result<Library, String> {
        Err("it is looked for on Linux only".to_owned())
    }

    fn state(&self) -> Result<NvmlState, String> {
        match *self {}
    }

    fn read(&self, _pids: &[u32]) -> (Vec<DeviceReading>, Vec<String>) {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_library_there_are_no_figures_and_a_reason() {
        let none = Nvml { library: Err("libnvidia-ml.so.1: no such file".to_owned()) };
        let reading = none.read(&[1, -1]);
        assert_eq!(reading.devices, []);
        assert_eq!(reading.unavailable, ["libnvidia-ml.so.1: no such file"]);
    }

    /// True with and without a device: what the state says must be what readings do.
    #[test]
    fn readings_agree_with_the_state() {
        let reading = Nvml::load().read(&[i32::MAX]);
        match nvml_state() {
            NvmlState::Available { driver, devices } => {
                assert!(!driver.is_empty());
                assert_eq!(reading.devices.len() + reading.unavailable.len(), devices.len());
                assert!(
                    reading.devices.iter().all(|device| device.bytes.is_none() && device.samples.is_empty())
                );
            }
            NvmlState::Unavailable { reason } => {
                assert!(!reason.is_empty());
                assert_eq!(reading.devices, []);
                assert_eq!(reading.unavailable, [reason]);
            }
        }
    }
}
