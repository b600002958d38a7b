//! The honest KV store.

use modelbench_contract::{BackendError, ErrorKind, KvConfig, Result, RopeSpec};

use crate::arithmetic;

/// Rows of one layer, position after position: `[len, kv_dim]` each.
#[derive(Debug, Clone, Default)]
pub(crate) struct Layer {
    pub(crate) raw: Vec<f32>,
    pub(crate) keys: Vec<f32>,
    pub(crate) values: Vec<f32>,
}

/// A KV store of a mock.
#[derive(Debug, Clone)]
pub struct MockKv {
    pub(crate) config: KvConfig,
    pub(crate) layers: Vec<Layer>,
}

impl MockKv {
    /// An empty store with room for the whole capacity.
    pub(crate) fn new(config: &KvConfig) -> Result<Self> {
        let KvConfig { layers, kv_heads, head_dim, capacity, theta } = *config;
        let elements = kv_heads.checked_mul(head_dim).and_then(|row| row.checked_mul(capacity));
        let bytes =
            elements.and_then(|n| n.checked_mul(layers)).and_then(|n| n.checked_mul(3 * size_of::<f32>()));
        let shape_ok = ![layers, kv_heads, head_dim, capacity].contains(&0) && head_dim.is_multiple_of(2);
        let Some(elements) =
            elements.filter(|_| shape_ok && bytes.is_some() && theta.is_finite() && theta > 0.0)
        else {
            return Err(BackendError::invalid(format!(
                "{config:?}: expected no zero, an even head_dim, a theta above 0, and a size that fits memory"
            )));
        };
        let mut store = MockKv { config: *config, layers: Vec::new() };
        for _ in 0..layers {
            let mut layer = Layer::default();
            for rows in [&mut layer.raw, &mut layer.keys, &mut layer.values] {
                rows.try_reserve_exact(elements).map_err(|_| {
                    let message = format!("no memory for {capacity} positions in {layers} layers");
                    BackendError::new(ErrorKind::ResourceExhausted, message)
                })?;
            }
            store.layers.push(layer);
        }
        Ok(store)
    }

    /// Positions held by a layer.
    pub(crate) fn held(&self, layer: usize) -> usize {
        self.layers.get(layer).map_or(0, |layer| layer.raw.len() / self.config.row_len().max(1))
    }

    /// Drops `n` positions from `from`; keys of survivors that moved are made anew if `rotate` is true.
    pub(crate) fn evict(&mut self, from: i64, n: i64, rotate: bool) -> Result<usize> {
        let held = self.held(0);
        let (Ok(from), Ok(n)) = (usize::try_from(from), usize::try_from(n)) else { return Ok(0) };
        if n == 0 || from >= held {
            return Ok(0);
        }
        if let Some(short) = (0..self.layers.len()).find(|&layer| self.held(layer) != held) {
            return Err(BackendError::invalid(format!(
                "layer {short} holds {} positions and layer 0 holds {held}; append to every layer before evict",
                self.held(short)
            )));
        }
        let end = from.saturating_add(n).min(held);
        let row = self.config.row_len();
        for layer in &mut self.layers {
            for rows in [&mut layer.raw, &mut layer.keys, &mut layer.values] {
                rows.drain(from * row..end * row);
            }
            let moved = from * row;
            if rotate && moved < layer.raw.len() {
                let KvConfig { kv_heads: n_heads, head_dim, theta, .. } = self.config;
                let spec = RopeSpec { pos: from, n_heads, head_dim, theta };
                let fresh = arithmetic::rope(&layer.raw[moved..], row, &spec);
                layer.keys.truncate(moved);
                layer.keys.extend(fresh);
            }
        }
        Ok(end - from)
    }
}
