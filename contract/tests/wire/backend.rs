//! A backend in host memory, f32, that counts its calls and what is alive, and fails or panics when told to.

use std::borrow::Cow;
use std::sync::{Arc, Mutex};

use modelbench_contract::{
    AttentionSpec, Backend, BackendError, Cap, Caps, Class, Collectives, DType, DeviceInfo, DeviceKind,
    DeviceTensor, HostTensor, KvStore, NumericProfile, Op, Result, RopeSpec, TensorDesc,
};

use crate::backend_kv::HostKv;

/// What the next call of an op does instead of its work.
pub enum Trip {
    Fail(BackendError),
    Panic(&'static str),
    /// One value or one result too few.
    Short,
    /// The shape turned round.
    Shape,
}

/// What the test sees of a backend that runs in another thread.
#[derive(Default)]
pub struct Watch {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    calls: Vec<Op>,
    live: i64,
    scalars: Vec<f32>,
    trips: Vec<(Op, Trip)>,
}

impl Watch {
    /// Every call so far, in order.
    pub fn calls(&self) -> Vec<Op> {
        self.state.lock().unwrap().calls.clone()
    }
    /// Tensors and stores that were made and not given back through `free`; a mere drop does not count.
    pub fn live(&self) -> i64 {
        self.state.lock().unwrap().live
    }
    /// Every scalar that came with a call.
    pub fn scalars(&self) -> Vec<f32> {
        self.state.lock().unwrap().scalars.clone()
    }
    /// Makes the next call of `op` go wrong, once.
    pub fn trip(&self, op: Op, trip: Trip) {
        self.state.lock().unwrap().trips.push((op, trip));
    }
    pub fn made(&self, count: i64) {
        self.state.lock().unwrap().live += count;
    }
    fn scalar(&self, value: f32) {
        self.state.lock().unwrap().scalars.push(value);
    }
    /// Counts a call. `Ok(Some)` is a trip that the op must carry out itself.
    pub fn enter(&self, op: Op) -> Result<Option<Trip>> {
        let mut state = self.state.lock().unwrap();
        state.calls.push(op);
        let found = state.trips.iter().position(|(at, _)| *at == op);
        let trip = found.map(|i| state.trips.remove(i).1);
        drop(state);
        match trip {
            Some(Trip::Fail(error)) => Err(error),
            Some(Trip::Panic(text)) => panic!("{text}"),
            other => Ok(other),
        }
    }
}

pub struct HostMemory {
    pub watch: Arc<Watch>,
    pub ranks: usize,
    pub caps: Caps,
}

impl HostMemory {
    pub fn new(watch: &Arc<Watch>) -> HostMemory {
        HostMemory { watch: Arc::clone(watch), ranks: 0, caps: Caps::from([Cap::Collective]) }
    }
    pub fn tensor(&self, shape: &[usize], values: Vec<f32>) -> Vector {
        self.watch.made(1);
        Vector { desc: TensorDesc::new(shape, DType::F32), values }
    }
}

pub struct Vector {
    desc: TensorDesc,
    pub values: Vec<f32>,
}

impl DeviceTensor for Vector {
    fn desc(&self) -> &TensorDesc {
        &self.desc
    }
}

impl Backend for HostMemory {
    type Tensor = Vector;
    type Kv = HostKv;

    fn name(&self) -> &str {
        "host-memory"
    }
    fn version(&self) -> &str {
        "1.2.3"
    }
    fn tier(&self) -> &str {
        "scalar"
    }
    fn class(&self) -> Class {
        Class::Approx
    }
    fn caps(&self) -> Caps {
        self.caps.clone()
    }
    fn numerics(&self) -> NumericProfile {
        NumericProfile::F32
    }
    fn device(&self) -> DeviceInfo {
        let [hardware, driver, runtime] = ["a processor", "", "tests"].map(str::to_owned);
        DeviceInfo { kind: DeviceKind::Cpu, hardware, driver, runtime }
    }

    fn upload(&mut self, tensor: &HostTensor, as_dtype: DType) -> Result<Vector> {
        self.watch.enter(Op::Upload)?;
        if tensor.dtype() != DType::F32 || as_dtype != DType::F32 {
            return Err(BackendError::unimplemented(Op::Upload));
        }
        let word = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        Ok(self.tensor(tensor.shape(), tensor.bytes().chunks_exact(4).map(word).collect()))
    }
    fn host<'a>(&'a mut self, tensor: &'a Vector) -> Result<Option<Cow<'a, [f32]>>> {
        self.watch.enter(Op::Host)?;
        // A stand-in for memory that has no view: large tensors.
        Ok((tensor.values.len() < 100).then_some(Cow::Borrowed(&tensor.values)))
    }
    fn read(&mut self, tensor: &Vector) -> Result<Vec<f32>> {
        let mut values = tensor.values.clone();
        if let Some(Trip::Short) = self.watch.enter(Op::Read)? {
            values.pop();
        }
        Ok(values)
    }
    fn free(&mut self, _: Vector) -> Result<()> {
        self.watch.made(-1);
        self.watch.enter(Op::Free).map(|_| ())
    }
    fn sync(&mut self) -> Result<()> {
        self.watch.enter(Op::Sync).map(|_| ())
    }

    fn matmul(&mut self, w: &Vector, x: &Vector) -> Result<Vector> {
        let trip = self.watch.enter(Op::Matmul)?;
        let dot = |row: &[f32]| row.iter().zip(&x.values).map(|(a, b)| a * b).sum();
        let values: Vec<f32> = w.values.chunks_exact(x.values.len()).map(dot).collect();
        let shape = [values.len()];
        match trip {
            Some(Trip::Shape) => Ok(self.tensor(&[1, shape[0]], values)),
            _ => Ok(self.tensor(&shape, values)),
        }
    }
    fn rms_norm(&mut self, x: &Vector, _: &Vector, eps: f32) -> Result<Vector> {
        self.watch.enter(Op::RmsNorm)?;
        self.watch.scalar(eps);
        Ok(self.tensor(&x.desc.shape, x.values.clone()))
    }
    fn rope(&mut self, x: &Vector, spec: RopeSpec) -> Result<Vector> {
        self.watch.enter(Op::Rope)?;
        self.watch.scalar(spec.theta);
        Ok(self.tensor(&x.desc.shape, x.values.clone()))
    }
    fn add_in_place(&mut self, dst: &mut Vector, src: &Vector) -> Result<()> {
        self.watch.enter(Op::AddInPlace)?;
        dst.values.iter_mut().zip(&src.values).for_each(|(d, s)| *d += s);
        Ok(())
    }
    fn attention(&mut self, q: &Vector, _: &HostKv, _: usize, spec: AttentionSpec) -> Result<Vector> {
        self.watch.enter(Op::Attention)?;
        self.watch.scalar(spec.scale);
        Ok(self.tensor(&q.desc.shape, q.values.clone()))
    }
    fn argmax(&mut self, logits: &Vector) -> Result<usize> {
        self.watch.enter(Op::Argmax)?;
        let mut best = 0;
        for (i, value) in logits.values.iter().enumerate() {
            if *value > logits.values[best] {
                best = i;
            }
        }
        Ok(best)
    }

    fn kv_store(&mut self) -> Option<&mut dyn KvStore<Tensor = Vector, Kv = HostKv>> {
        Some(self)
    }
    fn collectives(&mut self) -> Option<&mut dyn Collectives<Tensor = Vector>> {
        Some(self)
    }
}
