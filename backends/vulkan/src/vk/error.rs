//! What goes wrong in Vulkan, and which kind of error the caller sees.

use modelbench_contract::{BackendError, ErrorKind};
use vulkano::{Validated, VulkanError};

/// A refused call, or a failure of Vulkan.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The call was refused before the device saw it; kind and message are final.
    #[error(transparent)]
    Refused(#[from] BackendError),
    /// A call of the API failed.
    #[error("{call} failed: {error}")]
    Vulkan {
        /// What was tried.
        call: &'static str,
        /// The API's answer.
        error: VulkanError,
    },
    /// vulkano refused a call as invalid: a defect of this crate.
    #[error("{call} was refused as invalid: {text}")]
    Invalid {
        /// What was tried.
        call: &'static str,
        /// Why.
        text: String,
    },
    /// The validation layer has something to say: a defect of this crate, or of the driver.
    #[error("the validation layer reports {count} messages, the first of them: {first}")]
    Validation {
        /// How many.
        count: usize,
        /// The first one, whole.
        first: String,
    },
}

impl Fault {
    /// Wraps an error of a call by what was tried.
    pub(super) fn vulkan(call: &'static str) -> impl Fn(VulkanError) -> Fault {
        move |error| Fault::Vulkan { call, error }
    }

    /// The same for calls that vulkano checks first.
    pub(super) fn checked(call: &'static str) -> impl Fn(Validated<VulkanError>) -> Fault {
        move |error| match error {
            Validated::Error(error) => Fault::Vulkan { call, error },
            Validated::ValidationError(why) => Fault::Invalid { call, text: why.to_string() },
        }
    }

    /// True if the device is gone for good.
    pub(crate) fn lost(&self) -> bool {
        self.kind() == ErrorKind::DeviceLost
    }

    /// True if memory ran out.
    pub(crate) fn exhausted(&self) -> bool {
        self.kind() == ErrorKind::ResourceExhausted
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Fault::Refused(error) => error.kind,
            Fault::Vulkan { error, .. } => kind_of(*error),
            Fault::Invalid { .. } | Fault::Validation { .. } => ErrorKind::Internal,
        }
    }
}

impl From<Fault> for BackendError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Refused(error) => error,
            other => BackendError::new(other.kind(), other.to_string()),
        }
    }
}

fn kind_of(error: VulkanError) -> ErrorKind {
    match error {
        VulkanError::OutOfHostMemory
        | VulkanError::OutOfDeviceMemory
        | VulkanError::OutOfPoolMemory
        | VulkanError::FragmentedPool
        | VulkanError::Fragmentation
        | VulkanError::TooManyObjects => ErrorKind::ResourceExhausted,
        VulkanError::DeviceLost => ErrorKind::DeviceLost,
        VulkanError::InitializationFailed
        | VulkanError::IncompatibleDriver
        | VulkanError::LayerNotPresent
        | VulkanError::ExtensionNotPresent
        | VulkanError::FeatureNotPresent => ErrorKind::Unavailable,
        _ => ErrorKind::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_keep_their_text_and_get_a_kind() {
        let of = |error| BackendError::from(Fault::vulkan("a submission")(error));
        assert_eq!(of(VulkanError::OutOfDeviceMemory).kind, ErrorKind::ResourceExhausted);
        assert_eq!(of(VulkanError::OutOfHostMemory).kind, ErrorKind::ResourceExhausted);
        assert_eq!(of(VulkanError::DeviceLost).kind, ErrorKind::DeviceLost);
        assert_eq!(of(VulkanError::IncompatibleDriver).kind, ErrorKind::Unavailable);
        assert_eq!(of(VulkanError::Unknown).kind, ErrorKind::Internal);
        assert!(of(VulkanError::DeviceLost).message.starts_with("a submission failed"));
        let told = Fault::Validation { count: 2, first: "READ_AFTER_WRITE".to_owned() };
        assert_eq!(told.kind(), ErrorKind::Internal);
        assert!(told.to_string().contains("READ_AFTER_WRITE"));
    }
}
