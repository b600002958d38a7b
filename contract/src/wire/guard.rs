//! Panics of a backend, turned into errors where the state around the call can still be put right.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::table::Fail;
use crate::BackendError;

/// Calls a backend; a panic becomes `Internal` "panicked: …".
///
/// The callers keep no half-changed state of their own: what they took out of the table they put back.
pub(super) fn guarded<R>(call: impl FnOnce() -> Result<R, Fail>) -> Result<R, Fail> {
    catch_unwind(AssertUnwindSafe(call))
        .unwrap_or_else(|panic| Err(BackendError::internal(panicked(panic.as_ref())).into()))
}

fn panicked(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    format!("panicked: {text}")
}
