//! What goes wrong inside this crate, and which kind of error the caller sees.

use modelbench_contract::{BackendError, ErrorKind};

/// A refused call, or a failure of candle itself.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The call was refused before candle saw it; kind and message are final.
    #[error(transparent)]
    Refused(#[from] BackendError),
    /// candle failed.
    #[error("candle failed: {0}")]
    Candle(#[from] candle_core::Error),
}

/// Result of the functions behind the seam.
pub(crate) type Result<T> = std::result::Result<T, Fault>;

impl From<Fault> for BackendError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Refused(error) => error,
            Fault::Candle(error) => {
                let text = error.to_string();
                BackendError::new(kind_of(&text), format!("candle failed: {text}"))
            }
        }
    }
}

/// candle reports CUDA failures as text only; the driver's error names in it are stable.
fn kind_of(text: &str) -> ErrorKind {
    let lower = text.to_lowercase();
    let any = |names: &[&str]| names.iter().any(|name| lower.contains(name));
    if any(&["out_of_memory", "out of memory", "alloc_failed"]) {
        ErrorKind::ResourceExhausted
    } else if any(&["illegal_address", "launch_failed", "ecc_uncorrectable", "context_is_destroyed"]) {
        ErrorKind::DeviceLost
    } else {
        ErrorKind::Internal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_candle_keep_their_text_and_get_a_kind() {
        let kind = |text: &str| BackendError::from(Fault::Candle(candle_core::Error::Msg(text.into()))).kind;
        assert_eq!(
            kind("DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")"),
            ErrorKind::ResourceExhausted
        );
        assert_eq!(kind("DriverError(CUDA_ERROR_ILLEGAL_ADDRESS, ..)"), ErrorKind::DeviceLost);
        let error = BackendError::from(Fault::Candle(candle_core::Error::Msg("odd".into())));
        assert_eq!(error.kind, ErrorKind::Internal);
        assert!(error.message.contains("odd"));
    }
}
