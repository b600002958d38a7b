//! Where a behaviour may depart from the honest backend.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use modelbench_contract::{AttentionSpec, BackendError, Identity, Op, RopeSpec};

use crate::MockTensor;
use crate::tensor::Plain;

/// The scalar arguments of a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scalars {
    None,
    Eps(f32),
    Rope(RopeSpec),
    Attention(AttentionSpec),
}

/// A call of the contract, as a twist sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) op: Op,
    pub(crate) inputs: &'a [&'a MockTensor],
    pub(crate) scalars: Scalars,
}

impl<'a> Call<'a> {
    pub(crate) fn new(op: Op, inputs: &'a [&'a MockTensor]) -> Self {
        Call { op, inputs, scalars: Scalars::None }
    }

    pub(crate) fn with(mut self, scalars: Scalars) -> Self {
        self.scalars = scalars;
        self
    }
}

/// One way to misbehave. Every method has the honest default, so that a behaviour says only what it does wrong.
pub(crate) trait Twist {
    /// What the backend says about itself after `calls` calls.
    fn identity(&self, identity: &mut Identity, calls: u64) {
        let _ = (identity, calls);
    }
    /// Before an op begins; an error is its answer.
    fn before(&mut self, call: &Call<'_>) -> Result<(), BackendError> {
        let _ = call;
        Ok(())
    }
    /// A result in place of the honest one; asked after the arguments were checked.
    fn replace(&mut self, call: &Call<'_>) -> Option<Plain> {
        let _ = call;
        None
    }
    /// Spoils the result of an op.
    fn after(&mut self, call: &Call<'_>, result: &mut Plain) {
        let _ = (call, result);
    }
    /// Spoils what is seen of a tensor, by ops and by the host.
    fn seen(&self, tensor: &MockTensor, values: &mut Vec<f32>) {
        let _ = (tensor, values);
    }
    /// Spoils what `read` gives.
    fn read(&mut self, tensor: &MockTensor, values: &mut Vec<f32>) {
        let _ = (tensor, values);
    }
    /// An index in place of the honest one.
    fn argmax(&mut self, logits: &[f32]) -> Option<usize> {
        let _ = logits;
        None
    }
    /// Other attributes for attention than the ones asked for.
    fn attention(&self, spec: AttentionSpec) -> AttentionSpec {
        spec
    }
    /// True if an f32 upload as a narrower dtype really narrows.
    fn narrows(&self) -> bool {
        true
    }
    /// True if cpu-ref does the arithmetic.
    fn hands_to_reference(&self) -> bool {
        false
    }
    /// True if there is a KV store.
    fn has_kv(&self) -> bool {
        true
    }
    /// True if `evict` makes the keys of moved survivors anew.
    fn rotates_survivors(&self) -> bool {
        true
    }
    /// Set whenever the next frame to the host shall be garbage.
    fn garbling(&self) -> Option<Arc<AtomicBool>> {
        None
    }
}

/// No twist at all.
#[derive(Debug)]
pub(crate) struct Honest;

impl Twist for Honest {}
