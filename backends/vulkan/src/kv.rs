//! The KV store: three growing matrices of rows per layer, on the device.

use modelbench_contract::wire::check;
use modelbench_contract::{BackendError, DeviceTensor, ErrorKind, KvConfig, RopeSpec};

use crate::VulkanTensor;
use crate::gpu::{Gpu, Memory, Result};
use crate::rope::{self, Rotation, Turns};

/// Positions for which a fresh store has room.
const FIRST_ROOM: usize = 64;

/// Three matrices `[room, row_len]` of which the first `rows` rows count.
#[derive(Debug)]
struct Layer {
    k_raw: Memory,
    k_rope: Memory,
    v: Memory,
    room: usize,
    rows: usize,
}

/// A KV store in device memory.
#[derive(Debug)]
pub struct VulkanKv {
    config: KvConfig,
    layers: Vec<Layer>,
}

impl Layer {
    fn new(gpu: &mut Gpu, room: usize, row_len: usize) -> Result<Layer> {
        let mut make = || gpu.floats("rows of a KV store", room.saturating_mul(row_len));
        Ok(Layer { k_raw: make()?, k_rope: make()?, v: make()?, room, rows: 0 })
    }

    /// A copy of the rows in memory of its own, with room for `room` positions.
    fn copied(&self, gpu: &mut Gpu, room: usize, row_len: usize) -> Result<Layer> {
        let mut copy = Layer::new(gpu, room, row_len)?;
        let bytes = bytes(self.rows, row_len);
        if bytes > 0 {
            for (new, old) in [(&copy.k_raw, &self.k_raw), (&copy.k_rope, &self.k_rope), (&copy.v, &self.v)] {
                gpu.copy(&old.part(0, bytes), &new.part(0, bytes))?;
            }
        }
        copy.rows = self.rows;
        Ok(copy)
    }
}

/// Bytes of `rows` rows.
fn bytes(rows: usize, row_len: usize) -> u64 {
    4 * rows as u64 * row_len as u64
}

impl VulkanKv {
    /// An empty store.
    ///
    /// # Errors
    /// `InvalidArgument` for zero extents, an odd head or a bad base; `ResourceExhausted` if `capacity` positions would
    /// not fit the device.
    pub(crate) fn new(gpu: &mut Gpu, config: &KvConfig) -> Result<VulkanKv> {
        check::kv_config(config)?;
        rope::check(config.capacity, 0, config.theta)?;
        let row_len = config.row_len();
        let matrix = bytes(config.capacity, row_len);
        let whole = u128::from(matrix) * 3 * config.layers as u128;
        let facts = gpu.facts();
        if matrix > facts.largest_binding || whole > u128::from(facts.heap) {
            let text = format!(
                "{config:?} needs {whole} bytes in matrices of {matrix}; the device has {} and its kernels see {}",
                facts.heap, facts.largest_binding
            );
            return Err(BackendError::new(ErrorKind::ResourceExhausted, text).into());
        }
        let room = config.capacity.min(FIRST_ROOM);
        let layers =
            (0..config.layers).map(|_| Layer::new(gpu, room, row_len)).collect::<Result<Vec<_>>>()?;
        Ok(VulkanKv { config: *config, layers })
    }

    pub(crate) fn config(&self) -> &KvConfig {
        &self.config
    }

    /// Positions recorded with layer 0.
    pub(crate) fn len(&self) -> usize {
        self.layers.first().map_or(0, |layer| layer.rows)
    }

    fn layer(&self, layer: usize) -> Result<&Layer> {
        Ok(self.layers.get(layer).ok_or_else(|| no_layer(layer, self.layers.len()))?)
    }

    /// Positions that `layer` holds; below [`VulkanKv::len`] while a position is being appended layer by layer.
    pub(crate) fn rows(&self, layer: usize) -> Result<usize> {
        Ok(self.layer(layer)?.rows)
    }

    /// Post-RoPE keys and values of a layer, `[room, row_len]` each.
    pub(crate) fn memories(&self, layer: usize) -> Result<(&Memory, &Memory)> {
        let layer = self.layer(layer)?;
        Ok((&layer.k_rope, &layer.v))
    }

    /// Post-RoPE keys of a layer on the host; waits.
    pub(crate) fn keys(&self, gpu: &mut Gpu, layer: usize) -> Result<Vec<f32>> {
        let layer = self.layer(layer)?;
        self.to_host(gpu, &layer.k_rope, layer.rows)
    }

    /// Values of a layer on the host; waits.
    pub(crate) fn values(&self, gpu: &mut Gpu, layer: usize) -> Result<Vec<f32>> {
        let layer = self.layer(layer)?;
        self.to_host(gpu, &layer.v, layer.rows)
    }

    fn to_host(&self, gpu: &mut Gpu, memory: &Memory, rows: usize) -> Result<Vec<f32>> {
        if rows == 0 {
            return Ok(Vec::new());
        }
        gpu.download_floats(&memory.part(0, bytes(rows, self.config.row_len())))
    }

    /// Appends the rows `[row_len]` or `[P, row_len]` at `pos`.
    pub(crate) fn append(
        &mut self,
        gpu: &mut Gpu,
        layer: usize,
        rows: [&VulkanTensor; 3],
        pos: usize,
    ) -> Result<()> {
        let count = check::append(&self.config, layer, rows.map(DeviceTensor::desc))?;
        let (row_len, capacity, recorded) = (self.config.row_len(), self.config.capacity, self.len());
        let layers = self.layers.len();
        let target = self.layers.get_mut(layer).ok_or_else(|| no_layer(layer, layers))?;
        if pos != target.rows {
            return Err(BackendError::invalid(format!(
                "pos is {pos}; expected {}, the number of positions that layer {layer} holds",
                target.rows
            ))
            .into());
        }
        let end = pos.checked_add(count).filter(|&end| end <= capacity).ok_or_else(|| {
            let text = format!(
                "{count} positions from {pos} exceed the capacity of {capacity}; evict some or make a larger store"
            );
            BackendError::new(ErrorKind::ResourceExhausted, text)
        })?;
        if layer > 0 && end > recorded {
            return Err(BackendError::invalid(format!(
                "layer {layer} would hold {end} positions, layer 0 recorded {recorded}; append to layer 0 first"
            ))
            .into());
        }
        if end > target.room {
            // At least twice the room, so that appending stays cheap.
            let room = target.room.saturating_mul(2).max(end).min(capacity);
            *target = target.copied(gpu, room, row_len)?;
        }
        let (offset, len) = (bytes(pos, row_len), bytes(count, row_len));
        for (memory, source) in [&target.k_raw, &target.k_rope, &target.v].into_iter().zip(rows) {
            gpu.copy(&source.memory().part(0, len), &memory.part(offset, len))?;
        }
        target.rows = end;
        Ok(())
    }

    /// Drops `n` positions from `from` in every layer; how many were dropped.
    pub(crate) fn evict(&mut self, gpu: &mut Gpu, turns: &mut Turns, from: i64, n: i64) -> Result<usize> {
        let len = self.len();
        let (Ok(from), Ok(n)) = (usize::try_from(from), usize::try_from(n)) else { return Ok(0) };
        if n == 0 || from >= len {
            return Ok(0);
        }
        if let Some(short) = self.layers.iter().position(|layer| layer.rows != len) {
            return Err(BackendError::invalid(format!(
                "layer {short} holds fewer positions than the {len} of layer 0; append to every layer before evicting"
            ))
            .into());
        }
        let dropped = n.min(len - from);
        let tail = len - from - dropped;
        let row_len = self.config.row_len();
        if tail > 0 {
            // Everything that may be refused is asked for before the first row moves.
            let spare = gpu.floats("rows that move", tail.saturating_mul(row_len))?;
            let KvConfig { kv_heads, head_dim, theta, .. } = self.config;
            let spec = RopeSpec { pos: from, n_heads: kv_heads, head_dim, theta };
            let _table = turns.table(gpu, tail, &spec)?;
            let (source, target, moved) =
                (bytes(from + dropped, row_len), bytes(from, row_len), bytes(tail, row_len));
            for layer in &self.layers {
                for memory in [&layer.k_raw, &layer.v] {
                    gpu.copy(&memory.part(source, moved), &spare.whole())?;
                    gpu.copy(&spare.whole(), &memory.part(target, moved))?;
                }
                let rotation = Rotation { rows: tail, from, to: from, spec };
                turns.rotate(gpu, &layer.k_raw, &layer.k_rope, rotation)?;
            }
        }
        for layer in &mut self.layers {
            layer.rows -= dropped;
        }
        Ok(dropped)
    }

    /// A copy in memory of its own.
    pub(crate) fn deep_clone(&self, gpu: &mut Gpu) -> Result<VulkanKv> {
        let row_len = self.config.row_len();
        let copy = |layer: &Layer| layer.copied(gpu, layer.room, row_len);
        let layers = self.layers.iter().map(copy).collect::<Result<Vec<_>>>()?;
        Ok(VulkanKv { config: self.config, layers })
    }
}

fn no_layer(layer: usize, count: usize) -> BackendError {
    BackendError::invalid(format!("layer is {layer}; expected below {count}"))
}
