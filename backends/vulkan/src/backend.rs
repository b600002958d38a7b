//! The contract's traits over the functions of this crate.

use std::borrow::Cow;

use modelbench_contract::wire::check;
use modelbench_contract::{
    AttentionSpec, Backend, BackendError, Cap, Capacity, Caps, Class, DType, DeviceCapacity, DeviceInfo,
    DeviceTensor, HostTensor, KvConfig, KvStore, NumericProfile, Op, Result, RopeSpec,
};

use crate::gpu::Gpu;
use crate::rope::{self, Rotation, Turns};
use crate::vk::Fault;
use crate::{Options, Times, VulkanKv, VulkanTensor, attention, math};

/// The Vulkan backend on one device.
#[derive(Debug)]
pub struct Vulkan {
    turns: Turns,
    gpu: Gpu,
    tier: String,
    caps: Caps,
}

impl Vulkan {
    /// Opens the loader and the device, and finds out how the device computes.
    ///
    /// # Errors
    /// `Unavailable` if there is no loader, no driver or no such device; the message says what to install.
    pub fn new(options: &Options) -> Result<Vulkan> {
        let gpu = Gpu::open(options).map_err(BackendError::from)?;
        let tier = gpu.facts().tier();
        let all = [Cap::DeviceMemory, Cap::UploadDtype, Cap::Async, Cap::FusedAttn, Cap::CapacityProbe];
        let caps = all.into_iter().filter(|cap| !options.without.contains(cap)).collect();
        Ok(Vulkan { turns: Turns::default(), gpu, tier, caps })
    }

    /// Kernels, submissions and barriers given to the device so far.
    pub fn counts(&self) -> [u64; 3] {
        self.gpu.counts()
    }

    #[cfg(test)]
    pub(crate) fn gpu(&mut self) -> &mut Gpu {
        &mut self.gpu
    }

    /// Bytes of device memory that the backend holds, its pool included.
    pub fn held(&self) -> u64 {
        self.gpu.held()
    }

    /// Calls and nanoseconds on the device by kernel, of everything waited for; empty unless [`Options::timing`] is on
    /// and the device has a clock.
    pub fn times(&self) -> &Times {
        self.gpu.times()
    }
}

/// Charges a failure to `op`.
fn charged<T>(op: Op, result: std::result::Result<T, Fault>) -> Result<T> {
    result.map_err(|fault| BackendError::from(fault).in_op(op))
}

impl Backend for Vulkan {
    type Tensor = VulkanTensor;
    type Kv = VulkanKv;

    fn name(&self) -> &str {
        "vulkan"
    }
    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }
    fn tier(&self) -> &str {
        &self.tier
    }
    fn class(&self) -> Class {
        Class::Approx
    }
    fn caps(&self) -> Caps {
        self.caps.clone()
    }
    /// f32 throughout; whether denormals survive is what the device showed at start.
    fn numerics(&self) -> NumericProfile {
        NumericProfile { flush_to_zero: self.gpu.arithmetic().flush_to_zero, ..NumericProfile::F32 }
    }
    fn device(&self) -> DeviceInfo {
        let facts = self.gpu.facts();
        DeviceInfo {
            kind: facts.kind,
            hardware: facts.hardware.clone(),
            driver: facts.driver.clone(),
            runtime: format!("{}; seen at start: {}", facts.runtime, self.gpu.arithmetic()),
        }
    }

    fn upload(&mut self, tensor: &HostTensor, as_dtype: DType) -> Result<VulkanTensor> {
        // Without the cap the dtype is kept.
        let narrows = self.caps.contains(&Cap::UploadDtype);
        let wanted = if narrows { as_dtype } else { tensor.dtype() };
        charged(Op::Upload, VulkanTensor::upload(&mut self.gpu, tensor, wanted))
    }
    /// None: tensors live in device memory, also where the host could see it.
    fn host<'a>(&'a mut self, _tensor: &'a VulkanTensor) -> Result<Option<Cow<'a, [f32]>>> {
        Ok(None)
    }
    fn read(&mut self, tensor: &VulkanTensor) -> Result<Vec<f32>> {
        charged(Op::Read, tensor.read(&mut self.gpu))
    }
    fn free(&mut self, tensor: VulkanTensor) -> Result<()> {
        drop(tensor);
        Ok(())
    }
    fn sync(&mut self) -> Result<()> {
        charged(Op::Sync, self.gpu.finish())
    }
    fn dispatches(&mut self) -> Result<Option<u64>> {
        let [kernels, ..] = self.gpu.counts();
        Ok(Some(kernels))
    }

    fn matmul(&mut self, w: &VulkanTensor, x: &VulkanTensor) -> Result<VulkanTensor> {
        let desc = check::matmul(w.desc(), x.desc())?;
        charged(Op::Matmul, math::product(&mut self.gpu, w, x, desc))
    }
    fn batched_matmul(&mut self, w: &VulkanTensor, x: &VulkanTensor) -> Result<VulkanTensor> {
        let desc = check::batched_matmul(w.desc(), x.desc())?;
        charged(Op::BatchedMatmul, math::product(&mut self.gpu, w, x, desc))
    }
    fn rms_norm(&mut self, x: &VulkanTensor, weight: &VulkanTensor, eps: f32) -> Result<VulkanTensor> {
        charged(Op::RmsNorm, math::rms_norm(&mut self.gpu, x, weight, eps))
    }
    fn rope(&mut self, x: &VulkanTensor, spec: RopeSpec) -> Result<VulkanTensor> {
        let desc = check::rope(x.desc(), &spec)?;
        let rows = desc.rows();
        let rotate = || {
            rope::check(rows, spec.pos, spec.theta)?;
            let y = VulkanTensor::result(&mut self.gpu, desc)?;
            let rotation = Rotation { rows, from: 0, to: 0, spec };
            self.turns.rotate(&mut self.gpu, x.memory(), y.memory(), rotation)?;
            Ok(y)
        };
        charged(Op::Rope, rotate())
    }
    fn swiglu(&mut self, gate: &VulkanTensor, up: &VulkanTensor) -> Result<VulkanTensor> {
        charged(Op::Swiglu, math::swiglu(&mut self.gpu, gate, up))
    }
    fn add_in_place(&mut self, dst: &mut VulkanTensor, src: &VulkanTensor) -> Result<()> {
        charged(Op::AddInPlace, math::add_in_place(&mut self.gpu, dst, src))
    }
    fn add_bias(&mut self, dst: &mut VulkanTensor, bias: &VulkanTensor) -> Result<()> {
        charged(Op::AddBias, math::add_bias(&mut self.gpu, dst, bias))
    }
    fn attention(
        &mut self,
        q: &VulkanTensor,
        kv: &VulkanKv,
        layer: usize,
        spec: AttentionSpec,
    ) -> Result<VulkanTensor> {
        charged(Op::Attention, attention::attention(&mut self.gpu, q, kv, layer, spec))
    }
    fn argmax(&mut self, logits: &VulkanTensor) -> Result<usize> {
        charged(Op::Argmax, math::argmax(&mut self.gpu, logits))
    }

    fn kv_store(&mut self) -> Option<&mut dyn KvStore<Tensor = VulkanTensor, Kv = VulkanKv>> {
        Some(self)
    }
    fn device_capacity(&mut self) -> Option<&mut dyn DeviceCapacity> {
        let advertised = self.caps.contains(&Cap::CapacityProbe);
        advertised.then_some(self as &mut dyn DeviceCapacity)
    }
}

impl DeviceCapacity for Vulkan {
    fn capacity(&mut self) -> Result<Capacity> {
        Ok(self.gpu.capacity())
    }
}

impl KvStore for Vulkan {
    type Tensor = VulkanTensor;
    type Kv = VulkanKv;

    fn new_kv(&mut self, config: &KvConfig) -> Result<VulkanKv> {
        charged(Op::NewKv, VulkanKv::new(&mut self.gpu, config))
    }
    fn append(
        &mut self,
        kv: &mut VulkanKv,
        layer: usize,
        k_raw: &VulkanTensor,
        k_rope: &VulkanTensor,
        v: &VulkanTensor,
        pos: usize,
    ) -> Result<()> {
        charged(Op::KvAppend, kv.append(&mut self.gpu, layer, [k_raw, k_rope, v], pos))
    }
    fn len(&mut self, kv: &VulkanKv) -> Result<usize> {
        Ok(kv.len())
    }
    fn keys(&mut self, kv: &VulkanKv, layer: usize) -> Result<Vec<f32>> {
        charged(Op::KvKeys, kv.keys(&mut self.gpu, layer))
    }
    fn values(&mut self, kv: &VulkanKv, layer: usize) -> Result<Vec<f32>> {
        charged(Op::KvValues, kv.values(&mut self.gpu, layer))
    }
    fn positions(&mut self, kv: &VulkanKv) -> Result<Vec<usize>> {
        Ok((0..kv.len()).collect())
    }
    fn evict(&mut self, kv: &mut VulkanKv, from: i64, n: i64) -> Result<usize> {
        charged(Op::KvEvict, kv.evict(&mut self.gpu, &mut self.turns, from, n))
    }
    fn clone_kv(&mut self, kv: &VulkanKv) -> Result<VulkanKv> {
        charged(Op::KvClone, kv.deep_clone(&mut self.gpu))
    }
    fn free_kv(&mut self, kv: VulkanKv) -> Result<()> {
        drop(kv);
        Ok(())
    }
}
