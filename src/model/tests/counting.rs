//! cpu-ref behind a wrapper that counts live tensors and stores and can fail at the n-th call.

use std::borrow::Cow;

use modelbench_contract::{
    AttentionSpec, Backend, BackendError, Caps, Class, DType, DeviceInfo, ErrorKind, HostTensor, KvConfig,
    KvStore, NumericProfile, Result, RopeSpec,
};
use modelbench_reference::{CpuRef, RefKv, RefTensor};

pub(super) struct Counting {
    inner: CpuRef,
    /// Tensors made and not freed.
    pub(super) tensors: i64,
    /// Stores made and not freed.
    pub(super) stores: i64,
    /// Calls so far, `free` and `free_kv` apart.
    pub(super) calls: u64,
    /// The call that fails.
    pub(super) fail_at: Option<u64>,
    pub(super) has_store: bool,
}

impl Counting {
    pub(super) fn new() -> Self {
        Counting { inner: CpuRef::new(), tensors: 0, stores: 0, calls: 0, fail_at: None, has_store: true }
    }

    fn call<T>(&mut self, made: i64, run: impl FnOnce(&mut CpuRef) -> Result<T>) -> Result<T> {
        self.calls += 1;
        if self.fail_at == Some(self.calls) {
            return Err(BackendError::new(ErrorKind::ResourceExhausted, "as told"));
        }
        let result = run(&mut self.inner)?;
        self.tensors += made;
        Ok(result)
    }

    fn store(&mut self) -> Result<&mut dyn KvStore<Tensor = RefTensor, Kv = RefKv>> {
        self.inner.kv_store().ok_or_else(|| BackendError::internal("cpu-ref has a store"))
    }
}

impl Backend for Counting {
    type Tensor = RefTensor;
    type Kv = RefKv;

    fn name(&self) -> &str {
        "counting"
    }
    fn version(&self) -> &str {
        "1"
    }
    fn tier(&self) -> &str {
        "scalar"
    }
    fn class(&self) -> Class {
        Class::Reference
    }
    fn caps(&self) -> Caps {
        self.inner.caps()
    }
    fn numerics(&self) -> NumericProfile {
        self.inner.numerics()
    }
    fn device(&self) -> DeviceInfo {
        self.inner.device()
    }
    fn upload(&mut self, tensor: &HostTensor, as_dtype: DType) -> Result<RefTensor> {
        self.call(1, |b| b.upload(tensor, as_dtype))
    }
    fn host<'a>(&'a mut self, tensor: &'a RefTensor) -> Result<Option<Cow<'a, [f32]>>> {
        self.inner.host(tensor)
    }
    fn read(&mut self, tensor: &RefTensor) -> Result<Vec<f32>> {
        self.call(0, |b| b.read(tensor))
    }
    fn free(&mut self, tensor: RefTensor) -> Result<()> {
        self.tensors -= 1;
        self.inner.free(tensor)
    }
    fn matmul(&mut self, w: &RefTensor, x: &RefTensor) -> Result<RefTensor> {
        self.call(1, |b| b.matmul(w, x))
    }
    fn batched_matmul(&mut self, w: &RefTensor, x: &RefTensor) -> Result<RefTensor> {
        self.call(1, |b| b.batched_matmul(w, x))
    }
    fn rms_norm(&mut self, x: &RefTensor, weight: &RefTensor, eps: f32) -> Result<RefTensor> {
        self.call(1, |b| b.rms_norm(x, weight, eps))
    }
    fn rope(&mut self, x: &RefTensor, spec: RopeSpec) -> Result<RefTensor> {
        self.call(1, |b| b.rope(x, spec))
    }
    fn swiglu(&mut self, gate: &RefTensor, up: &RefTensor) -> Result<RefTensor> {
        self.call(1, |b| b.swiglu(gate, up))
    }
    fn add_in_place(&mut self, dst: &mut RefTensor, src: &RefTensor) -> Result<()> {
        self.call(0, |b| b.add_in_place(dst, src))
    }
    fn add_bias(&mut self, dst: &mut RefTensor, bias: &RefTensor) -> Result<()> {
        self.call(0, |b| b.add_bias(dst, bias))
    }
    fn attention(
        &mut self,
        q: &RefTensor,
        kv: &RefKv,
        layer: usize,
        spec: AttentionSpec,
    ) -> Result<RefTensor> {
        self.call(1, |b| b.attention(q, kv, layer, spec))
    }
    fn argmax(&mut self, logits: &RefTensor) -> Result<usize> {
        self.call(0, |b| b.argmax(logits))
    }
    fn kv_store(&mut self) -> Option<&mut dyn KvStore<Tensor = RefTensor, Kv = RefKv>> {
        if self.has_store { Some(self) } else { None }
    }
}

impl KvStore for Counting {
    type Tensor = RefTensor;
    type Kv = RefKv;

    fn new_kv(&mut self, config: &KvConfig) -> Result<RefKv> {
        let kv = self.store()?.new_kv(config)?;
        self.stores += 1;
        Ok(kv)
    }
    fn append(
        &mut self,
        kv: &mut RefKv,
        layer: usize,
        k_raw: &RefTensor,
        k_rope: &RefTensor,
        v: &RefTensor,
        pos: usize,
    ) -> Result<()> {
        self.call(0, |_| Ok(()))?;
        self.store()?.append(kv, layer, k_raw, k_rope, v, pos)
    }
    fn len(&mut self, kv: &RefKv) -> Result<usize> {
        self.store()?.len(kv)
    }
    fn keys(&mut self, kv: &RefKv, layer: usize) -> Result<Vec<f32>> {
        self.store()?.keys(kv, layer)
    }
    fn values(&mut self, kv: &RefKv, layer: usize) -> Result<Vec<f32>> {
        self.store()?.values(kv, layer)
    }
    fn positions(&mut self, kv: &RefKv) -> Result<Vec<usize>> {
        self.store()?.positions(kv)
    }
    fn evict(&mut self, kv: &mut RefKv, from: i64, n: i64) -> Result<usize> {
        self.store()?.evict(kv, from, n)
    }
    fn clone_kv(&mut self, kv: &RefKv) -> Result<RefKv> {
        let kv = self.store()?.clone_kv(kv)?;
        self.stores += 1;
        Ok(kv)
    }
    fn free_kv(&mut self, kv: RefKv) -> Result<()> {
        self.stores -= 1;
        self.store()?.free_kv(kv)
    }
}
