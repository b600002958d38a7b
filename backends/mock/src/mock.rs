//! The mock backend: honest arithmetic with a twist.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use modelbench_contract::wire::check as shapes;
use modelbench_contract::{
    Activation, AttentionSpec, Backend, BackendError, Cap, Caps, Class, DType, DeviceInfo, DeviceKind,
    HostTensor, Identity, KvConfig, KvStore, NumericProfile, Op, Result, RopeSpec, TensorDesc,
};
use modelbench_reference::CpuRef;

use crate::behaviours::{BEHAVIOURS, Behaviour};
use crate::kv::{Layer, MockKv};
use crate::tensor::{MockTensor, Plain};
use crate::twist::{Call, Scalars, Twist};
use crate::{arithmetic, check};

/// Why there is no such mock.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MockError {
    /// No behaviour has this name.
    #[error("no self-test behaviour is called {name:?}; there are: {known}")]
    Unknown {
        /// The name asked for.
        name: String,
        /// Every name there is, separated by commas.
        known: String,
    },
}

/// A backend that misbehaves in one known way.
pub struct Mock {
    pub(crate) twist: Box<dyn Twist>,
    decoder: CpuRef,
    honest: Identity,
    identity: Identity,
    calls: u64,
    next_id: u64,
}

impl fmt::Debug for Mock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mock")
            .field("name", &self.identity.name)
            .field("calls", &self.calls)
            .finish_non_exhaustive()
    }
}

impl Mock {
    /// Every behaviour, in the order in which they are listed.
    pub const BEHAVIOURS: &'static [Behaviour] = BEHAVIOURS;

    /// The mock of a behaviour, with or without the prefix `mock:`.
    ///
    /// # Errors
    /// [`MockError::Unknown`] naming the behaviours there are.
    pub fn by_name(name: &str) -> Result<Self, MockError> {
        let wanted = name.strip_prefix("mock:").unwrap_or(name);
        let found = BEHAVIOURS.iter().find(|behaviour| behaviour.name == wanted);
        let behaviour = found.ok_or_else(|| MockError::Unknown {
            name: name.to_owned(),
            known: BEHAVIOURS.iter().map(|behaviour| behaviour.name).collect::<Vec<_>>().join(", "),
        })?;
        let honest = honest_identity(behaviour.name);
        let twist = (behaviour.make)();
        let mut identity = honest.clone();
        twist.identity(&mut identity, 0);
        Ok(Mock { twist, decoder: CpuRef::new(), honest, identity, calls: 0, next_id: 0 })
    }

    /// Counts a call and lets the twist answer it.
    pub(crate) fn begin(&mut self, call: &Call<'_>) -> Result<()> {
        self.calls += 1;
        let mut identity = self.honest.clone();
        self.twist.identity(&mut identity, self.calls);
        self.identity = identity;
        self.twist.before(call).map_err(|error| error.in_op(call.op))
    }

    fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// The values of a tensor as the twist lets them be seen.
    pub(crate) fn view<'a>(&self, tensor: &'a MockTensor) -> Cow<'a, [f32]> {
        let mut values = tensor.values.to_vec();
        self.twist.seen(tensor, &mut values);
        if *values == *tensor.values { Cow::Borrowed(&tensor.values) } else { Cow::Owned(values) }
    }

    /// Runs one math op: the twist first, then cpu-ref if the twist says so, else the honest arithmetic.
    fn compute(&mut self, call: &Call<'_>, honest: impl FnOnce(&[Cow<'_, [f32]>]) -> Plain) -> Result<Plain> {
        let mut result = match self.twist.replace(call) {
            Some(result) => result,
            None if self.twist.hands_to_reference() => self.by_reference(call)?,
            None => {
                let inputs: Vec<_> = call.inputs.iter().map(|tensor| self.view(tensor)).collect();
                honest(&inputs)
            }
        };
        self.twist.after(call, &mut result);
        Ok(result)
    }

    fn tensor(&mut self, result: Plain, op: Op) -> MockTensor {
        let id = self.fresh_id();
        result.into_tensor(id, op)
    }

    /// cpu-ref's bits for a math op without a store.
    fn by_reference(&mut self, call: &Call<'_>) -> Result<Plain> {
        let mut inputs = Vec::new();
        for tensor in call.inputs {
            inputs.push(upload_to(&mut self.decoder, tensor)?);
        }
        let cpu = &mut self.decoder;
        let out = match (call.op, call.scalars, inputs.as_mut_slice()) {
            (Op::Matmul, _, [w, x]) => cpu.matmul(w, x)?,
            (Op::BatchedMatmul, _, [w, x]) => cpu.batched_matmul(w, x)?,
            (Op::RmsNorm, Scalars::Eps(eps), [x, weight]) => cpu.rms_norm(x, weight, eps)?,
            (Op::Rope, Scalars::Rope(spec), [x]) => cpu.rope(x, spec)?,
            (Op::Swiglu, _, [gate, up]) => cpu.swiglu(gate, up)?,
            (Op::AddInPlace, _, [dst, src]) => {
                cpu.add_in_place(dst, src)?;
                dst.clone()
            }
            (Op::AddBias, _, [dst, bias]) => {
                cpu.add_bias(dst, bias)?;
                dst.clone()
            }
            (op, ..) => return Err(BackendError::internal("the mock cannot hand this op over").in_op(op)),
        };
        let values = cpu.read(&out)?;
        Ok(Plain::new(&modelbench_contract::DeviceTensor::desc(&out).shape, values))
    }

    /// cpu-ref's bits for attention, over a copy of the layer.
    fn attention_by_reference(
        &mut self,
        q: &MockTensor,
        layer: &Layer,
        config: &KvConfig,
        spec: AttentionSpec,
    ) -> Result<Plain> {
        let cpu = &mut self.decoder;
        let row = config.row_len();
        let held = layer.keys.len() / row;
        let query = upload_to(cpu, q)?;
        let mut upload = |rows: &[f32]| cpu.upload(&HostTensor::from_f32(&[held, row], rows)?, DType::F32);
        let (raw, keys, values) = (upload(&layer.raw)?, upload(&layer.keys)?, upload(&layer.values)?);
        let mut kv = KvStore::new_kv(cpu, &KvConfig { layers: 1, capacity: held, ..*config })?;
        KvStore::append(cpu, &mut kv, 0, &raw, &keys, &values, 0)?;
        let out = cpu.attention(&query, &kv, 0, spec)?;
        Ok(Plain::new(&q.desc.shape, cpu.read(&out)?))
    }
}

fn upload_to(cpu: &mut CpuRef, tensor: &MockTensor) -> Result<<CpuRef as Backend>::Tensor> {
    match &tensor.source {
        Some(source) => cpu.upload(source, tensor.desc.dtype),
        None => cpu.upload(&HostTensor::from_f32(&tensor.desc.shape, &tensor.values)?, DType::F32),
    }
}

fn honest_identity(behaviour: &str) -> Identity {
    Identity {
        name: format!("mock:{behaviour}"),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        tier: "scalar".to_owned(),
        class: Class::Approx,
        caps: Caps::from([Cap::UploadDtype]),
        numerics: NumericProfile { q8_activation: Activation::Float, ..NumericProfile::F32 },
        device: DeviceInfo {
            kind: DeviceKind::Cpu,
            hardware: "self-test".to_owned(),
            driver: String::new(),
            runtime: concat!("modelbench-mock ", env!("CARGO_PKG_VERSION")).to_owned(),
        },
    }
}

impl Backend for Mock {
    type Tensor = MockTensor;
    type Kv = MockKv;

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

    fn upload(&mut self, tensor: &HostTensor, as_dtype: DType) -> Result<MockTensor> {
        self.begin(&Call::new(Op::Upload, &[]))?;
        let decoded = self.decoder.upload(tensor, as_dtype)?;
        let desc = modelbench_contract::DeviceTensor::desc(&decoded).clone();
        let narrowed = tensor.dtype() == DType::F32 && desc.dtype != DType::F32;
        let values = if narrowed && !self.twist.narrows() {
            let whole = self.decoder.upload(tensor, DType::F32)?;
            self.decoder.read(&whole)?
        } else {
            self.decoder.read(&decoded)?
        };
        let id = self.fresh_id();
        let source = Some(tensor.clone());
        Ok(MockTensor { id, desc, values: values.into(), source, made_by: Op::Upload })
    }

    fn host<'a>(&'a mut self, tensor: &'a MockTensor) -> Result<Option<Cow<'a, [f32]>>> {
        self.begin(&Call::new(Op::Host, &[tensor]))?;
        Ok((tensor.desc.dtype == DType::F32).then(|| self.view(tensor)))
    }

    fn read(&mut self, tensor: &MockTensor) -> Result<Vec<f32>> {
        self.begin(&Call::new(Op::Read, &[tensor]))?;
        let mut values = self.view(tensor).into_owned();
        self.twist.read(tensor, &mut values);
        Ok(values)
    }

    fn free(&mut self, tensor: MockTensor) -> Result<()> {
        self.begin(&Call::new(Op::Free, &[&tensor]))
    }

    fn matmul(&mut self, w: &MockTensor, x: &MockTensor) -> Result<MockTensor> {
        self.product(Op::Matmul, w, x)
    }

    fn batched_matmul(&mut self, w: &MockTensor, x: &MockTensor) -> Result<MockTensor> {
        self.product(Op::BatchedMatmul, w, x)
    }

    fn rms_norm(&mut self, x: &MockTensor, weight: &MockTensor, eps: f32) -> Result<MockTensor> {
        let inputs = [x, weight];
        let call = Call::new(Op::RmsNorm, &inputs).with(Scalars::Eps(eps));
        self.begin(&call)?;
        shapes::rms_norm(&x.desc, &weight.desc)?;
        check::eps(call.op, eps)?;
        let honest =
            |v: &[Cow<'_, [f32]>]| Plain::new(&x.desc.shape, arithmetic::rms_norm(&v[0], &v[1], eps));
        let result = self.compute(&call, honest)?;
        Ok(self.tensor(result, call.op))
    }

    fn rope(&mut self, x: &MockTensor, spec: RopeSpec) -> Result<MockTensor> {
        let inputs = [x];
        let call = Call::new(Op::Rope, &inputs).with(Scalars::Rope(spec));
        self.begin(&call)?;
        check::rope(&x.desc, &spec)?;
        let honest = |v: &[Cow<'_, [f32]>]| {
            Plain::new(&x.desc.shape, arithmetic::rope(&v[0], x.desc.row_len(), &spec))
        };
        let result = self.compute(&call, honest)?;
        Ok(self.tensor(result, call.op))
    }

    fn swiglu(&mut self, gate: &MockTensor, up: &MockTensor) -> Result<MockTensor> {
        let inputs = [gate, up];
        let call = Call::new(Op::Swiglu, &inputs);
        self.begin(&call)?;
        shapes::swiglu(&gate.desc, &up.desc)?;
        let honest = |v: &[Cow<'_, [f32]>]| Plain::new(&gate.desc.shape, arithmetic::swiglu(&v[0], &v[1]));
        let result = self.compute(&call, honest)?;
        Ok(self.tensor(result, call.op))
    }

    fn add_in_place(&mut self, dst: &mut MockTensor, src: &MockTensor) -> Result<()> {
        let result = {
            let inputs = [&*dst, src];
            let call = Call::new(Op::AddInPlace, &inputs);
            self.begin(&call)?;
            shapes::add_in_place(&dst.desc, &src.desc)?;
            self.compute(&call, |v| Plain::new(&dst.desc.shape, arithmetic::add(&v[0], &v[1])))?
        };
        replace_values(dst, result);
        Ok(())
    }

    fn add_bias(&mut self, dst: &mut MockTensor, bias: &MockTensor) -> Result<()> {
        let result = {
            let inputs = [&*dst, bias];
            let call = Call::new(Op::AddBias, &inputs);
            self.begin(&call)?;
            shapes::add_bias(&dst.desc, &bias.desc)?;
            self.compute(&call, |v| Plain::new(&dst.desc.shape, arithmetic::add(&v[0], &v[1])))?
        };
        replace_values(dst, result);
        Ok(())
    }

    fn attention(
        &mut self,
        q: &MockTensor,
        kv: &MockKv,
        layer: usize,
        spec: AttentionSpec,
    ) -> Result<MockTensor> {
        let inputs = [q];
        let call = Call::new(Op::Attention, &inputs).with(Scalars::Attention(spec));
        self.begin(&call)?;
        check::attention(&q.desc, kv, layer, &spec)?;
        let config = &kv.config;
        let rows = &kv.layers[layer];
        let mut result = if self.twist.hands_to_reference() {
            self.attention_by_reference(q, rows, config, spec)?
        } else {
            let spec = self.twist.attention(spec);
            let values = self.view(q);
            let out = arithmetic::attention(&values, q.desc.row_len(), rows, config.head_dim, &spec);
            Plain::new(&q.desc.shape, out)
        };
        self.twist.after(&call, &mut result);
        Ok(self.tensor(result, call.op))
    }

    fn argmax(&mut self, logits: &MockTensor) -> Result<usize> {
        self.begin(&Call::new(Op::Argmax, &[logits]))?;
        shapes::argmax(&logits.desc)?;
        let values = self.view(logits).into_owned();
        Ok(self.twist.argmax(&values).unwrap_or_else(|| arithmetic::argmax(&values)))
    }

    fn kv_store(&mut self) -> Option<&mut dyn KvStore<Tensor = MockTensor, Kv = MockKv>> {
        if self.twist.has_kv() { Some(self) } else { None }
    }
}

impl Mock {
    fn product(&mut self, op: Op, w: &MockTensor, x: &MockTensor) -> Result<MockTensor> {
        let inputs = [w, x];
        let call = Call::new(op, &inputs);
        self.begin(&call)?;
        let shape = check::product(op, &w.desc, &x.desc)?.shape;
        let n = x.desc.row_len();
        let result = self.compute(&call, |v| Plain::new(&shape, arithmetic::matmul(&v[0], &v[1], n)))?;
        Ok(self.tensor(result, op))
    }
}

/// The tensor stays the same one, with new values.
fn replace_values(dst: &mut MockTensor, result: Plain) {
    dst.desc = TensorDesc::new(result.shape, DType::F32);
    dst.values = Arc::from(result.values);
    dst.source = None;
}
