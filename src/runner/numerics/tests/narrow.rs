//! A backend that computes in less than f32 where it is told to, around cpu-ref's tensors.

use std::borrow::Cow;

use half::{bf16, f16};
use modelbench_contract::{
    AttentionSpec, Backend, BackendError, Caps, Class, DType, DeviceInfo, DeviceTensor, HostTensor, KvStore,
    NumericProfile, Op, Result, RopeSpec,
};
use modelbench_reference::{CpuRef, RefKv, RefTensor};

type Round = fn(f32) -> f32;

pub(super) fn to_bf16(v: f32) -> f32 {
    bf16::from_f32(v).to_f32()
}

pub(super) fn to_f16(v: f32) -> f32 {
    f16::from_f32(v).to_f32()
}

/// To nearest even, 10 stored bits.
pub(super) fn to_tf32(v: f32) -> f32 {
    if !v.is_finite() {
        return v;
    }
    let bits = v.to_bits();
    f32::from_bits((bits + 0xfff + ((bits >> 13) & 1)) & !0x1fff)
}

/// Honest unless told otherwise.
pub(super) struct Narrow {
    pub(super) profile: NumericProfile,
    /// Operands of every op are rounded.
    pub(super) operand: Option<Round>,
    /// Running sums, and results of sums, are rounded.
    pub(super) sum: Option<Round>,
    /// Denormal operands and results become zero.
    pub(super) flush: bool,
    /// Products are summed in f64.
    pub(super) wide: bool,
    /// Activations of `q8_0` products go through 8-bit codes.
    pub(super) codes: bool,
    /// Results are half of what they should be.
    pub(super) garbage: bool,
    /// The narrow path of products begins at this many outputs.
    pub(super) from_outputs: usize,
    pub(super) inner: CpuRef,
}

impl Default for Narrow {
    fn default() -> Self {
        Narrow {
            profile: NumericProfile::F32,
            operand: None,
            sum: None,
            flush: false,
            wide: false,
            codes: false,
            garbage: false,
            from_outputs: 0,
            inner: CpuRef::new(),
        }
    }
}

impl Narrow {
    /// Ops whose sums this backend has loops of its own for.
    pub(super) fn narrows_sums_of(&self, op: Op) -> bool {
        matches!(
            op,
            Op::Matmul | Op::BatchedMatmul | Op::AddInPlace | Op::AddBias | Op::RmsNorm | Op::Attention
        )
    }

    fn flushed(&self, v: f32) -> f32 {
        if self.flush && v.is_subnormal() { 0.0 } else { v }
    }

    fn load(&self, v: f32) -> f32 {
        self.flushed(self.operand.map_or(v, |round| round(self.flushed(v))))
    }

    fn rounded(&self, v: f32) -> f32 {
        self.sum.map_or(v, |round| round(v))
    }

    fn done(&self, v: f32) -> f32 {
        let v = self.flushed(v);
        if self.garbage { v * 0.5 } else { v }
    }

    fn values(&mut self, t: &RefTensor) -> Result<Vec<f32>> {
        let values = self.inner.read(t)?;
        Ok(values.into_iter().map(|v| self.load(v)).collect())
    }

    fn tensor(&mut self, shape: &[usize], values: Vec<f32>) -> Result<RefTensor> {
        let values: Vec<f32> = values.into_iter().map(|v| self.done(v)).collect();
        self.inner.upload(&HostTensor::from_f32(shape, &values)?, DType::F32)
    }

    fn loaded(&mut self, t: &RefTensor) -> Result<RefTensor> {
        let (shape, values) = (t.desc().shape.clone(), self.values(t)?);
        self.inner.upload(&HostTensor::from_f32(&shape, &values)?, DType::F32)
    }

    fn finish(&mut self, t: &RefTensor) -> Result<RefTensor> {
        let values = self.inner.read(t)?;
        self.tensor(&t.desc().shape, values)
    }

    fn dot(&self, a: &[f32], b: &[f32]) -> f32 {
        if self.wide {
            return a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>() as f32;
        }
        a.iter().zip(b).fold(0.0, |sum, (a, b)| self.rounded(sum + self.flushed(a * b)))
    }

    fn product(&mut self, w: &RefTensor, x: &RefTensor) -> Result<RefTensor> {
        let out = w.desc().shape[0];
        let narrow = out >= self.from_outputs;
        let round = if narrow { self.operand } else { None };
        let operand = std::mem::replace(&mut self.operand, round);
        let (ws, mut xs) = (self.values(w)?, self.values(x)?);
        self.operand = operand;
        if self.codes && w.desc().dtype == DType::Q8_0 {
            xs = xs.chunks(32).flat_map(codes).collect();
        }
        let k = w.desc().row_len();
        let mut values = Vec::new();
        for row in xs.chunks_exact(k) {
            values.extend(ws.chunks_exact(k).map(|w| self.dot(w, row)));
        }
        let shape = match x.desc().shape.as_slice() {
            [_] => vec![out],
            shape => vec![shape[0], out],
        };
        self.tensor(&shape, values)
    }

    fn sums(&mut self, a: &RefTensor, b: &RefTensor) -> Result<RefTensor> {
        let (x, y) = (self.values(a)?, self.values(b)?);
        let values = x.iter().zip(y.iter().cycle()).map(|(x, y)| self.rounded(x + y)).collect();
        self.tensor(&a.desc().shape, values)
    }
}

fn codes(block: &[f32]) -> Vec<f32> {
    let d = block.iter().fold(0.0f32, |m, v| m.max(v.abs())) / 127.0;
    block.iter().map(|v| if d == 0.0 { 0.0 } else { (v / d).round() * d }).collect()
}

impl Backend for Narrow {
    type Tensor = RefTensor;
    type Kv = RefKv;

    fn name(&self) -> &str {
        "narrow"
    }
    fn version(&self) -> &str {
        "0"
    }
    fn tier(&self) -> &str {
        "test"
    }
    fn class(&self) -> Class {
        Class::Approx
    }
    fn caps(&self) -> Caps {
        Caps::new()
    }
    fn numerics(&self) -> NumericProfile {
        self.profile
    }
    fn device(&self) -> DeviceInfo {
        self.inner.device()
    }
    fn upload(&mut self, tensor: &HostTensor, as_dtype: DType) -> Result<RefTensor> {
        self.inner.upload(tensor, as_dtype)
    }
    fn host<'a>(&'a mut self, tensor: &'a RefTensor) -> Result<Option<Cow<'a, [f32]>>> {
        self.inner.host(tensor)
    }
    fn read(&mut self, tensor: &RefTensor) -> Result<Vec<f32>> {
        self.inner.read(tensor)
    }
    fn free(&mut self, tensor: RefTensor) -> Result<()> {
        self.inner.free(tensor)
    }

    fn matmul(&mut self, w: &RefTensor, x: &RefTensor) -> Result<RefTensor> {
        self.product(w, x)
    }
    fn batched_matmul(&mut self, w: &RefTensor, x: &RefTensor) -> Result<RefTensor> {
        self.product(w, x)
    }
    fn rms_norm(&mut self, x: &RefTensor, weight: &RefTensor, eps: f32) -> Result<RefTensor> {
        let (values, weights) = (self.values(x)?, self.values(weight)?);
        let n = weights.len();
        let mut out = Vec::new();
        for row in values.chunks_exact(n) {
            let sum = self.dot(row, row);
            let inverse = 1.0 / (sum / n as f32 + eps).sqrt();
            out.extend(row.iter().zip(&weights).map(|(v, w)| self.rounded(v * inverse * w)));
        }
        self.tensor(&x.desc().shape, out)
    }
    fn rope(&mut self, x: &RefTensor, spec: RopeSpec) -> Result<RefTensor> {
        let x = self.loaded(x)?;
        let y = self.inner.rope(&x, spec)?;
        self.finish(&y)
    }
    fn swiglu(&mut self, gate: &RefTensor, up: &RefTensor) -> Result<RefTensor> {
        let (gate, up) = (self.loaded(gate)?, self.loaded(up)?);
        let y = self.inner.swiglu(&gate, &up)?;
        self.finish(&y)
    }
    fn add_in_place(&mut self, dst: &mut RefTensor, src: &RefTensor) -> Result<()> {
        *dst = self.sums(dst, src)?;
        Ok(())
    }
    fn add_bias(&mut self, dst: &mut RefTensor, bias: &RefTensor) -> Result<()> {
        *dst = self.sums(dst, bias)?;
        Ok(())
    }
    fn attention(
        &mut self,
        q: &RefTensor,
        kv: &RefKv,
        layer: usize,
        spec: AttentionSpec,
    ) -> Result<RefTensor> {
        let queries = self.values(q)?;
        let store = self.inner.kv_store().ok_or_else(|| BackendError::unimplemented(Op::NewKv))?;
        let (keys, values) = (store.keys(kv, layer)?, store.values(kv, layer)?);
        let load = |all: Vec<f32>| -> Vec<f32> { all.into_iter().map(|v| self.load(v)).collect() };
        let (keys, values) = (load(keys), load(values));
        let width = q.desc().row_len();
        let kv_dim = width / spec.group;
        let (len, rows) = (keys.len() / kv_dim, queries.len() / width);
        let dim = kv.config().head_dim;
        let mut out = Vec::new();
        for (p, row) in queries.chunks_exact(width).enumerate() {
            let seen = len - rows + 1 + p;
            for (h, query) in row.chunks_exact(dim).enumerate() {
                let at = h / spec.group * dim;
                let scores: Vec<f32> = (0..seen)
                    .map(|j| self.rounded(self.dot(query, &keys[j * kv_dim + at..][..dim]) * spec.scale))
                    .collect();
                let top = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let weights: Vec<f32> = scores.iter().map(|s| f64::from(s - top).exp() as f32).collect();
                let total = weights.iter().fold(0.0f32, |sum, w| self.rounded(sum + w));
                let weights: Vec<f32> = weights
                    .iter()
                    .map(|w| self.operand.map_or(w / total, |round| round(w / total)))
                    .collect();
                for d in 0..dim {
                    let column: Vec<f32> = (0..seen).map(|j| values[j * kv_dim + at + d]).collect();
                    out.push(self.dot(&weights, &column));
                }
            }
        }
        self.tensor(&q.desc().shape, out)
    }
    fn kv_store(&mut self) -> Option<&mut dyn KvStore<Tensor = RefTensor, Kv = RefKv>> {
        self.inner.kv_store()
    }
}
