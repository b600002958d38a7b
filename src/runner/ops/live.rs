//! A plan whose operands are on the device, so that a check can call the op again on the same handles.

use modelbench_contract::{Backend, BackendError, ErrorKind, Result};

use super::super::kv_rows::kv_store;
use super::plan::{Call, OpPlan};

/// The operands of a plan on the device.
#[derive(Debug)]
pub struct Live<T> {
    call: Call,
    tensors: Vec<T>,
    watch: bool,
    stored: Option<[Vec<f32>; 2]>,
}

/// What a call left behind.
#[derive(Debug)]
pub enum Started<T> {
    /// A new tensor.
    Tensor(T),
    /// The first operand holds the result.
    InPlace,
    /// An index.
    Index(usize),
}

impl<T> Live<T> {
    /// Uploads the operands.
    ///
    /// # Errors
    /// The backend's.
    pub fn upload<B: Backend<Tensor = T>>(backend: &mut B, plan: &OpPlan) -> Result<Live<T>> {
        let mut tensors = Vec::with_capacity(plan.operands.len());
        for operand in &plan.operands {
            tensors.push(backend.upload(&operand.tensor, operand.tensor.dtype())?);
        }
        Ok(Live { call: plan.call, tensors, watch: false, stored: None })
    }

    /// From now on the KV store of an attention call is read back after the call, see [`Live::stored`].
    pub fn watch_store(&mut self) {
        self.watch = true;
    }

    /// Keys and values that the store of the last attention call held after it, if they were watched.
    pub fn stored(&self) -> Option<&[Vec<f32>; 2]> {
        self.stored.as_ref()
    }

    /// The operands, in the order of the plan.
    pub fn tensors(&self) -> &[T] {
        &self.tensors
    }

    /// The operands, to change them in place.
    pub fn tensors_mut(&mut self) -> &mut [T] {
        &mut self.tensors
    }

    /// Calls the op. Waits only for an index, and for a store that is watched.
    ///
    /// # Errors
    /// The backend's.
    pub fn start<B: Backend<Tensor = T>>(&mut self, backend: &mut B) -> Result<Started<T>> {
        let result = match (self.call, self.tensors.as_mut_slice()) {
            (Call::Matmul, [w, x]) => backend.matmul(w, x)?,
            (Call::BatchedMatmul, [w, x]) => backend.batched_matmul(w, x)?,
            (Call::RmsNorm { eps }, [x, weight]) => backend.rms_norm(x, weight, eps)?,
            (Call::Rope(spec), [x]) => backend.rope(x, spec)?,
            (Call::Swiglu, [gate, up]) => backend.swiglu(gate, up)?,
            (Call::AddInPlace, [dst, src]) => {
                backend.add_in_place(dst, src)?;
                return Ok(Started::InPlace);
            }
            (Call::AddBias, [dst, bias]) => {
                backend.add_bias(dst, bias)?;
                return Ok(Started::InPlace);
            }
            (Call::Argmax, [logits]) => return Ok(Started::Index(backend.argmax(logits)?)),
            (Call::Attention { kv: config, spec }, [q, k_raw, k_rope, v]) => {
                let mut kv = kv_store(backend)?.new_kv(&config)?;
                kv_store(backend)?.append(&mut kv, 0, k_raw, k_rope, v, 0)?;
                let result = backend.attention(q, &kv, 0, spec)?;
                let store = kv_store(backend)?;
                if self.watch {
                    self.stored = optional(store.keys(&kv, 0).and_then(|k| Ok([k, store.values(&kv, 0)?])))?;
                }
                store.free_kv(kv)?;
                result
            }
            (call, tensors) => {
                let text = format!("{} planned with {} operands", call.op(), tensors.len());
                return Err(BackendError::internal(text).in_op(call.op()));
            }
        };
        Ok(Started::Tensor(result))
    }

    /// Values of a result, without freeing it; an index as a value.
    ///
    /// # Errors
    /// The backend's.
    pub fn peek<B: Backend<Tensor = T>>(&self, backend: &mut B, result: &Started<T>) -> Result<Vec<f32>> {
        match result {
            Started::Tensor(result) => backend.read(result),
            Started::Index(index) => Ok(vec![*index as f32]),
            Started::InPlace => match self.tensors.first() {
                Some(dst) => backend.read(dst),
                None => Err(BackendError::internal("an op in place without operands").in_op(self.call.op())),
            },
        }
    }

    /// Values of a result, which is freed.
    ///
    /// # Errors
    /// The backend's.
    pub fn finish<B: Backend<Tensor = T>>(&self, backend: &mut B, result: Started<T>) -> Result<Vec<f32>> {
        let values = self.peek(backend, &result)?;
        if let Started::Tensor(result) = result {
            backend.free(result)?;
        }
        Ok(values)
    }

    /// Calls the op and reads its result.
    ///
    /// # Errors
    /// The backend's.
    pub fn run<B: Backend<Tensor = T>>(&mut self, backend: &mut B) -> Result<Vec<f32>> {
        let result = self.start(backend)?;
        self.finish(backend, result)
    }

    /// Frees the operands.
    ///
    /// # Errors
    /// The backend's.
    pub fn free<B: Backend<Tensor = T>>(self, backend: &mut B) -> Result<()> {
        self.tensors.into_iter().try_for_each(|tensor| backend.free(tensor))
    }
}

/// `None` for a read-back that the backend lacks: rung 0 names that gap, and attention can be judged without it.
fn optional<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Err(error) if error.kind == ErrorKind::Unimplemented => Ok(None),
        answer => answer.map(Some),
    }
}

impl OpPlan {
    /// Uploads the operands, calls the op, reads the result and frees everything.
    ///
    /// # Errors
    /// The backend's.
    pub fn once<B: Backend>(&self, backend: &mut B) -> Result<Vec<f32>> {
        let mut live = Live::upload(backend, self)?;
        let values = live.run(backend)?;
        live.free(backend)?;
        Ok(values)
    }

    /// True if the first operand holds the result.
    pub fn in_place(&self) -> bool {
        matches!(self.call, Call::AddInPlace | Call::AddBias)
    }
}
