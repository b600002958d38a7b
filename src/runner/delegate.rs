//! The host in a backend's place: ops that a backend lacks run on cpu-ref, are counted, and are named in the row.
//!
//! Only whole-model cases use this; everywhere else a missing op is a gap at once. What is delegated is decided
//! before a case starts (the runner learns it from an `Unimplemented` answer and starts the case again), so that a
//! pipelined backend needs no extra round trips.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use modelbench_contract::{
    AttentionSpec, Backend, BackendError, Caps, Class, DType, DeviceInfo, DeviceTensor, HostTensor, KvConfig,
    KvStore, NumericProfile, Op, Result, RopeSpec, TensorDesc,
};
use modelbench_reference::CpuRef;

type RefTensor = <CpuRef as Backend>::Tensor;
type RefKv = <CpuRef as Backend>::Kv;

/// A backend whose missing ops are run by the host.
pub struct Delegating<'a, B: Backend> {
    backend: &'a mut B,
    host: CpuRef,
    missing: BTreeSet<Op>,
    counts: BTreeMap<Op, u64>,
}

/// A tensor of the backend; a weight that the host once read keeps its copy, since weights do not change.
pub struct Tensor<T> {
    device: T,
    host: Option<RefTensor>,
}

impl<T: DeviceTensor> DeviceTensor for Tensor<T> {
    fn desc(&self) -> &TensorDesc {
        self.device.desc()
    }
}

/// A KV store on the backend, or on the host where the backend has none.
pub enum Kv<K> {
    /// The backend's own.
    Device(K),
    /// cpu-ref's.
    Host(RefKv),
}

impl<'a, B: Backend> Delegating<'a, B> {
    /// Runs the ops in `missing` on cpu-ref and everything else on `backend`.
    pub fn new(backend: &'a mut B, missing: BTreeSet<Op>) -> Self {
        Delegating { backend, host: CpuRef::new(), missing, counts: BTreeMap::new() }
    }

    /// How often the host ran each op.
    pub fn counts(&self) -> &BTreeMap<Op, u64> {
        &self.counts
    }

    fn delegates(&mut self, op: Op) -> bool {
        let missing = self.missing.contains(&op);
        if missing {
            *self.counts.entry(op).or_default() += 1;
        }
        missing
    }

    fn fetch(&mut self, tensor: &Tensor<B::Tensor>) -> Result<RefTensor> {
        if let Some(copy) = &tensor.host {
            return Ok(copy.clone());
        }
        let values = self.backend.read(&tensor.device)?;
        self.host.upload(&HostTensor::from_f32(&tensor.desc().shape, &values)?, DType::F32)
    }

    fn store(&mut self, result: RefTensor) -> Result<Tensor<B::Tensor>> {
        let values = self.host.read(&result)?;
        let device =
            self.backend.upload(&HostTensor::from_f32(&result.desc().shape, &values)?, DType::F32)?;
        Ok(Tensor { device, host: None })
    }

    fn kv_backend(&mut self) -> Result<&mut dyn KvStore<Tensor = B::Tensor, Kv = B::Kv>> {
        self.backend.kv_store().ok_or_else(|| BackendError::unimplemented(Op::NewKv))
    }

    fn kv_host(&mut self) -> Result<&mut dyn KvStore<Tensor = RefTensor, Kv = RefKv>> {
        self.host.kv_store().ok_or_else(|| BackendError::internal("cpu-ref lost its KV store"))
    }
}

fn own<T>(device: T) -> Tensor<T> {
    Tensor { device, host: None }
}

impl<B: Backend> Backend for Delegating<'_, B> {
    type Tensor = Tensor<B::Tensor>;
    type Kv = Kv<B::Kv>;

    fn name(&self) -> &str {
        self.backend.name()
    }
    fn version(&self) -> &str {
        self.backend.version()
    }
    fn tier(&self) -> &str {
        self.backend.tier()
    }
    fn class(&self) -> Class {
        self.backend.class()
    }
    fn caps(&self) -> Caps {
        self.backend.caps()
    }
    fn numerics(&self) -> NumericProfile {
        self.backend.numerics()
    }
    fn device(&self) -> DeviceInfo {
        self.backend.device()
    }

    fn upload(&mut self, tensor: &HostTensor, as_dtype: DType) -> Result<Self::Tensor> {
        // Delegated products need the weight again and again; the copy shares the host tensor's bytes.
        let weight = tensor.shape().len() == 2;
        let wanted = self.missing.contains(&Op::Matmul) || self.missing.contains(&Op::BatchedMatmul);
        let host = if weight && wanted { Some(self.host.upload(tensor, tensor.dtype())?) } else { None };
        Ok(Tensor { device: self.backend.upload(tensor, as_dtype)?, host })
    }
    fn host<'a>(&'a mut self, tensor: &'a Self::Tensor) -> Result<Option<Cow<'a, [f32]>>> {
        self.backend.host(&tensor.device)
    }
    fn read(&mut self, tensor: &Self::Tensor) -> Result<Vec<f32>> {
        self.backend.read(&tensor.device)
    }
    fn free(&mut self, tensor: Self::Tensor) -> Result<()> {
        self.backend.free(tensor.device)
    }
    fn sync(&mut self) -> Result<()> {
        self.backend.sync()
    }
    fn dispatches(&mut self) -> Result<Option<u64>> {
        self.backend.dispatches()
    }

    fn matmul(&mut self, w: &Self::Tensor, x: &Self::Tensor) -> Result<Self::Tensor> {
        if self.delegates(Op::Matmul) {
            let (w, x) = (self.fetch(w)?, self.fetch(x)?);
            let result = self.host.matmul(&w, &x)?;
            return self.store(result);
        }
        self.backend.matmul(&w.device, &x.device).map(own)
    }
    fn batched_matmul(&mut self, w: &Self::Tensor, x: &Self::Tensor) -> Result<Self::Tensor> {
        if self.delegates(Op::BatchedMatmul) {
            let (w, x) = (self.fetch(w)?, self.fetch(x)?);
            let result = self.host.batched_matmul(&w, &x)?;
            return self.store(result);
        }
        self.backend.batched_matmul(&w.device, &x.device).map(own)
    }
    fn rms_norm(&mut self, x: &Self::Tensor, weight: &Self::Tensor, eps: f32) -> Result<Self::Tensor> {
        if self.delegates(Op::RmsNorm) {
            let (x, weight) = (self.fetch(x)?, self.fetch(weight)?);
            let result = self.host.rms_norm(&x, &weight, eps)?;
            return self.store(result);
        }
        self.backend.rms_norm(&x.device, &weight.device, eps).map(own)
    }
    fn rope(&mut self, x: &Self::Tensor, spec: RopeSpec) -> Result<Self::Tensor> {
        if self.delegates(Op::Rope) {
            let x = self.fetch(x)?;
            let result = self.host.rope(&x, spec)?;
            return self.store(result);
        }
        self.backend.rope(&x.device, spec).map(own)
    }
    fn swiglu(&mut self, gate: &Self::Tensor, up: &Self::Tensor) -> Result<Self::Tensor> {
        if self.delegates(Op::Swiglu) {
            let (gate, up) = (self.fetch(gate)?, self.fetch(up)?);
            let result = self.host.swiglu(&gate, &up)?;
            return self.store(result);
        }
        self.backend.swiglu(&gate.device, &up.device).map(own)
    }
    fn add_in_place(&mut self, dst: &mut Self::Tensor, src: &Self::Tensor) -> Result<()> {
        if self.delegates(Op::AddInPlace) {
            let (mut sum, src) = (self.fetch(dst)?, self.fetch(src)?);
            self.host.add_in_place(&mut sum, &src)?;
            let result = self.store(sum)?;
            let old = std::mem::replace(dst, result);
            return self.backend.free(old.device);
        }
        self.backend.add_in_place(&mut dst.device, &src.device)
    }
    fn add_bias(&mut self, dst: &mut Self::Tensor, bias: &Self::Tensor) -> Result<()> {
        if self.delegates(Op::AddBias) {
            let (mut sum, bias) = (self.fetch(dst)?, self.fetch(bias)?);
            self.host.add_bias(&mut sum, &bias)?;
            let result = self.store(sum)?;
            let old = std::mem::replace(dst, result);
            return self.backend.free(old.device);
        }
        self.backend.add_bias(&mut dst.device, &bias.device)
    }
    fn attention(
        &mut self,
        q: &Self::Tensor,
        kv: &Self::Kv,
        layer: usize,
        spec: AttentionSpec,
    ) -> Result<Self::Tensor> {
        match kv {
            Kv::Device(kv) => self.backend.attention(&q.device, kv, layer, spec).map(own),
            Kv::Host(kv) => {
                *self.counts.entry(Op::Attention).or_default() += 1;
                let q = self.fetch(q)?;
                let result = self.host.attention(&q, kv, layer, spec)?;
                self.store(result)
            }
        }
    }
    fn argmax(&mut self, logits: &Self::Tensor) -> Result<usize> {
        if self.delegates(Op::Argmax) {
            let logits = self.fetch(logits)?;
            return self.host.argmax(&logits);
        }
        self.backend.argmax(&logits.device)
    }
    fn kv_store(&mut self) -> Option<&mut dyn KvStore<Tensor = Self::Tensor, Kv = Self::Kv>> {
        Some(self)
    }
}

impl<B: Backend> KvStore for Delegating<'_, B> {
    type Tensor = Tensor<B::Tensor>;
    type Kv = Kv<B::Kv>;

    /// A store goes to the host as a whole if the backend lacks attention or any part of the store: rows that
    /// cpu-ref must read are kept where it can read them.
    fn new_kv(&mut self, config: &KvConfig) -> Result<Self::Kv> {
        let parts = [Op::NewKv, Op::KvAppend, Op::Attention];
        if parts.iter().any(|op| self.missing.contains(op)) {
            self.delegates(Op::NewKv);
            return self.kv_host()?.new_kv(config).map(Kv::Host);
        }
        self.kv_backend()?.new_kv(config).map(Kv::Device)
    }
    fn append(
        &mut self,
        kv: &mut Self::Kv,
        layer: usize,
        k_raw: &Self::Tensor,
        k_rope: &Self::Tensor,
        v: &Self::Tensor,
        pos: usize,
    ) -> Result<()> {
        match kv {
            Kv::Device(kv) => {
                self.kv_backend()?.append(kv, layer, &k_raw.device, &k_rope.device, &v.device, pos)
            }
            Kv::Host(kv) => {
                *self.counts.entry(Op::KvAppend).or_default() += 1;
                let (k_raw, k_rope, v) = (self.fetch(k_raw)?, self.fetch(k_rope)?, self.fetch(v)?);
                self.kv_host()?.append(kv, layer, &k_raw, &k_rope, &v, pos)
            }
        }
    }
    fn len(&mut self, kv: &Self::Kv) -> Result<usize> {
        match kv {
            Kv::Device(kv) => self.kv_backend()?.len(kv),
            Kv::Host(kv) => self.kv_host()?.len(kv),
        }
    }
    fn keys(&mut self, kv: &Self::Kv, layer: usize) -> Result<Vec<f32>> {
        match kv {
            Kv::Device(kv) => self.kv_backend()?.keys(kv, layer),
            Kv::Host(kv) => self.kv_host()?.keys(kv, layer),
        }
    }
    fn values(&mut self, kv: &Self::Kv, layer: usize) -> Result<Vec<f32>> {
        match kv {
            Kv::Device(kv) => self.kv_backend()?.values(kv, layer),
            Kv::Host(kv) => self.kv_host()?.values(kv, layer),
        }
    }
    fn positions(&mut self, kv: &Self::Kv) -> Result<Vec<usize>> {
        match kv {
            Kv::Device(kv) => self.kv_backend()?.positions(kv),
            Kv::Host(kv) => self.kv_host()?.positions(kv),
        }
    }
    fn evict(&mut self, kv: &mut Self::Kv, from: i64, n: i64) -> Result<usize> {
        match kv {
            Kv::Device(kv) => self.kv_backend()?.evict(kv, from, n),
            Kv::Host(kv) => self.kv_host()?.evict(kv, from, n),
        }
    }
    fn clone_kv(&mut self, kv: &Self::Kv) -> Result<Self::Kv> {
        match kv {
            Kv::Device(kv) => self.kv_backend()?.clone_kv(kv).map(Kv::Device),
            Kv::Host(kv) => self.kv_host()?.clone_kv(kv).map(Kv::Host),
        }
    }
    fn free_kv(&mut self, kv: Self::Kv) -> Result<()> {
        match kv {
            Kv::Device(kv) => self.kv_backend()?.free_kv(kv),
            Kv::Host(kv) => self.kv_host()?.free_kv(kv),
        }
    }
}
