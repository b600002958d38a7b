//! The KV store of the backend under the tests. It keeps rows as they come and rotates nothing: the tests ask whether
//! calls arrive, not whether they are computed well.

use modelbench_contract::{BackendError, DeviceTensor, KvConfig, KvStore, Op, Result};

use crate::backend::{HostMemory, Trip, Vector};

#[derive(Clone)]
pub struct HostKv {
    row: usize,
    keys: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
}

impl KvStore for HostMemory {
    type Tensor = Vector;
    type Kv = HostKv;

    fn new_kv(&mut self, config: &KvConfig) -> Result<HostKv> {
        self.watch.enter(Op::NewKv)?;
        self.watch.made(1);
        let empty = vec![Vec::new(); config.layers];
        Ok(HostKv { row: config.row_len(), keys: empty.clone(), values: empty })
    }
    fn append(
        &mut self,
        kv: &mut HostKv,
        layer: usize,
        k_raw: &Vector,
        k_rope: &Vector,
        v: &Vector,
        pos: usize,
    ) -> Result<()> {
        self.watch.enter(Op::KvAppend)?;
        let held = kv.keys[layer].len() / kv.row;
        if pos != held || k_raw.desc().row_len() != kv.row {
            return Err(BackendError::invalid(format!("position {pos}, expected {held}")));
        }
        kv.keys[layer].extend(&k_rope.values);
        kv.values[layer].extend(&v.values);
        Ok(())
    }
    fn len(&mut self, kv: &HostKv) -> Result<usize> {
        self.watch.enter(Op::KvLen)?;
        Ok(kv.keys[0].len() / kv.row)
    }
    fn keys(&mut self, kv: &HostKv, layer: usize) -> Result<Vec<f32>> {
        let mut keys = kv.keys[layer].clone();
        if let Some(Trip::Short) = self.watch.enter(Op::KvKeys)? {
            keys.pop();
        }
        Ok(keys)
    }
    fn values(&mut self, kv: &HostKv, layer: usize) -> Result<Vec<f32>> {
        self.watch.enter(Op::KvValues)?;
        Ok(kv.values[layer].clone())
    }
    fn positions(&mut self, kv: &HostKv) -> Result<Vec<usize>> {
        self.watch.enter(Op::KvPositions)?;
        Ok((0..kv.keys[0].len() / kv.row).collect())
    }
    fn evict(&mut self, kv: &mut HostKv, from: i64, n: i64) -> Result<usize> {
        self.watch.enter(Op::KvEvict)?;
        let len = (kv.keys[0].len() / kv.row) as i64;
        if from < 0 || n <= 0 || from >= len {
            return Ok(0);
        }
        let end = from.saturating_add(n).min(len);
        let span = from as usize * kv.row..end as usize * kv.row;
        for rows in kv.keys.iter_mut().chain(&mut kv.values) {
            rows.drain(span.clone());
        }
        Ok((end - from) as usize)
    }
    fn clone_kv(&mut self, kv: &HostKv) -> Result<HostKv> {
        self.watch.enter(Op::KvClone)?;
        self.watch.made(1);
        Ok(kv.clone())
    }
    fn free_kv(&mut self, _: HostKv) -> Result<()> {
        self.watch.made(-1);
        self.watch.enter(Op::Free).map(|_| ())
    }
}
