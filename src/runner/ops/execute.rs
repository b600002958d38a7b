//! Runs a plan on a backend, and watches that nothing else changes.

use std::borrow::Cow;

use modelbench_contract::{Backend, BackendError, DType, DeviceTensor, HostTensor, Op, Result};

use super::plan::{Call, OpPlan};
use crate::compare::first_difference;

/// What a run of a plan gave.
#[derive(Debug, Clone, Default)]
pub struct Executed {
    /// Shape that the result claims.
    pub shape: Vec<usize>,
    /// Its values; for argmax the index, as a value.
    pub values: Vec<f32>,
    /// Inputs or neighbours that changed, and repeats that differ, in words.
    pub violations: Vec<String>,
}

/// Values of the two tensors that are uploaded around the operands.
const GUARD: [f32; 5] = [1.5, -0.0, f32::MAX, f32::MIN_POSITIVE, -7.25];

/// Runs the plan twice on the same operands; a deterministic backend must give the same bits.
///
/// # Errors
/// The first error that the backend gives.
pub fn execute<B: Backend>(backend: &mut B, plan: &OpPlan, deterministic: bool) -> Result<Executed> {
    let guard = HostTensor::from_f32(&[GUARD.len()], &GUARD)?;
    let before = backend.upload(&guard, DType::F32)?;
    let mut tensors = Vec::with_capacity(plan.operands.len());
    for operand in &plan.operands {
        tensors.push(backend.upload(&operand.tensor, operand.tensor.dtype())?);
    }
    let after = backend.upload(&guard, DType::F32)?;
    // How a quantised tensor reads back may differ in the last bit between backends, so that it is compared with
    // itself; a float tensor must read back as what was sent.
    let mut expected = Vec::with_capacity(tensors.len());
    for (operand, tensor) in plan.operands.iter().zip(&tensors) {
        let quantised = operand.tensor.dtype().block_elements() > 1;
        expected.push(if quantised {
            Cow::Owned(backend.read(tensor)?)
        } else {
            Cow::Borrowed(&operand.values[..])
        });
    }

    let mut done = call(backend, plan.call, &mut tensors)?;
    let in_place = matches!(plan.call, Call::AddInPlace | Call::AddBias);
    if deterministic && !in_place {
        let again = call(backend, plan.call, &mut tensors)?;
        if let Some(i) = first_difference(&done.values, &again.values) {
            done.violations.push(format!("the same call on the same operands gave other bits at [{i}]"));
        }
    }
    for (i, (tensor, was)) in tensors.iter().zip(&expected).enumerate() {
        if in_place && i == 0 {
            continue;
        }
        let now = backend.read(tensor)?;
        if let Some(at) = first_difference(&now, was) {
            done.violations.push(changed(plan.operands[i].name, at, now.get(at), was.get(at)));
        }
    }
    for (name, tensor) in [("the tensor uploaded before", before), ("the tensor uploaded after", after)] {
        let now = backend.read(&tensor)?;
        if let Some(at) = first_difference(&now, &GUARD) {
            done.violations.push(changed(name, at, now.get(at), GUARD.get(at)));
        }
        backend.free(tensor)?;
    }
    for tensor in tensors {
        backend.free(tensor)?;
    }
    backend.sync()?;
    Ok(done)
}

fn changed(name: &str, at: usize, now: Option<&f32>, was: Option<&f32>) -> String {
    let show = |v: Option<&f32>| v.map_or("nothing".to_owned(), |v| format!("{v:e}"));
    format!("{name} changed at [{at}]: it was {}, now it is {}", show(was), show(now))
}

fn call<B: Backend>(backend: &mut B, call: Call, tensors: &mut [B::Tensor]) -> Result<Executed> {
    let result = match (call, tensors) {
        (Call::Matmul, [w, x]) => backend.matmul(w, x)?,
        (Call::BatchedMatmul, [w, x]) => backend.batched_matmul(w, x)?,
        (Call::RmsNorm { eps }, [x, weight]) => backend.rms_norm(x, weight, eps)?,
        (Call::Rope(spec), [x]) => backend.rope(x, spec)?,
        (Call::Swiglu, [gate, up]) => backend.swiglu(gate, up)?,
        (Call::AddInPlace, [dst, src]) => {
            backend.add_in_place(dst, src)?;
            return read(backend, dst);
        }
        (Call::AddBias, [dst, bias]) => {
            backend.add_bias(dst, bias)?;
            return read(backend, dst);
        }
        (Call::Argmax, [logits]) => {
            let index = backend.argmax(logits)?;
            return Ok(Executed { shape: vec![1], values: vec![index as f32], violations: Vec::new() });
        }
        (Call::Attention { kv: config, spec }, [q, k_raw, k_rope, v]) => {
            let missing = || BackendError::unimplemented(Op::NewKv);
            let mut kv = backend.kv_store().ok_or_else(missing)?.new_kv(&config)?;
            backend.kv_store().ok_or_else(missing)?.append(&mut kv, 0, k_raw, k_rope, v, 0)?;
            let result = backend.attention(q, &kv, 0, spec)?;
            let done = read(backend, &result)?;
            backend.free(result)?;
            backend.kv_store().ok_or_else(missing)?.free_kv(kv)?;
            return Ok(done);
        }
        (call, tensors) => {
            let text = format!("{} planned with {} operands", call.op(), tensors.len());
            return Err(BackendError::internal(text).in_op(call.op()));
        }
    };
    let done = read(backend, &result)?;
    backend.free(result)?;
    Ok(done)
}

fn read<B: Backend>(backend: &mut B, tensor: &B::Tensor) -> Result<Executed> {
    let values = backend.read(tensor)?;
    Ok(Executed { shape: tensor.desc().shape.clone(), values, violations: Vec::new() })
}
