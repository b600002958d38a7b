//! The KV store extension of the mock.

use modelbench_contract::wire::check as shapes;
use modelbench_contract::{BackendError, ErrorKind, KvConfig, KvStore, Op, Result};

use crate::check;
use crate::kv::MockKv;
use crate::mock::Mock;
use crate::tensor::MockTensor;
use crate::twist::Call;

impl KvStore for Mock {
    type Tensor = MockTensor;
    type Kv = MockKv;

    fn new_kv(&mut self, config: &KvConfig) -> Result<MockKv> {
        self.begin(&Call::new(Op::NewKv, &[]))?;
        MockKv::new(config).map_err(|error| error.in_op(Op::NewKv))
    }

    fn append(
        &mut self,
        kv: &mut MockKv,
        layer: usize,
        k_raw: &MockTensor,
        k_rope: &MockTensor,
        v: &MockTensor,
        pos: usize,
    ) -> Result<()> {
        let op = Op::KvAppend;
        self.begin(&Call::new(op, &[k_raw, k_rope, v]))?;
        let rows = shapes::append(&kv.config, layer, [&k_raw.desc, &k_rope.desc, &v.desc])?;
        let held = kv.held(layer);
        if pos != held {
            let text =
                format!("append at position {pos} of layer {layer}; expected {held}, the positions it holds");
            return Err(BackendError::invalid(text).in_op(op));
        }
        if layer > 0 && held + rows > kv.held(0) {
            return Err(BackendError::invalid(format!(
                "layer {layer} would hold {} positions, layer 0 has {}; append to layer 0 first",
                held + rows,
                kv.held(0)
            ))
            .in_op(op));
        }
        if held + rows > kv.config.capacity {
            return Err(BackendError::new(
                ErrorKind::ResourceExhausted,
                format!("{} positions in a store for {}; make a larger one", held + rows, kv.config.capacity),
            )
            .in_op(op));
        }
        let (raw, rope, values) = (self.view(k_raw), self.view(k_rope), self.view(v));
        let layer = &mut kv.layers[layer];
        layer.raw.extend_from_slice(&raw);
        layer.keys.extend_from_slice(&rope);
        layer.values.extend_from_slice(&values);
        Ok(())
    }

    fn len(&mut self, kv: &MockKv) -> Result<usize> {
        self.begin(&Call::new(Op::KvLen, &[]))?;
        Ok(kv.held(0))
    }

    fn keys(&mut self, kv: &MockKv, layer: usize) -> Result<Vec<f32>> {
        self.begin(&Call::new(Op::KvKeys, &[]))?;
        check::layer(Op::KvKeys, layer, kv.layers.len())?;
        Ok(kv.layers[layer].keys.clone())
    }

    fn values(&mut self, kv: &MockKv, layer: usize) -> Result<Vec<f32>> {
        self.begin(&Call::new(Op::KvValues, &[]))?;
        check::layer(Op::KvValues, layer, kv.layers.len())?;
        Ok(kv.layers[layer].values.clone())
    }

    fn positions(&mut self, kv: &MockKv) -> Result<Vec<usize>> {
        self.begin(&Call::new(Op::KvPositions, &[]))?;
        Ok((0..kv.held(0)).collect())
    }

    fn evict(&mut self, kv: &mut MockKv, from: i64, n: i64) -> Result<usize> {
        self.begin(&Call::new(Op::KvEvict, &[]))?;
        kv.evict(from, n, self.twist.rotates_survivors()).map_err(|error| error.in_op(Op::KvEvict))
    }

    fn clone_kv(&mut self, kv: &MockKv) -> Result<MockKv> {
        self.begin(&Call::new(Op::KvClone, &[]))?;
        Ok(kv.clone())
    }

    fn free_kv(&mut self, kv: MockKv) -> Result<()> {
        self.begin(&Call::new(Op::Free, &[]))?;
        drop(kv);
        Ok(())
    }
}
