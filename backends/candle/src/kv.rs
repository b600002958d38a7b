//! The KV store: three growing candle tensors per layer.

use candle_core::{DType as CandleDType, Device, Tensor};
use modelbench_contract::{BackendError, DeviceTensor, ErrorKind, KvConfig};

use crate::{
    CandleTensor,
    fault::Result,
    rope,
    shape::{admit, f32_operand, rows, same_shape},
};

/// Positions for which a fresh store has room.
const FIRST_ROOM: usize = 16;

/// Three matrices `[room, row_len]` of which the first `rows` rows count.
#[derive(Debug)]
struct Layer {
    k_raw: Tensor,
    k_rope: Tensor,
    v: Tensor,
    rows: usize,
}

/// A KV store in candle tensors.
#[derive(Debug)]
pub struct CandleKv {
    config: KvConfig,
    layers: Vec<Layer>,
}

fn empty(room: usize, row_len: usize, device: &Device) -> Result<Tensor> {
    Ok(Tensor::zeros((room, row_len), CandleDType::F32, device)?)
}

fn to_host(view: &Tensor) -> Result<Vec<f32>> {
    Ok(view.flatten_all()?.to_vec1::<f32>()?)
}

impl Layer {
    fn new(room: usize, row_len: usize, device: &Device) -> Result<Self> {
        let make = || empty(room, row_len, device);
        Ok(Layer { k_raw: make()?, k_rope: make()?, v: make()?, rows: 0 })
    }

    /// Makes room for `rows` rows, at least doubling so that appending stays cheap, never beyond `capacity`.
    fn grow(&mut self, rows: usize, capacity: usize) -> Result<()> {
        let (room, row_len) = self.v.dims2()?;
        if rows <= room {
            return Ok(());
        }
        let room = room.saturating_mul(2).max(rows).min(capacity);
        admit("KV rows", &[3, room, row_len])?;
        let mut grown = Layer::new(room, row_len, self.v.device())?;
        for (new, old) in [(&grown.k_raw, &self.k_raw), (&grown.k_rope, &self.k_rope), (&grown.v, &self.v)] {
            if self.rows > 0 {
                new.slice_set(&old.narrow(0, 0, self.rows)?, 0, 0)?;
            }
        }
        grown.rows = self.rows;
        *self = grown;
        Ok(())
    }

    /// Drops rows `from..from + n`, which exist, and rotates the survivors behind them afresh.
    fn evict(&mut self, from: usize, n: usize, config: &KvConfig) -> Result<()> {
        let tail = self.rows - from - n;
        if tail > 0 {
            // Copies, because source and target of the move share one tensor.
            let moved = |t: &Tensor| -> Result<Tensor> { Ok(t.narrow(0, from + n, tail)?.copy()?) };
            let (k_raw, v) = (moved(&self.k_raw)?, moved(&self.v)?);
            let k_rope = rope::rotate(&k_raw, from, config.kv_heads, config.head_dim, config.theta)?;
            self.k_raw.slice_set(&k_raw, 0, from)?;
            self.k_rope.slice_set(&k_rope, 0, from)?;
            self.v.slice_set(&v, 0, from)?;
        }
        self.rows -= n;
        Ok(())
    }
}

impl CandleKv {
    /// An empty store.
    ///
    /// # Errors
    /// `InvalidArgument` for zero extents, an odd head or a bad base; `ResourceExhausted` if `capacity` positions would
    /// not fit memory.
    pub(crate) fn new(config: &KvConfig, device: &Device) -> Result<Self> {
        let KvConfig { layers, kv_heads, head_dim, capacity, theta } = *config;
        if layers == 0 || capacity == 0 {
            return Err(BackendError::invalid(format!(
                "a KV store of {layers} layers and capacity {capacity}; expected at least one of each"
            ))
            .into());
        }
        rope::check(capacity, 0, kv_heads, head_dim, theta)?;
        admit(
            "KV store [3, layers, capacity, kv_heads, head_dim]",
            &[3, layers, capacity, kv_heads, head_dim],
        )?;
        let row_len = kv_heads * head_dim;
        let layers = (0..layers)
            .map(|_| Layer::new(capacity.min(FIRST_ROOM), row_len, device))
            .collect::<Result<Vec<_>>>()?;
        Ok(CandleKv { config: *config, layers })
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

    /// Positions that `layer` holds; below [`CandleKv::len`] while a position is being appended layer by layer.
    pub(crate) fn rows(&self, layer: usize) -> Result<usize> {
        Ok(self.layer(layer)?.rows)
    }

    /// The first `n` post-RoPE keys, `[n, row_len]`, without a copy. `n` is at least 1 and at most `rows(layer)`.
    pub(crate) fn keys_view(&self, layer: usize, n: usize) -> Result<Tensor> {
        Ok(self.layer(layer)?.k_rope.narrow(0, 0, n)?)
    }

    /// The first `n` values, as [`CandleKv::keys_view`].
    pub(crate) fn values_view(&self, layer: usize, n: usize) -> Result<Tensor> {
        Ok(self.layer(layer)?.v.narrow(0, 0, n)?)
    }

    /// Post-RoPE keys of a layer on the host.
    pub(crate) fn keys(&self, layer: usize) -> Result<Vec<f32>> {
        match self.rows(layer)? {
            0 => Ok(Vec::new()),
            n => to_host(&self.keys_view(layer, n)?),
        }
    }

    /// Values of a layer on the host.
    pub(crate) fn values(&self, layer: usize) -> Result<Vec<f32>> {
        match self.rows(layer)? {
            0 => Ok(Vec::new()),
            n => to_host(&self.values_view(layer, n)?),
        }
    }

    /// Appends the rows `[row_len]` or `[P, row_len]` at `pos`.
    pub(crate) fn append(
        &mut self,
        layer: usize,
        k_raw: &CandleTensor,
        k_rope: &CandleTensor,
        v: &CandleTensor,
        pos: usize,
    ) -> Result<()> {
        let row_len = self.config.row_len();
        let (p, n) = rows("k_raw", k_raw)?;
        same_shape("k_raw", k_raw, "k_rope", k_rope)?;
        same_shape("k_raw", k_raw, "v", v)?;
        if n != row_len {
            return Err(BackendError::invalid(format!(
                "k_raw has shape {:?}; expected rows of kv_heads*head_dim = {row_len} elements",
                k_raw.desc().shape
            ))
            .into());
        }
        let sources = [f32_operand("k_raw", k_raw)?, f32_operand("k_rope", k_rope)?, f32_operand("v", v)?];
        let (count, recorded, capacity) = (self.layers.len(), self.len(), self.config.capacity);
        let target = self.layers.get_mut(layer).ok_or_else(|| no_layer(layer, count))?;
        if pos != target.rows {
            return Err(BackendError::invalid(format!(
                "pos is {pos}; expected {}, the number of positions that layer {layer} holds",
                target.rows
            ))
            .into());
        }
        let end = pos
            .checked_add(p)
            .filter(|&end| end <= capacity)
            .ok_or_else(|| {
                BackendError::new(
                    ErrorKind::ResourceExhausted,
                    format!("{p} positions from {pos} exceed the capacity of {capacity}; evict some or make a larger store"),
                )
            })?;
        if layer > 0 && end > recorded {
            return Err(BackendError::invalid(format!(
                "layer {layer} would hold {end} positions, layer 0 recorded {recorded}; append to layer 0 first"
            ))
            .into());
        }
        target.grow(end, capacity)?;
        for (buffer, source) in [&target.k_raw, &target.k_rope, &target.v].into_iter().zip(sources) {
            buffer.slice_set(&source.reshape((p, row_len))?, 0, pos)?;
        }
        target.rows = end;
        Ok(())
    }

    /// Drops `n` positions from `from` in every layer; how many were dropped.
    pub(crate) fn evict(&mut self, from: i64, n: i64) -> Result<usize> {
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
        // The tail is copied and rotated outside the store; asking first keeps a refusal from leaving half the layers
        // evicted.
        admit("evicted rows", &[8, len, self.config.row_len()])?;
        for layer in &mut self.layers {
            layer.evict(from, dropped, &self.config)?;
        }
        Ok(dropped)
    }

    /// A copy in storage of its own.
    pub(crate) fn deep_clone(&self) -> Result<Self> {
        let total: usize = self.layers.iter().map(|layer| layer.v.elem_count()).sum();
        admit("copy of the KV store", &[3, total])?;
        let layers = self
            .layers
            .iter()
            .map(|l| {
                Ok(Layer { k_raw: l.k_raw.copy()?, k_rope: l.k_rope.copy()?, v: l.v.copy()?, rows: l.rows })
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(CandleKv { config: self.config, layers })
    }
}

fn no_layer(layer: usize, count: usize) -> BackendError {
    BackendError::invalid(format!("layer is {layer}; expected below {count}"))
}
