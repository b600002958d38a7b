//! Behaviours that leave the work to others.

use modelbench_contract::{BackendError, Op};

use crate::twist::{Call, Twist};

/// Every op is cpu-ref's, bit for bit, while class `Approx` is claimed.
#[derive(Debug)]
pub(crate) struct ReturnsReferenceBits;

impl Twist for ReturnsReferenceBits {
    fn hands_to_reference(&self) -> bool {
        true
    }
}

/// Residency works; every math op and the KV store are missing.
#[derive(Debug)]
pub(crate) struct DelegatesEverything;

impl Twist for DelegatesEverything {
    fn before(&mut self, call: &Call<'_>) -> Result<(), BackendError> {
        match call.op {
            Op::Upload | Op::Host | Op::Read | Op::Free | Op::Sync => Ok(()),
            op => Err(BackendError::unimplemented(op)),
        }
    }
    fn has_kv(&self) -> bool {
        false
    }
}

/// `matmul` and `batched_matmul` are missing.
#[derive(Debug)]
pub(crate) struct DelegatesMatmul;

impl Twist for DelegatesMatmul {
    fn before(&mut self, call: &Call<'_>) -> Result<(), BackendError> {
        match call.op {
            Op::Matmul | Op::BatchedMatmul => Err(BackendError::unimplemented(call.op)),
            _ => Ok(()),
        }
    }
}

/// One op that is not hot is missing: `swiglu`.
#[derive(Debug)]
pub(crate) struct DelegatesSwiglu;

impl Twist for DelegatesSwiglu {
    fn before(&mut self, call: &Call<'_>) -> Result<(), BackendError> {
        if call.op == Op::Swiglu { Err(BackendError::unimplemented(call.op)) } else { Ok(()) }
    }
}
