//! The KV store: three rows for each position and layer.

use modelbench_contract::{BackendError, DeviceTensor, ErrorKind, KvConfig, KvStore, Op, Result};

use crate::attention::CachedRows;
use crate::rope::Rotation;
use crate::{CpuRef, RefTensor, check};

/// The rows of one layer, `[len, kv_dim]` each.
#[derive(Debug)]
struct Layer {
    raw: Vec<f32>,
    rotated: Vec<f32>,
    values: Vec<f32>,
}

impl Layer {
    /// Room for `elements` in each of the three kinds of rows.
    fn with_room(elements: usize) -> Result<Self> {
        Ok(Layer {
            raw: check::room("pre-RoPE keys", elements)?,
            rotated: check::room("post-RoPE keys", elements)?,
            values: check::room("values", elements)?,
        })
    }

    fn kinds(&mut self) -> [&mut Vec<f32>; 3] {
        [&mut self.raw, &mut self.rotated, &mut self.values]
    }
}

/// A KV store of cpu-ref. Its full capacity is reserved when it is made, so `append` never moves rows.
#[derive(Debug)]
pub struct RefKv {
    config: KvConfig,
    row_len: usize,
    layers: Vec<Layer>,
}

impl RefKv {
    /// The shape that it was made with.
    pub fn config(&self) -> &KvConfig {
        &self.config
    }

    /// An empty store.
    ///
    /// # Errors
    /// `InvalidArgument` if a field is 0, `head_dim` is odd, `theta` is not finite and positive, or the size overflows;
    /// `ResourceExhausted` if the capacity cannot be reserved.
    pub(crate) fn new(config: &KvConfig) -> Result<Self> {
        let KvConfig { layers, kv_heads, head_dim, capacity, theta } = *config;
        if [layers, kv_heads, head_dim, capacity].contains(&0) || !head_dim.is_multiple_of(2) {
            return Err(BackendError::invalid(format!(
                "KV store of {layers} layers, {kv_heads} KV heads, head_dim {head_dim}, capacity {capacity}; expected \
                 all of them at least 1 and an even head_dim"
            )));
        }
        check::scalar("theta", theta, theta > 0.0, "a finite number above 0")?;
        check::product(
            "KV store [3, layers, kv_heads, head_dim, capacity] =",
            &[3, layers, kv_heads, head_dim, capacity],
        )?;
        let row_len = kv_heads * head_dim;
        let mut store = RefKv { config: *config, row_len, layers: check::room("KV layers", layers)? };
        for _ in 0..layers {
            store.layers.push(Layer::with_room(row_len * capacity)?);
        }
        Ok(store)
    }

    /// Rows of a layer for attention.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no such layer.
    pub(crate) fn rows(&self, layer: usize) -> Result<CachedRows<'_>> {
        let rows = self.layer(layer)?;
        let KvConfig { kv_heads, head_dim, .. } = self.config;
        Ok(CachedRows { keys: &rows.rotated, values: &rows.values, kv_heads, head_dim })
    }

    /// Positions held, as recorded with layer 0.
    fn len(&self) -> usize {
        self.layers.first().map_or(0, |layer| layer.raw.len() / self.row_len)
    }

    fn layer(&self, layer: usize) -> Result<&Layer> {
        self.layers.get(layer).ok_or_else(|| {
            BackendError::invalid(format!(
                "layer {layer}; expected below {}, the store's layers",
                self.layers.len()
            ))
        })
    }

    fn append(&mut self, layer: usize, rows: [&RefTensor; 3], pos: usize) -> Result<()> {
        let [k_raw, k_rope, v] = rows;
        check::same_shape("k_raw", k_raw, "k_rope", k_rope)?;
        check::same_shape("k_raw", k_raw, "v", v)?;
        let (count, row_len) = check::rows("k_raw", k_raw)?;
        if row_len != self.row_len {
            return Err(BackendError::invalid(format!(
                "k_raw has shape {:?}; expected rows of kv_heads {} * head_dim {} = {}",
                k_raw.desc().shape,
                self.config.kv_heads,
                self.config.head_dim,
                self.row_len
            )));
        }
        let held = self.layer(layer)?.raw.len() / self.row_len;
        if pos != held {
            return Err(BackendError::invalid(format!(
                "append at position {pos} of layer {layer}, which holds {held} positions; expected {held}"
            )));
        }
        let end = held.saturating_add(count);
        if end > self.config.capacity {
            return Err(BackendError::new(
                ErrorKind::ResourceExhausted,
                format!("append to {end} positions; the store was made for {}", self.config.capacity),
            ));
        }
        if layer > 0 && end > self.len() {
            return Err(BackendError::invalid(format!(
                "append to {end} positions of layer {layer}, but layer 0 recorded {}; append to layer 0 first",
                self.len()
            )));
        }
        let new = [
            check::f32_values("k_raw", k_raw)?,
            check::f32_values("k_rope", k_rope)?,
            check::f32_values("v", v)?,
        ];
        if let Some(layer) = self.layers.get_mut(layer) {
            for (kept, new) in layer.kinds().into_iter().zip(new) {
                kept.extend_from_slice(new);
            }
        }
        Ok(())
    }

    fn evict(&mut self, from: i64, n: i64) -> Result<usize> {
        let len = self.len();
        let (Ok(from), Ok(n)) = (usize::try_from(from), usize::try_from(n)) else { return Ok(0) };
        if n == 0 || from >= len {
            return Ok(0);
        }
        if let Some(short) = self.layers.iter().position(|layer| layer.raw.len() != len * self.row_len) {
            return Err(BackendError::invalid(format!(
                "evict while layer {short} holds fewer positions than the {len} of layer 0; append to every layer first"
            )));
        }
        let end = from.saturating_add(n).min(len);
        let rotation = Rotation::new(self.config.head_dim, self.config.theta)?;
        let span = from * self.row_len..end * self.row_len;
        for layer in &mut self.layers {
            for rows in layer.kinds() {
                rows.drain(span.clone());
            }
            // Survivors behind the span moved: their keys are rotated anew from the pre-RoPE rows, which differs in
            // bits from rotating the rotated keys back.
            layer.rotated[span.start..].copy_from_slice(&layer.raw[span.start..]);
            for (i, row) in layer.rotated[span.start..].chunks_exact_mut(self.row_len).enumerate() {
                rotation.rotate(row, from + i);
            }
        }
        Ok(end - from)
    }

    fn deep_clone(&self) -> Result<Self> {
        let mut copy = RefKv::new(&self.config)?;
        for (to, from) in copy.layers.iter_mut().zip(&self.layers) {
            to.raw.extend_from_slice(&from.raw);
            to.rotated.extend_from_slice(&from.rotated);
            to.values.extend_from_slice(&from.values);
        }
        Ok(copy)
    }
}

/// A copy of rows that the caller owns.
fn copied(rows: &[f32]) -> Result<Vec<f32>> {
    let mut copy = check::room("KV rows", rows.len())?;
    copy.extend_from_slice(rows);
    Ok(copy)
}

impl KvStore for CpuRef {
    type Tensor = RefTensor;
    type Kv = RefKv;

    fn new_kv(&mut self, config: &KvConfig) -> Result<RefKv> {
        RefKv::new(config).map_err(|e| e.in_op(Op::NewKv))
    }

    fn append(
        &mut self,
        kv: &mut RefKv,
        layer: usize,
        k_raw: &RefTensor,
        k_rope: &RefTensor,
        v: &RefTensor,
        pos: usize,
    ) -> Result<()> {
        kv.append(layer, [k_raw, k_rope, v], pos).map_err(|e| e.in_op(Op::KvAppend))
    }

    fn len(&mut self, kv: &RefKv) -> Result<usize> {
        Ok(kv.len())
    }

    fn keys(&mut self, kv: &RefKv, layer: usize) -> Result<Vec<f32>> {
        kv.layer(layer).and_then(|layer| copied(&layer.rotated)).map_err(|e| e.in_op(Op::KvKeys))
    }

    fn values(&mut self, kv: &RefKv, layer: usize) -> Result<Vec<f32>> {
        kv.layer(layer).and_then(|layer| copied(&layer.values)).map_err(|e| e.in_op(Op::KvValues))
    }

    fn positions(&mut self, kv: &RefKv) -> Result<Vec<usize>> {
        Ok((0..kv.len()).collect())
    }

    fn evict(&mut self, kv: &mut RefKv, from: i64, n: i64) -> Result<usize> {
        kv.evict(from, n).map_err(|e| e.in_op(Op::KvEvict))
    }

    fn clone_kv(&mut self, kv: &RefKv) -> Result<RefKv> {
        kv.deep_clone().map_err(|e| e.in_op(Op::KvClone))
    }

    fn free_kv(&mut self, kv: RefKv) -> Result<()> {
        drop(kv);
        Ok(())
    }
}
