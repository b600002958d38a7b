//! A backend for unit tests: cpu-ref with a fault that the test chooses.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use modelbench_contract::{
    AttentionSpec, Backend, Caps, Class, DType, DeviceInfo, DeviceTensor, HostTensor, KvConfig, KvStore,
    NumericProfile, Op, Result, RopeSpec, TensorDesc,
};
use modelbench_reference::{CpuRef, RefKv, RefTensor};

/// A tensor of cpu-ref under a handle of its own.
pub struct Tensor {
    id: u64,
    inner: RefTensor,
}

impl DeviceTensor for Tensor {
    fn desc(&self) -> &TensorDesc {
        self.inner.desc()
    }
}

/// A call, as a fault sees it.
pub struct Seen<'a> {
    pub op: Op,
    /// Handle, shape and values of each operand; attention shows its query only.
    pub inputs: &'a [(u64, Vec<usize>, Vec<f32>)],
    /// Contents of the tensors that were freed, oldest first.
    pub freed: &'a [Vec<f32>],
}

type OnResult = Box<dyn FnMut(&Seen<'_>, &mut Vec<f32>)>;
type OnRead = Box<dyn FnMut(u64, &mut Vec<f32>)>;
type OnRows = Box<dyn FnMut(&mut Vec<f32>)>;

/// cpu-ref with a fault.
pub struct Faulty {
    inner: CpuRef,
    next: u64,
    freed: Vec<Vec<f32>>,
    idle_stores: Vec<RefKv>,
    pub on_result: OnResult,
    pub on_read: OnRead,
    /// Spoils the rows that a store shows.
    pub on_rows: OnRows,
    /// True if a clone of a store is the store itself.
    pub shallow_clones: bool,
    /// True if a new store is a freed one with its rows.
    pub keeps_rows: bool,
    /// True if eviction makes the keys of survivors anew.
    pub evict_rotates: bool,
    /// Added to the position from which eviction drops.
    pub evict_offset: i64,
    /// True if a store of any size is granted.
    pub grants_any_store: bool,
    /// True if a freed tensor stays allocated.
    pub free_is_no_op: bool,
    /// Bytes that live tensors hold; a free that is no free leaves them.
    pub held: Rc<Cell<u64>>,
}

impl Faulty {
    pub fn honest() -> Faulty {
        Faulty {
            inner: CpuRef::new(),
            next: 0,
            freed: Vec::new(),
            idle_stores: Vec::new(),
            on_result: Box::new(|_, _| {}),
            on_read: Box::new(|_, _| {}),
            on_rows: Box::new(|_| {}),
            shallow_clones: false,
            keeps_rows: false,
            evict_rotates: true,
            evict_offset: 0,
            grants_any_store: false,
            free_is_no_op: false,
            held: Rc::new(Cell::new(0)),
        }
    }

    pub fn spoiling(on_result: impl FnMut(&Seen<'_>, &mut Vec<f32>) + 'static) -> Faulty {
        Faulty { on_result: Box::new(on_result), ..Faulty::honest() }
    }

    fn wrap(&mut self, inner: RefTensor) -> Tensor {
        self.next += 1;
        self.held.set(self.held.get() + 4 * inner.desc().elements() as u64);
        Tensor { id: self.next, inner }
    }

    /// Replaces a result of cpu-ref by what the fault makes of it.
    fn spoil(&mut self, op: Op, inputs: &[&Tensor], result: RefTensor) -> Result<RefTensor> {
        let mut seen = Vec::new();
        for t in inputs {
            seen.push((t.id, t.desc().shape.clone(), self.inner.read(&t.inner)?));
        }
        let shape = result.desc().shape.clone();
        let mut values = self.inner.read(&result)?;
        (self.on_result)(&Seen { op, inputs: &seen, freed: &self.freed }, &mut values);
        self.inner.upload(&HostTensor::from_f32(&shape, &values)?, DType::F32)
    }

    /// Makes the store anew from rows whose pre-RoPE keys are the post-RoPE ones of the survivors.
    fn evict_without_rotation(&mut self, kv: &mut RefKv, from: i64, n: i64) -> Result<usize> {
        let (held, config) = (self.inner.len(kv)?, *kv.config());
        let keys = (0..config.layers).map(|l| self.inner.keys(kv, l)).collect::<Result<Vec<_>>>()?;
        let dropped = self.inner.evict(kv, from, n)?;
        let left: Vec<usize> =
            (0..held).filter(|i| !(from as usize..from as usize + dropped).contains(i)).collect();
        let mut fresh = self.inner.new_kv(&config)?;
        let width = config.row_len();
        for (layer, keys) in keys.iter().enumerate() {
            let values = KvStore::values(&mut self.inner, kv, layer)?;
            if left.is_empty() {
                continue;
            }
            let kept: Vec<f32> =
                left.iter().flat_map(|i| keys[i * width..(i + 1) * width].to_vec()).collect();
            let mut up = |rows: &[f32]| {
                self.inner.upload(&HostTensor::from_f32(&[left.len(), width], rows)?, DType::F32)
            };
            let (keys, values) = (up(&kept)?, up(&values)?);
            self.inner.append(&mut fresh, layer, &keys, &keys, &values, 0)?;
        }
        *kv = fresh;
        Ok(dropped)
    }

    fn result(&mut self, op: Op, inputs: &[&Tensor], result: RefTensor) -> Result<Tensor> {
        let spoilt = self.spoil(op, inputs, result)?;
        Ok(self.wrap(spoilt))
    }
}

impl Backend for Faulty {
    type Tensor = Tensor;
    type Kv = Rc<RefCell<RefKv>>;

    fn name(&self) -> &str {
        "faulty"
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
        self.inner.numerics()
    }
    fn device(&self) -> DeviceInfo {
        self.inner.device()
    }
    fn upload(&mut self, tensor: &HostTensor, as_dtype: DType) -> Result<Tensor> {
        let inner = self.inner.upload(tensor, as_dtype)?;
        Ok(self.wrap(inner))
    }
    fn host<'a>(&'a mut self, tensor: &'a Tensor) -> Result<Option<Cow<'a, [f32]>>> {
        self.inner.host(&tensor.inner)
    }
    fn read(&mut self, tensor: &Tensor) -> Result<Vec<f32>> {
        let mut values = self.inner.read(&tensor.inner)?;
        (self.on_read)(tensor.id, &mut values);
        Ok(values)
    }
    fn free(&mut self, tensor: Tensor) -> Result<()> {
        self.freed.push(self.inner.read(&tensor.inner)?);
        if !self.free_is_no_op {
            self.held.set(self.held.get() - 4 * tensor.desc().elements() as u64);
        }
        self.inner.free(tensor.inner)
    }
    fn matmul(&mut self, w: &Tensor, x: &Tensor) -> Result<Tensor> {
        let result = self.inner.matmul(&w.inner, &x.inner)?;
        self.result(Op::Matmul, &[w, x], result)
    }
    fn batched_matmul(&mut self, w: &Tensor, x: &Tensor) -> Result<Tensor> {
        let result = self.inner.batched_matmul(&w.inner, &x.inner)?;
        self.result(Op::BatchedMatmul, &[w, x], result)
    }
    fn rms_norm(&mut self, x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
        let result = self.inner.rms_norm(&x.inner, &weight.inner, eps)?;
        self.result(Op::RmsNorm, &[x, weight], result)
    }
    fn rope(&mut self, x: &Tensor, spec: RopeSpec) -> Result<Tensor> {
        let result = self.inner.rope(&x.inner, spec)?;
        self.result(Op::Rope, &[x], result)
    }
    fn swiglu(&mut self, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
        let result = self.inner.swiglu(&gate.inner, &up.inner)?;
        self.result(Op::Swiglu, &[gate, up], result)
    }
    fn add_in_place(&mut self, dst: &mut Tensor, src: &Tensor) -> Result<()> {
        self.inner.add_in_place(&mut dst.inner, &src.inner)
    }
    fn add_bias(&mut self, dst: &mut Tensor, bias: &Tensor) -> Result<()> {
        self.inner.add_bias(&mut dst.inner, &bias.inner)
    }
    fn attention(&mut self, q: &Tensor, kv: &Self::Kv, layer: usize, spec: AttentionSpec) -> Result<Tensor> {
        let result = self.inner.attention(&q.inner, &kv.borrow(), layer, spec)?;
        self.result(Op::Attention, &[q], result)
    }
    fn argmax(&mut self, logits: &Tensor) -> Result<usize> {
        self.inner.argmax(&logits.inner)
    }
    fn kv_store(&mut self) -> Option<&mut dyn KvStore<Tensor = Tensor, Kv = Self::Kv>> {
        Some(self)
    }
}

impl KvStore for Faulty {
    type Tensor = Tensor;
    type Kv = Rc<RefCell<RefKv>>;

    fn new_kv(&mut self, config: &KvConfig) -> Result<Self::Kv> {
        let idle = self.idle_stores.iter().position(|store| store.config() == config);
        let small = KvConfig { layers: 1, kv_heads: 1, head_dim: 2, capacity: 1, ..*config };
        let store = match idle {
            Some(at) => self.idle_stores.remove(at),
            None if self.grants_any_store => self.inner.new_kv(&small)?,
            None => self.inner.new_kv(config)?,
        };
        Ok(Rc::new(RefCell::new(store)))
    }
    fn append(
        &mut self,
        kv: &mut Self::Kv,
        layer: usize,
        k_raw: &Tensor,
        k_rope: &Tensor,
        v: &Tensor,
        pos: usize,
    ) -> Result<()> {
        self.inner.append(&mut kv.borrow_mut(), layer, &k_raw.inner, &k_rope.inner, &v.inner, pos)
    }
    fn len(&mut self, kv: &Self::Kv) -> Result<usize> {
        self.inner.len(&kv.borrow())
    }
    fn keys(&mut self, kv: &Self::Kv, layer: usize) -> Result<Vec<f32>> {
        let mut rows = self.inner.keys(&kv.borrow(), layer)?;
        (self.on_rows)(&mut rows);
        Ok(rows)
    }
    fn values(&mut self, kv: &Self::Kv, layer: usize) -> Result<Vec<f32>> {
        let mut rows = self.inner.values(&kv.borrow(), layer)?;
        (self.on_rows)(&mut rows);
        Ok(rows)
    }
    fn positions(&mut self, kv: &Self::Kv) -> Result<Vec<usize>> {
        self.inner.positions(&kv.borrow())
    }
    fn evict(&mut self, kv: &mut Self::Kv, from: i64, n: i64) -> Result<usize> {
        let mut kv = kv.borrow_mut();
        if self.evict_rotates {
            return self.inner.evict(&mut kv, from + self.evict_offset, n);
        }
        self.evict_without_rotation(&mut kv, from, n)
    }
    fn clone_kv(&mut self, kv: &Self::Kv) -> Result<Self::Kv> {
        if self.shallow_clones {
            return Ok(Rc::clone(kv));
        }
        Ok(Rc::new(RefCell::new(self.inner.clone_kv(&kv.borrow())?)))
    }
    fn free_kv(&mut self, kv: Self::Kv) -> Result<()> {
        match Rc::try_unwrap(kv) {
            Ok(kv) if self.keeps_rows => self.idle_stores.push(kv.into_inner()),
            Ok(kv) => self.inner.free_kv(kv.into_inner())?,
            Err(_) => {}
        }
        Ok(())
    }
}

/// The cases of the kit's own suites whose ids begin so.
pub fn cases(prefix: &str) -> Vec<crate::suite::Case> {
    use crate::suite::{SuiteTree, Suites};
    let all = Suites::load(SuiteTree::embedded()).expect("the kit's own suites").cases;
    let found: Vec<_> = all.into_iter().filter(|case| case.id.starts_with(prefix)).collect();
    assert!(!found.is_empty(), "no case begins with {prefix}");
    found
}

/// The defects that a check finds; an error of the backend counts as one.
pub fn defects(found: Result<super::Finding, super::CheckError>) -> Vec<String> {
    match found {
        Ok(finding) => finding.wrong,
        Err(super::CheckError::Backend(error)) => vec![error.to_string()],
        Err(error) => panic!("the kit failed: {error}"),
    }
}
