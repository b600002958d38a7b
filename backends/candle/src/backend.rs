//! The contract's traits over the functions of this crate.

use std::borrow::Cow;

use candle_core::Device;
use modelbench_contract::{
    AttentionSpec, Backend, BackendError, Caps, Class, DType, DeviceInfo, DeviceTensor, HostTensor, KvConfig,
    KvStore, NumericProfile, Op, Result, RopeSpec,
};

use crate::{CandleKv, CandleTensor, attention::attention, device, fault::Fault, math};

/// The candle backend on one device.
#[derive(Debug)]
pub struct Candle {
    device: Device,
    tier: &'static str,
    info: DeviceInfo,
}

impl Candle {
    /// Opens the device: the CPU, or the first CUDA device with the feature `cuda`.
    ///
    /// # Errors
    /// `Unavailable` if the feature `cuda` is on and there is no CUDA device.
    pub fn new() -> Result<Self> {
        let device = device::open()?;
        let (tier, info) = (device::tier(&device), device::describe(&device));
        Ok(Candle { device, tier, info })
    }
}

/// Charges a failure to `op`.
fn charged<T>(op: Op, result: std::result::Result<T, Fault>) -> Result<T> {
    result.map_err(|fault| BackendError::from(fault).in_op(op))
}

impl Backend for Candle {
    type Tensor = CandleTensor;
    type Kv = CandleKv;

    fn name(&self) -> &str {
        "candle"
    }
    fn version(&self) -> &str {
        device::VERSION
    }
    fn tier(&self) -> &str {
        self.tier
    }
    fn class(&self) -> Class {
        Class::Approx
    }
    /// None. In particular no `UploadDtype`: candle's Q8_0 quantiser rounds its scale to f16.
    fn caps(&self) -> Caps {
        Caps::default()
    }
    fn numerics(&self) -> NumericProfile {
        NumericProfile::F32
    }
    fn device(&self) -> DeviceInfo {
        self.info.clone()
    }

    /// Keeps the dtype of `tensor`, whatever `as_dtype` asks for.
    fn upload(&mut self, tensor: &HostTensor, _as_dtype: DType) -> Result<CandleTensor> {
        charged(Op::Upload, CandleTensor::upload(tensor, &self.device))
    }
    /// A copy of an f32 tensor on the CPU: candle guards its memory with a lock that a plain reference cannot hold.
    fn host<'a>(&'a mut self, tensor: &'a CandleTensor) -> Result<Option<Cow<'a, [f32]>>> {
        if tensor.desc().dtype != DType::F32 || !self.device.is_cpu() {
            return Ok(None);
        }
        charged(Op::Host, tensor.to_host()).map(|values| Some(Cow::Owned(values)))
    }
    fn read(&mut self, tensor: &CandleTensor) -> Result<Vec<f32>> {
        charged(Op::Read, tensor.to_host())
    }
    fn free(&mut self, tensor: CandleTensor) -> Result<()> {
        drop(tensor);
        Ok(())
    }
    fn sync(&mut self) -> Result<()> {
        charged(Op::Sync, self.device.synchronize().map_err(Fault::from))
    }

    fn matmul(&mut self, w: &CandleTensor, x: &CandleTensor) -> Result<CandleTensor> {
        charged(Op::Matmul, math::product(w, x, 1))
    }
    fn batched_matmul(&mut self, w: &CandleTensor, x: &CandleTensor) -> Result<CandleTensor> {
        charged(Op::BatchedMatmul, math::product(w, x, 2))
    }
    fn rms_norm(&mut self, x: &CandleTensor, weight: &CandleTensor, eps: f32) -> Result<CandleTensor> {
        charged(Op::RmsNorm, math::rms_norm(x, weight, eps))
    }
    fn rope(&mut self, x: &CandleTensor, spec: RopeSpec) -> Result<CandleTensor> {
        charged(Op::Rope, math::rope(x, spec))
    }
    fn swiglu(&mut self, gate: &CandleTensor, up: &CandleTensor) -> Result<CandleTensor> {
        charged(Op::Swiglu, math::swiglu(gate, up))
    }
    fn add_in_place(&mut self, dst: &mut CandleTensor, src: &CandleTensor) -> Result<()> {
        charged(Op::AddInPlace, math::add_in_place(dst, src))
    }
    fn add_bias(&mut self, dst: &mut CandleTensor, bias: &CandleTensor) -> Result<()> {
        charged(Op::AddBias, math::add_bias(dst, bias))
    }
    fn attention(
        &mut self,
        q: &CandleTensor,
        kv: &CandleKv,
        layer: usize,
        spec: AttentionSpec,
    ) -> Result<CandleTensor> {
        charged(Op::Attention, attention(q, kv, layer, spec))
    }
    fn argmax(&mut self, logits: &CandleTensor) -> Result<usize> {
        charged(Op::Argmax, math::argmax(logits))
    }

    fn kv_store(&mut self) -> Option<&mut dyn KvStore<Tensor = CandleTensor, Kv = CandleKv>> {
        Some(self)
    }
}

impl KvStore for Candle {
    type Tensor = CandleTensor;
    type Kv = CandleKv;

    fn new_kv(&mut self, config: &KvConfig) -> Result<CandleKv> {
        charged(Op::NewKv, CandleKv::new(config, &self.device))
    }
    fn append(
        &mut self,
        kv: &mut CandleKv,
        layer: usize,
        k_raw: &CandleTensor,
        k_rope: &CandleTensor,
        v: &CandleTensor,
        pos: usize,
    ) -> Result<()> {
        charged(Op::KvAppend, kv.append(layer, k_raw, k_rope, v, pos))
    }
    fn len(&mut self, kv: &CandleKv) -> Result<usize> {
        Ok(kv.len())
    }
    fn keys(&mut self, kv: &CandleKv, layer: usize) -> Result<Vec<f32>> {
        charged(Op::KvKeys, kv.keys(layer))
    }
    fn values(&mut self, kv: &CandleKv, layer: usize) -> Result<Vec<f32>> {
        charged(Op::KvValues, kv.values(layer))
    }
    fn positions(&mut self, kv: &CandleKv) -> Result<Vec<usize>> {
        Ok((0..kv.len()).collect())
    }
    fn evict(&mut self, kv: &mut CandleKv, from: i64, n: i64) -> Result<usize> {
        charged(Op::KvEvict, kv.evict(from, n))
    }
    fn clone_kv(&mut self, kv: &CandleKv) -> Result<CandleKv> {
        charged(Op::KvClone, kv.deep_clone())
    }
    fn free_kv(&mut self, kv: CandleKv) -> Result<()> {
        drop(kv);
        Ok(())
    }
}
