//! The backends that are compiled into this binary.

use std::process::ExitCode;

use modelbench_candle::Candle;
use modelbench_contract::{Backend, BackendError};
use modelbench_reference::CpuRef;
use modelbench_vulkan::{Options, Vulkan};
use modelbench_zoo::Mock;

use crate::worker::Channel;

/// Prefix of the misbehaving backends that self-tests use.
pub const MOCK_PREFIX: &str = "mock:";

/// A backend in this binary, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bundled {
    /// candle-core's own tensors and kernels.
    Candle,
    /// The reference itself.
    CpuRef,
    /// Compute shaders on a Vulkan device.
    Vulkan,
}

impl Bundled {
    /// Every backend that users see, sorted by name.
    pub const LISTED: [Bundled; 3] = [Bundled::Candle, Bundled::CpuRef, Bundled::Vulkan];

    /// Its exact name.
    pub fn name(self) -> &'static str {
        match self {
            Bundled::Candle => "candle",
            Bundled::CpuRef => "cpu-ref",
            Bundled::Vulkan => "vulkan",
        }
    }

    /// What it is, in one line.
    pub fn about(self) -> &'static str {
        match self {
            Bundled::Candle if cfg!(feature = "cuda") => "candle-core on CUDA device 0",
            Bundled::Candle => "candle-core on this machine's CPU",
            Bundled::CpuRef => "the bundled scalar reference; never passes -require-non-reference",
            Bundled::Vulkan => "compute shaders on a Vulkan 1.2 device, chosen by -device",
        }
    }

    /// Serves it over a channel, in a worker process.
    pub fn serve(self, channel: Channel) -> ExitCode {
        match self {
            Bundled::Candle => channel.serve(Candle::new),
            Bundled::CpuRef => channel.serve(|| Ok(CpuRef::new())),
            Bundled::Vulkan => channel.serve(vulkan),
        }
    }

    /// The device that it would run on, without running anything.
    ///
    /// # Errors
    /// Why it cannot run here.
    pub fn probe(self) -> Result<String, BackendError> {
        let device = match self {
            Bundled::Candle => Candle::new()?.device(),
            Bundled::CpuRef => CpuRef::new().device(),
            Bundled::Vulkan => vulkan()?.device(),
        };
        Ok(format!("{} ({})", device.hardware, device.runtime))
    }

    /// The backend of that exact name: no prefix match, no default.
    pub fn find(name: &str) -> Option<Bundled> {
        Bundled::LISTED.into_iter().find(|backend| backend.name() == name)
    }
}

/// The Vulkan backend on the device that the environment means.
fn vulkan() -> Result<Vulkan, BackendError> {
    let options = Options::from_environment().map_err(|e| BackendError::invalid(e.to_string()))?;
    Vulkan::new(&options)
}

/// Known names close to a mistyped one, the nearest first.
pub fn nearest(name: &str) -> Vec<&'static str> {
    let mut known: Vec<(usize, &str)> =
        Bundled::LISTED.iter().map(|b| (strsim::damerau_levenshtein(name, b.name()), b.name())).collect();
    known.sort_unstable();
    known.into_iter().map(|(_, name)| name).collect()
}

/// Serves a self-test backend over a channel, in a worker process.
pub fn serve_mock(name: &str, channel: Channel) -> ExitCode {
    let make = || Mock::by_name(name).map_err(|e| BackendError::invalid(e.to_string()));
    channel.serve_over(make, Mock::transport)
}
