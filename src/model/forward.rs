//! The forward pass, written once against the contract: cpu-ref and every worker run this same sequence of ops.

use modelbench_contract::{
    AttentionSpec, Backend, BackendError, DType, HostTensor, KvConfig, KvStore, Op, RopeSpec,
};

use super::config::ModelConfig;
use super::resident::{Layer, Resident};
use super::scratch::{Scratch, Slot};
use super::weights::{Model, ModelError};

/// A forward pass that did not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// The backend's own error, unchanged, so that a missing op is still seen as one.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The model could not be read.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// More positions than the session or the model can hold.
    #[error(
        "positions {from}..{end}: expected at most {limit}, {what}; use fewer tokens or a larger session"
    )]
    TooLong {
        /// Positions held.
        from: usize,
        /// Positions held afterwards.
        end: usize,
        /// The limit.
        limit: usize,
        /// Whose limit.
        what: &'static str,
    },
    /// Nothing to do.
    #[error("prefill of no tokens: expected at least one")]
    NoTokens,
    /// An earlier call failed in the middle, so the layers of the store may disagree.
    #[error("this session failed before; free it and start a new one")]
    Failed,
    /// The backend returned another number of values.
    #[error("{what}: expected {expected} values, found {found}")]
    Output {
        /// Which result.
        what: &'static str,
        /// Values expected.
        expected: usize,
        /// Values found.
        found: usize,
    },
}

/// What a call reads back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capture {
    /// The logits of every position of the call.
    pub logits: bool,
    /// The hidden states of every position: the embedding, then after each layer.
    pub hidden: bool,
}

impl Capture {
    /// Fills the KV store only; the output matrix is not applied.
    pub const NOTHING: Capture = Capture { logits: false, hidden: false };
    /// Logits only.
    pub const LOGITS: Capture = Capture { logits: true, hidden: false };
    /// Logits and hidden states.
    pub const ALL: Capture = Capture { logits: true, hidden: true };
}

/// What was read back.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ForwardOutput {
    /// Logits of each position, `[vocab]`; empty unless asked for.
    pub logits: Vec<Vec<f32>>,
    /// `[positions, hidden]` row-major: the embedding output, then one after each layer; empty unless asked for.
    pub hidden: Vec<Vec<f32>>,
}

/// One sequence: a KV store on the backend and the number of positions in it.
///
/// Dropping it without [`Session::free`] leaves the store with the backend.
pub struct Session<'m, B: Backend> {
    model: &'m Model,
    weights: &'m Resident<B>,
    kv: B::Kv,
    len: usize,
    capacity: usize,
    failed: bool,
}

fn store<B: Backend>(
    backend: &mut B,
    op: Op,
) -> Result<&mut dyn KvStore<Tensor = B::Tensor, Kv = B::Kv>, BackendError> {
    backend.kv_store().ok_or_else(|| BackendError::unimplemented(op))
}

impl<'m, B: Backend> Session<'m, B> {
    /// An empty sequence of at most `capacity` positions.
    ///
    /// # Errors
    /// [`ForwardError::TooLong`] if the model was not made for that many, the backend's error unchanged;
    /// `Unimplemented` of `new_kv` without a KV store.
    pub fn new(
        backend: &mut B,
        model: &'m Model,
        weights: &'m Resident<B>,
        capacity: usize,
    ) -> Result<Self, ForwardError> {
        let config = model.config();
        let limit = config.max_positions;
        if capacity > limit {
            return Err(ForwardError::TooLong { from: 0, end: capacity, limit, what: "the model's context" });
        }
        let kv = store(backend, Op::NewKv)?.new_kv(&KvConfig {
            layers: config.layers,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            capacity,
            theta: config.theta as f32,
        })?;
        Ok(Session { model, weights, kv, len: 0, capacity, failed: false })
    }

    /// Positions held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True before the first token.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The store, for reading it back.
    pub fn kv(&self) -> &B::Kv {
        &self.kv
    }

    /// Runs `tokens` as one batch (`[P, n]` ops) behind the positions already held; long prompts may come in pieces.
    ///
    /// # Errors
    /// See [`ForwardError`]. After an error from the backend the session only answers [`ForwardError::Failed`].
    pub fn prefill(
        &mut self,
        backend: &mut B,
        tokens: &[usize],
        capture: Capture,
    ) -> Result<ForwardOutput, ForwardError> {
        let (output, _) = self.run(backend, tokens, true, capture, false)?;
        Ok(output)
    }

    /// Runs one token with the single-row ops (`[n]`).
    ///
    /// # Errors
    /// As [`Session::prefill`].
    pub fn step(
        &mut self,
        backend: &mut B,
        token: usize,
        capture: Capture,
    ) -> Result<ForwardOutput, ForwardError> {
        let (output, _) = self.run(backend, &[token], false, capture, false)?;
        Ok(output)
    }

    /// Runs one token with the single-row ops and lets the backend choose the next one by `argmax`.
    ///
    /// # Errors
    /// As [`Session::prefill`].
    pub fn step_greedy(&mut self, backend: &mut B, token: usize) -> Result<usize, ForwardError> {
        let (_, next) = self.run(backend, &[token], false, Capture::NOTHING, true)?;
        next.ok_or(ForwardError::Output { what: "argmax", expected: 1, found: 0 })
    }

    /// Drops `n` positions from `from`; returns how many were dropped. See [`KvStore::evict`].
    ///
    /// # Errors
    /// The backend's error unchanged.
    pub fn evict(&mut self, backend: &mut B, from: i64, n: i64) -> Result<usize, ForwardError> {
        let dropped = store(backend, Op::KvEvict)?.evict(&mut self.kv, from, n)?;
        let left = self.len.checked_sub(dropped);
        self.len = left.ok_or(ForwardError::Output { what: "evict", expected: self.len, found: dropped })?;
        Ok(dropped)
    }

    /// A session that goes on from here independently.
    ///
    /// # Errors
    /// The backend's error unchanged.
    pub fn fork(&self, backend: &mut B) -> Result<Self, ForwardError> {
        let kv = store(backend, Op::KvClone)?.clone_kv(&self.kv)?;
        Ok(Session { kv, ..*self })
    }

    /// Releases the store.
    ///
    /// # Errors
    /// The backend's error unchanged.
    pub fn free(self, backend: &mut B) -> Result<(), BackendError> {
        store(backend, Op::Free)?.free_kv(self.kv)
    }

    /// Checks the call, runs it, and frees its temporaries whatever happened.
    fn run(
        &mut self,
        backend: &mut B,
        tokens: &[usize],
        batch: bool,
        capture: Capture,
        greedy: bool,
    ) -> Result<(ForwardOutput, Option<usize>), ForwardError> {
        let (from, end) = (self.len, self.len.saturating_add(tokens.len()));
        if self.failed {
            return Err(ForwardError::Failed);
        }
        if tokens.is_empty() {
            return Err(ForwardError::NoTokens);
        }
        if end > self.capacity {
            let what = "the capacity of this session";
            return Err(ForwardError::TooLong { from, end, limit: self.capacity, what });
        }
        let mut rows = Vec::new();
        for &token in tokens {
            rows.extend(self.model.embed(token)?);
        }
        let hidden = self.model.config().hidden;
        let shape = if batch { vec![tokens.len(), hidden] } else { vec![hidden] };
        let embedded = HostTensor::from_f32(&shape, &rows)?;
        let mut pass = Pass {
            backend: &mut *backend,
            config: self.model.config(),
            weights: self.weights,
            kv: &mut self.kv,
            scratch: Scratch::new(),
            batch,
            rows: tokens.len(),
            pos: from,
        };
        let result = pass.run(&embedded, capture, greedy);
        let mut scratch = pass.scratch;
        let freed = scratch.free_all(backend);
        self.failed = result.is_err() || freed.is_err();
        let output = result?;
        freed?;
        self.len = end;
        Ok(output)
    }
}

/// One call: `rows` tokens from position `pos`.
struct Pass<'a, B: Backend> {
    backend: &'a mut B,
    config: &'a ModelConfig,
    weights: &'a Resident<B>,
    kv: &'a mut B::Kv,
    scratch: Scratch<B>,
    batch: bool,
    rows: usize,
    pos: usize,
}

impl<B: Backend> Pass<'_, B> {
    fn run(
        &mut self,
        embedded: &HostTensor,
        capture: Capture,
        greedy: bool,
    ) -> Result<(ForwardOutput, Option<usize>), ForwardError> {
        let mut output = ForwardOutput::default();
        let x = self.backend.upload(embedded, DType::F32)?;
        let x = self.scratch.put(x);
        let mark = self.scratch.mark();
        let weights = self.weights;
        if capture.hidden {
            output.hidden.push(self.read(x, "hidden state", self.config.hidden)?);
        }
        for (index, layer) in weights.layers.iter().enumerate() {
            self.attention(x, index, layer)?;
            self.feed_forward(x, layer)?;
            self.scratch.free_from(self.backend, mark)?;
            if capture.hidden {
                output.hidden.push(self.read(x, "hidden state", self.config.hidden)?);
            }
        }
        let mut next = None;
        if capture.logits || greedy {
            let normed = self.norm(x, &weights.norm)?;
            let logits = self.product(&weights.output, normed)?;
            if capture.logits {
                let values = self.read(logits, "logits", self.config.vocab)?;
                output.logits = values.chunks_exact(self.config.vocab).map(<[f32]>::to_vec).collect();
            }
            if greedy {
                next = Some(self.backend.argmax(self.scratch.get(logits))?);
            }
        }
        Ok((output, next))
    }

    fn attention(&mut self, x: Slot, index: usize, layer: &Layer<B::Tensor>) -> Result<(), ForwardError> {
        let config = self.config;
        let h = self.norm(x, &layer.attn_norm)?;
        let q = self.product(&layer.q, h)?;
        let k = self.product(&layer.k, h)?;
        let v = self.product(&layer.v, h)?;
        if let Some(biases) = &layer.bias {
            for (slot, bias) in [q, k, v].into_iter().zip(biases) {
                self.backend.add_bias(self.scratch.get_mut(slot), bias)?;
            }
        }
        let q = self.rope(q, config.heads)?;
        let rotated = self.rope(k, config.kv_heads)?;
        store(self.backend, Op::KvAppend)?.append(
            self.kv,
            index,
            self.scratch.get(k),
            self.scratch.get(rotated),
            self.scratch.get(v),
            self.pos,
        )?;
        let spec = AttentionSpec::causal(config.group(), config.head_dim);
        let attended = self.backend.attention(self.scratch.get(q), self.kv, index, spec)?;
        let attended = self.scratch.put(attended);
        let projected = self.product(&layer.output, attended)?;
        Ok(self.scratch.add(self.backend, x, projected)?)
    }

    fn feed_forward(&mut self, x: Slot, layer: &Layer<B::Tensor>) -> Result<(), ForwardError> {
        let h = self.norm(x, &layer.ffn_norm)?;
        let gate = self.product(&layer.gate, h)?;
        let up = self.product(&layer.up, h)?;
        let inner = self.backend.swiglu(self.scratch.get(gate), self.scratch.get(up))?;
        let inner = self.scratch.put(inner);
        let down = self.product(&layer.down, inner)?;
        Ok(self.scratch.add(self.backend, x, down)?)
    }

    fn norm(&mut self, x: Slot, weight: &B::Tensor) -> Result<Slot, ForwardError> {
        let normed = self.backend.rms_norm(self.scratch.get(x), weight, self.config.eps)?;
        Ok(self.scratch.put(normed))
    }

    fn product(&mut self, weight: &B::Tensor, x: Slot) -> Result<Slot, ForwardError> {
        let x = self.scratch.get(x);
        let y =
            if self.batch { self.backend.batched_matmul(weight, x) } else { self.backend.matmul(weight, x) };
        Ok(self.scratch.put(y?))
    }

    fn rope(&mut self, x: Slot, n_heads: usize) -> Result<Slot, ForwardError> {
        let theta = self.config.theta as f32;
        let spec = RopeSpec { pos: self.pos, n_heads, head_dim: self.config.head_dim, theta };
        let rotated = self.backend.rope(self.scratch.get(x), spec)?;
        Ok(self.scratch.put(rotated))
    }

    fn read(&mut self, x: Slot, what: &'static str, row: usize) -> Result<Vec<f32>, ForwardError> {
        let values = self.backend.read(self.scratch.get(x))?;
        let expected = self.rows * row;
        if values.len() != expected {
            return Err(ForwardError::Output { what, expected, found: values.len() });
        }
        Ok(values)
    }
}
