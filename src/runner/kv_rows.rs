//! Rows for KV stores, and what a store that holds some of them must answer.

use modelbench_contract::{
    AttentionSpec, Backend, BackendError, DType, HostTensor, KvConfig, KvStore, NumericProfile, Op, Result,
};

use super::finding::CheckError;
use super::ops::allowance;
use super::script::Script;
use crate::compare::Want;
use crate::inputs::{Stream, value};
use crate::oracle::{self, AttentionInput};
use crate::suite::Case;

/// The KV store extension, or the answer of a backend without one.
///
/// # Errors
/// `Unimplemented`.
pub fn kv_store<B: Backend>(
    backend: &mut B,
) -> Result<&mut dyn KvStore<Tensor = B::Tensor, Kv = B::Kv>, BackendError> {
    backend.kv_store().ok_or_else(|| BackendError::unimplemented(Op::NewKv))
}

/// Rows of one layer, `[positions, kv_heads*head_dim]` each.
#[derive(Debug, Clone)]
pub struct LayerRows {
    /// Keys before RoPE.
    pub k_raw: Vec<f32>,
    /// Keys as attention reads them.
    pub keys: Vec<f32>,
    /// Values.
    pub values: Vec<f32>,
}

/// What a store shall hold, and queries for it.
#[derive(Debug, Clone)]
pub struct KvRows {
    /// Shape of the store.
    pub config: KvConfig,
    /// Query heads for each KV head.
    pub group: usize,
    /// Its layers.
    pub layers: Vec<LayerRows>,
    /// One query for each position, `[positions, kv_heads*group*head_dim]`.
    pub queries: Vec<f32>,
}

impl KvRows {
    /// Rows for `positions` positions made by the case's recipe; `name` keeps several sets of one case apart.
    pub fn new(
        case: &Case,
        seed: u64,
        name: &str,
        config: KvConfig,
        group: usize,
        positions: usize,
    ) -> KvRows {
        let make = |what: &str, n: usize| -> Vec<f32> {
            let stream = Stream::new(seed, &case.id, &format!("{name} {what}"));
            (0..n as u64).map(|i| value(case.group.input, &stream, i)).collect()
        };
        let n = positions * config.row_len();
        let layers = (0..config.layers).map(|layer| LayerRows {
            k_raw: make(&format!("k_raw{layer}"), n),
            keys: make(&format!("k_rope{layer}"), n),
            values: make(&format!("v{layer}"), n),
        });
        KvRows { config, group, layers: layers.collect(), queries: make("q", n * group) }
    }

    /// Grouping and scale of the attention over these rows.
    pub fn spec(&self) -> AttentionSpec {
        AttentionSpec::causal(self.group, self.config.head_dim)
    }

    /// Elements of one query.
    pub fn query_len(&self) -> usize {
        self.config.row_len() * self.group
    }

    /// Positions that there are rows for.
    pub fn positions(&self) -> usize {
        self.queries.len() / self.query_len().max(1)
    }

    /// Appends the positions of a range to every layer; a single one as a vector, several as a block.
    ///
    /// # Errors
    /// The backend's.
    pub fn append<B: Backend>(
        &self,
        backend: &mut B,
        kv: &mut B::Kv,
        range: std::ops::Range<usize>,
    ) -> Result<()> {
        let width = self.config.row_len();
        let shape = if range.len() == 1 { vec![width] } else { vec![range.len(), width] };
        let part = range.start * width..range.end * width;
        for (layer, rows) in self.layers.iter().enumerate() {
            let mut up =
                |all: &[f32]| backend.upload(&HostTensor::from_f32(&shape, &all[part.clone()])?, DType::F32);
            let rows = [up(&rows.k_raw)?, up(&rows.keys)?, up(&rows.values)?];
            kv_store(backend)?.append(kv, layer, &rows[0], &rows[1], &rows[2], range.start)?;
            rows.into_iter().try_for_each(|row| backend.free(row))?;
        }
        Ok(())
    }

    /// Attention of the queries of a range, `[n, kv_heads*group*head_dim]`, over what the store holds.
    ///
    /// # Errors
    /// The backend's.
    pub fn attend<B: Backend>(
        &self,
        backend: &mut B,
        kv: &B::Kv,
        layer: usize,
        queries: std::ops::Range<usize>,
    ) -> Result<Vec<f32>> {
        let width = self.query_len();
        let shape = if queries.len() == 1 { vec![width] } else { vec![queries.len(), width] };
        let q = HostTensor::from_f32(&shape, &self.queries[queries.start * width..queries.end * width])?;
        let q = backend.upload(&q, DType::F32)?;
        let out = backend.attention(&q, kv, layer, self.spec())?;
        let values = backend.read(&out)?;
        backend.free(out)?;
        backend.free(q)?;
        Ok(values)
    }

    /// What attention of the queries of a range gives over the first `held` positions, whose last ones they are.
    ///
    /// # Errors
    /// A suite error for another kind of tolerance, a defect of the kit if the oracle cannot answer.
    pub fn truth(
        &self,
        case: &Case,
        layer: usize,
        queries: std::ops::Range<usize>,
        held: usize,
        profile: &NumericProfile,
    ) -> Result<(Want, f64), CheckError> {
        let (allowance, slack) = allowance(case)?;
        let (width, q_width) = (self.config.row_len(), self.query_len());
        let Some(rows) = self.layers.get(layer) else {
            return Err(CheckError::Kit(format!("{}: no layer {layer}", case.id)));
        };
        let input = AttentionInput {
            q: &self.queries[queries.start * q_width..queries.end * q_width],
            keys: &rows.keys[..held * width],
            values: &rows.values[..held * width],
            kv_heads: self.config.kv_heads,
            head_dim: self.config.head_dim,
        };
        let want = oracle::attention(&input, &self.spec(), profile, &allowance);
        let want = want.map_err(|e| CheckError::Kit(format!("{}: {e}", case.id)))?;
        Ok((Want::Bounded(want), slack))
    }

    /// Requires that a store holds the first `held` positions and nothing else.
    ///
    /// # Errors
    /// The backend's.
    pub fn require_held<B: Backend>(
        &self,
        script: &mut Script,
        what: &str,
        backend: &mut B,
        kv: &B::Kv,
        held: usize,
    ) -> Result<()> {
        let store = kv_store(backend)?;
        let (len, positions) = (store.len(kv)?, store.positions(kv)?);
        script.require(len == held, || format!("{what}: len is {len}, want {held}"));
        script.require(positions == (0..held).collect::<Vec<_>>(), || {
            format!("{what}: positions are {positions:?}, want 0..{held}")
        });
        let n = held * self.config.row_len();
        for (layer, rows) in self.layers.iter().enumerate() {
            let (keys, values) = (store.keys(kv, layer)?, store.values(kv, layer)?);
            script.same(&format!("{what}: keys of layer {layer}"), &keys, &rows.keys[..n]);
            script.same(&format!("{what}: values of layer {layer}"), &values, &rows.values[..n]);
        }
        Ok(())
    }
}
