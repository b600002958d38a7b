//! What the contract's own checks leave to the backend.

use modelbench_contract::wire::check;
use modelbench_contract::{AttentionSpec, BackendError, Op, Result, RopeSpec, TensorDesc};

use crate::MockKv;

fn refuse<T>(op: Op, message: String) -> Result<T> {
    Err(BackendError::invalid(message).in_op(op))
}

pub(crate) fn product(op: Op, w: &TensorDesc, x: &TensorDesc) -> Result<TensorDesc> {
    if op == Op::Matmul { check::matmul(w, x) } else { check::batched_matmul(w, x) }
}

pub(crate) fn eps(op: Op, eps: f32) -> Result<()> {
    if eps.is_finite() && eps >= 0.0 {
        return Ok(());
    }
    refuse(op, format!("eps is {eps}; expected a finite number of at least 0"))
}

pub(crate) fn rope(x: &TensorDesc, spec: &RopeSpec) -> Result<()> {
    check::rope(x, spec)?;
    if spec.pos.checked_add(x.rows()).is_none() {
        return refuse(Op::Rope, format!("position {} is too large for {} rows", spec.pos, x.rows()));
    }
    Ok(())
}

pub(crate) fn attention(q: &TensorDesc, kv: &MockKv, layer: usize, spec: &AttentionSpec) -> Result<()> {
    check::attention(q, &kv.config, layer, spec)?;
    let held = kv.held(layer);
    if held < q.rows() {
        let rows = q.rows();
        let text = format!("{rows} query rows meet {held} stored positions; append their own first");
        return refuse(Op::Attention, text);
    }
    Ok(())
}

pub(crate) fn layer(op: Op, layer: usize, layers: usize) -> Result<()> {
    if layer >= layers {
        return refuse(op, format!("layer {layer} of a store with {layers}; expected one below that"));
    }
    Ok(())
}
