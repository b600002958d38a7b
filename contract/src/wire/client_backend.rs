//! [`RemoteBackend`] as a [`Backend`]: every method is one request.

use std::borrow::Cow;

use super::client::{Fault, RemoteBackend, RemoteKv, RemoteTensor, floats};
use super::message::{Request, Response};
use super::{Transport, check};
use crate::{
    AttentionSpec, Backend, Cap, Capacity, Caps, Class, Collectives, DType, DeviceCapacity, DeviceInfo,
    GraphCompile, HostCapacity, HostTensor, KvStore, NumericProfile, Op, Result, RopeSpec, TensorDesc,
};

impl<T: Transport> RemoteBackend<T> {
    /// Sends an op with one result, whose description the host works out itself.
    pub(super) fn result(
        &mut self,
        desc: TensorDesc,
        request: impl FnOnce(u64) -> Request,
    ) -> Result<RemoteTensor> {
        self.result_with_body(desc, &[], request)
    }

    pub(super) fn result_with_body(
        &mut self,
        desc: TensorDesc,
        body: &[u8],
        request: impl FnOnce(u64) -> Request,
    ) -> Result<RemoteTensor> {
        let handle = self.new_handle();
        self.submit(&request(handle), body)?;
        Ok(RemoteTensor { handle, desc })
    }

    fn capacity_of(&mut self, request: &Request) -> Result<Capacity> {
        match self.call(request, &[], 0)? {
            (Response::Capacity { capacity }, _) => Ok(capacity),
            (other, _) => Err(self.unexpected(request.op(), &other)),
        }
    }
}

impl<T: Transport> Backend for RemoteBackend<T> {
    type Tensor = RemoteTensor;
    type Kv = RemoteKv;

    fn name(&self) -> &str {
        &self.identity.name
    }
    fn version(&self) -> &str {
        &self.identity.version
    }
    fn tier(&self) -> &str {
        &self.identity.tier
    }
    fn class(&self) -> Class {
        self.identity.class
    }
    fn caps(&self) -> Caps {
        self.identity.caps.clone()
    }
    fn numerics(&self) -> NumericProfile {
        self.identity.numerics
    }
    fn device(&self) -> DeviceInfo {
        self.identity.device.clone()
    }

    fn upload(&mut self, tensor: &HostTensor, as_dtype: DType) -> Result<RemoteTensor> {
        // Only `UploadDtype` narrows, and only f32; everything else keeps the dtype that it came with.
        let narrows = self.identity.caps.contains(&Cap::UploadDtype) && tensor.dtype() == DType::F32;
        let kept = if narrows { as_dtype } else { tensor.dtype() };
        let desc = TensorDesc::new(tensor.shape(), kept);
        for &scale in tensor.quant().iter().flat_map(|q| q.scales.iter().chain(&q.static_activation)) {
            check::finite(Op::Upload, "a scale", f64::from(scale))?;
        }
        self.result_with_body(desc, tensor.bytes(), |out| Request::Upload {
            out,
            shape: tensor.shape().to_vec(),
            dtype: tensor.dtype(),
            as_dtype,
            quant: tensor.quant().cloned(),
        })
    }
    fn host<'a>(&'a mut self, tensor: &'a RemoteTensor) -> Result<Option<Cow<'a, [f32]>>> {
        match self.open_call(&Request::Host { tensor: tensor.handle })? {
            (Response::View { some: false }, _) => Ok(None),
            (Response::View { some: true }, body)
                if body.len() / 4 == tensor.desc.elements() && body.len() % 4 == 0 =>
            {
                Ok(Some(Cow::Owned(floats(&body))))
            }
            (Response::View { .. }, body) => {
                let message = format!("a view of {} bytes for shape {:?}", body.len(), tensor.desc.shape);
                Err(self.fail(Fault::Protocol { op: Some(Op::Host), message }))
            }
            (other, _) => Err(self.unexpected(Some(Op::Host), &other)),
        }
    }
    fn read(&mut self, tensor: &RemoteTensor) -> Result<Vec<f32>> {
        self.values(&Request::Read { tensor: tensor.handle }, &tensor.desc.shape)
    }
    fn free(&mut self, tensor: RemoteTensor) -> Result<()> {
        self.submit(&Request::Free { tensor: tensor.handle }, &[])
    }
    fn sync(&mut self) -> Result<()> {
        self.fence(&Request::Sync)
    }
    fn dispatches(&mut self) -> Result<Option<u64>> {
        Ok(self.effort()?.dispatches)
    }

    fn matmul(&mut self, w: &RemoteTensor, x: &RemoteTensor) -> Result<RemoteTensor> {
        let desc = check::matmul(&w.desc, &x.desc)?;
        self.result(desc, |out| Request::Matmul { out, w: w.handle, x: x.handle })
    }
    fn batched_matmul(&mut self, w: &RemoteTensor, x: &RemoteTensor) -> Result<RemoteTensor> {
        let desc = check::batched_matmul(&w.desc, &x.desc)?;
        self.result(desc, |out| Request::BatchedMatmul { out, w: w.handle, x: x.handle })
    }
    fn rms_norm(&mut self, x: &RemoteTensor, weight: &RemoteTensor, eps: f32) -> Result<RemoteTensor> {
        let desc = check::rms_norm(&x.desc, &weight.desc)?;
        let eps = f64::from(eps);
        check::finite(Op::RmsNorm, "eps", eps)?;
        self.result(desc, |out| Request::RmsNorm { out, x: x.handle, weight: weight.handle, eps })
    }
    fn rope(&mut self, x: &RemoteTensor, spec: RopeSpec) -> Result<RemoteTensor> {
        let desc = check::rope(&x.desc, &spec)?;
        let RopeSpec { pos, n_heads, head_dim, theta } = spec;
        let theta = f64::from(theta);
        self.result(desc, |out| Request::Rope { out, x: x.handle, pos, n_heads, head_dim, theta })
    }
    fn swiglu(&mut self, gate: &RemoteTensor, up: &RemoteTensor) -> Result<RemoteTensor> {
        let desc = check::swiglu(&gate.desc, &up.desc)?;
        self.result(desc, |out| Request::Swiglu { out, gate: gate.handle, up: up.handle })
    }
    fn add_in_place(&mut self, dst: &mut RemoteTensor, src: &RemoteTensor) -> Result<()> {
        check::add_in_place(&dst.desc, &src.desc)?;
        self.submit(&Request::AddInPlace { dst: dst.handle, src: src.handle }, &[])
    }
    fn add_bias(&mut self, dst: &mut RemoteTensor, bias: &RemoteTensor) -> Result<()> {
        check::add_bias(&dst.desc, &bias.desc)?;
        self.submit(&Request::AddBias { dst: dst.handle, bias: bias.handle }, &[])
    }
    fn attention(
        &mut self,
        q: &RemoteTensor,
        kv: &RemoteKv,
        layer: usize,
        spec: AttentionSpec,
    ) -> Result<RemoteTensor> {
        let desc = check::attention(&q.desc, &kv.config, layer, &spec)?;
        let AttentionSpec { group, scale, causal } = spec;
        let (q, kv, scale) = (q.handle, kv.handle, f64::from(scale));
        self.result(desc, |out| Request::Attention { out, q, kv, layer, group, scale, causal })
    }
    fn argmax(&mut self, logits: &RemoteTensor) -> Result<usize> {
        check::argmax(&logits.desc)?;
        self.index(&Request::Argmax { logits: logits.handle })
    }

    fn kv_store(&mut self) -> Option<&mut dyn KvStore<Tensor = RemoteTensor, Kv = RemoteKv>> {
        // Without a cap for it, only the answer `Unimplemented` tells that there is none.
        Some(self)
    }
    fn collectives(&mut self) -> Option<&mut dyn Collectives<Tensor = RemoteTensor>> {
        if self.identity.caps.contains(&Cap::Collective) { Some(self) } else { None }
    }
    fn device_capacity(&mut self) -> Option<&mut dyn DeviceCapacity> {
        if self.identity.caps.contains(&Cap::CapacityProbe) { Some(self) } else { None }
    }
    fn host_capacity(&mut self) -> Option<&mut dyn HostCapacity> {
        if self.identity.caps.contains(&Cap::HostCapacityProbe) { Some(self) } else { None }
    }
    fn graph_compile(&mut self) -> Option<&mut dyn GraphCompile<Tensor = RemoteTensor>> {
        if self.identity.caps.contains(&Cap::GraphCompile) { Some(self) } else { None }
    }
}

impl<T: Transport> DeviceCapacity for RemoteBackend<T> {
    fn capacity(&mut self) -> Result<Capacity> {
        self.capacity_of(&Request::DeviceCapacity)
    }
}

impl<T: Transport> HostCapacity for RemoteBackend<T> {
    fn capacity(&mut self) -> Result<Capacity> {
        self.capacity_of(&Request::HostCapacity)
    }
}
