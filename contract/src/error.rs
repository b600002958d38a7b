//! The one error type that crosses the seam between a backend and its caller.

use serde::{Deserialize, Serialize};

use crate::Op;

/// What kind of failure a backend reports. The kind decides what the caller does; the message is for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    /// The backend lacks this op, dtype or extension. A normal answer, and a cheap one.
    Unimplemented,
    /// The call itself is wrong: shape, dtype, handle, size.
    InvalidArgument,
    /// Memory or another finite resource ran out; the backend is still usable.
    ResourceExhausted,
    /// Not now: the device is busy or the worker is gone; trying again may help.
    Unavailable,
    /// The device is lost; only a fresh worker helps.
    DeviceLost,
    /// Anything else; a defect of the backend.
    Internal,
}

impl ErrorKind {
    /// The name used on the wire and in records.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorKind::Unimplemented => "unimplemented",
            ErrorKind::InvalidArgument => "invalid-argument",
            ErrorKind::ResourceExhausted => "resource-exhausted",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::DeviceLost => "device-lost",
            ErrorKind::Internal => "internal",
        }
    }
}

/// A failed call: its kind, the op that caused it where known, and a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{}{}: {message}", .op.map(|op| format!("{op}: ")).unwrap_or_default(), .kind.as_str())]
pub struct BackendError {
    /// What kind of failure.
    pub kind: ErrorKind,
    /// The op that caused it. On a pipelined transport this may be an earlier call than the one that returned it.
    pub op: Option<Op>,
    /// What was wrong and what was expected.
    pub message: String,
}

impl BackendError {
    /// An error of the given kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        BackendError { kind, op: None, message: message.into() }
    }

    /// The op is missing.
    pub fn unimplemented(op: Op) -> Self {
        BackendError {
            kind: ErrorKind::Unimplemented,
            op: Some(op),
            message: format!("this backend has no {op}"),
        }
    }

    /// The call is wrong.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument, message)
    }

    /// A defect of the backend.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// The same error, charged to `op` unless it already names one.
    pub fn in_op(mut self, op: Op) -> Self {
        self.op.get_or_insert(op);
        self
    }
}
