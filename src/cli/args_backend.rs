//! Flags that say which backend is under test, on which device and within which limits.

use std::time::Duration;

use clap::Args;

use super::exit;
use super::failure::Failure;
use crate::bundled::{self, Bundled, MOCK_PREFIX};
use crate::runner::Candidate;

/// Options of the commands that start a backend.
#[derive(Debug, Args)]
pub(super) struct BackendArgs {
    /// Backend under test, by its exact name (see: modelbench list backends)
    #[arg(long, value_name = "NAME")]
    pub backend: Option<String>,
    /// Device of the vulkan backend: an index, a UUID or the device's whole name [default: the best kind there is]
    #[arg(long, value_name = "DEVICE", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub device: Option<String>,
    /// Run the vulkan backend under the Khronos validation layer; every message of it is an error
    #[arg(long)]
    pub vulkan_validation: bool,
    /// Longest time in seconds that one request to the worker may take
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
    /// Most memory in MiB that the worker may use
    #[arg(long, value_name = "MIB", default_value_t = 8192, value_parser = clap::value_parser!(u64).range(64..))]
    pub memory_limit: u64,
    /// Allow the misbehaving self-test backends, mock:<behaviour>
    #[arg(long, hide = true)]
    pub self_test: bool,
}

impl BackendArgs {
    /// The backend that the flags mean.
    ///
    /// # Errors
    /// If no backend has that name, or one is told of a device that cannot choose.
    pub fn candidate(&self) -> Result<Candidate, Failure> {
        let backend = named(self.backend.as_deref(), self.self_test)?;
        Ok(Candidate {
            environment: self.device_choice(&backend)?,
            backend,
            self_test: self.self_test,
            request_deadline: Duration::from_secs(self.timeout),
            memory_limit_bytes: self.memory_limit << 20,
        })
    }

    /// What the worker is told about the device, as variables of its environment.
    fn device_choice(&self, backend: &str) -> Result<Vec<(&'static str, String)>, Failure> {
        let mut told = Vec::new();
        if let Some(device) = &self.device {
            told.push((modelbench_vulkan::DEVICE_VARIABLE, device.clone()));
        }
        if self.vulkan_validation {
            told.push((modelbench_vulkan::VALIDATION_VARIABLE, "1".to_owned()));
        }
        if !told.is_empty() && backend != Bundled::Vulkan.name() {
            let text =
                format!("backend {backend:?} has one device; -device and -vulkan-validation are for vulkan");
            return Err(Failure::message(exit::USAGE, text));
        }
        Ok(told)
    }
}

/// The backend's exact name. There is no default, no prefix match and no fallback.
fn named(backend: Option<&str>, self_test: bool) -> Result<String, Failure> {
    let known = || bundled::nearest("").join(", ");
    let Some(name) = backend else {
        let text = format!("no backend named; give one with -backend NAME (known here: {})", known());
        return Err(Failure::message(exit::USAGE, text));
    };
    let mock = name.strip_prefix(MOCK_PREFIX).is_some_and(|behaviour| {
        self_test && modelbench_zoo::Mock::BEHAVIOURS.iter().any(|known| known.name == behaviour)
    });
    if Bundled::find(name).is_some() || mock {
        return Ok(name.to_owned());
    }
    let nearest = bundled::nearest(name);
    let hint = nearest.first().map_or(String::new(), |near| format!("\n       did you mean {near}?"));
    let text = format!("no backend {name:?}; known here: {}{hint}", nearest.join(", "));
    Err(Failure::message(exit::USAGE, text))
}
