//! Rows for KV stores whose keys the backend rotates, and the judgement of what a store shows of them.

use modelbench_contract::{
    AttentionSpec, Backend, DType, HostTensor, KvConfig, NumericProfile, Result, RopeSpec,
};

use super::finding::{CheckError, Finding};
use super::kv_rows::kv_store;
use super::ops::allowance;
use crate::compare::{Want, first_difference};
use crate::inputs::{Stream, value};
use crate::oracle::{self, AttentionInput};
use crate::suite::Case;

/// Rows that stores are filled from, numbered; keys are rotated by the backend at the position that they come to.
pub struct Pool {
    /// Shape of the stores; there are rows for its whole capacity.
    pub config: KvConfig,
    group: usize,
    rows: Vec<(Vec<f32>, Vec<f32>)>,
    query: Vec<f32>,
}

/// What a store showed, and the rows that it should hold.
pub struct Seen {
    what: String,
    ids: Vec<usize>,
    len: usize,
    positions: Vec<usize>,
    layers: Vec<[Vec<f32>; 3]>,
}

impl Seen {
    /// Keys, values and attention of every layer.
    pub fn all(&self) -> Vec<f32> {
        self.layers.iter().flatten().flatten().copied().collect()
    }
}

impl Pool {
    /// Rows for the capacity of a store, made by the case's recipe, with one query of `group` heads to a KV head.
    pub fn new(case: &Case, seed: u64, config: KvConfig, group: usize) -> Pool {
        let make = |name: &str, n: usize| -> Vec<f32> {
            let stream = Stream::new(seed, &case.id, name);
            (0..n as u64).map(|i| value(case.group.input, &stream, i)).collect()
        };
        let n = config.capacity * config.row_len();
        let layers =
            (0..config.layers).map(|layer| (make(&format!("k{layer}"), n), make(&format!("v{layer}"), n)));
        Pool { config, group, rows: layers.collect(), query: make("q", config.row_len() * group) }
    }

    fn spec(&self) -> AttentionSpec {
        AttentionSpec::causal(self.group, self.config.head_dim)
    }

    fn rope(&self, pos: usize) -> RopeSpec {
        let KvConfig { kv_heads: n_heads, head_dim, theta, .. } = self.config;
        RopeSpec { pos, n_heads, head_dim, theta }
    }

    fn pick(&self, all: &[f32], ids: &[usize]) -> Vec<f32> {
        let width = self.config.row_len();
        ids.iter().flat_map(|id| all[id * width..(id + 1) * width].iter().copied()).collect()
    }

    /// Appends the rows `ids` as the positions from `pos`.
    ///
    /// # Errors
    /// The backend's.
    pub fn fill<B: Backend>(&self, backend: &mut B, kv: &mut B::Kv, ids: &[usize], pos: usize) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let shape = [ids.len(), self.config.row_len()];
        for (layer, (k, v)) in self.rows.iter().enumerate() {
            let k_raw = backend.upload(&HostTensor::from_f32(&shape, &self.pick(k, ids))?, DType::F32)?;
            let k_rope = backend.rope(&k_raw, self.rope(pos))?;
            let v = backend.upload(&HostTensor::from_f32(&shape, &self.pick(v, ids))?, DType::F32)?;
            kv_store(backend)?.append(kv, layer, &k_raw, &k_rope, &v, pos)?;
            for tensor in [k_raw, k_rope, v] {
                backend.free(tensor)?;
            }
        }
        Ok(())
    }

    /// Everything that a store shows, which should be the rows `ids`.
    ///
    /// # Errors
    /// The backend's.
    pub fn observe<B: Backend>(
        &self,
        backend: &mut B,
        kv: &B::Kv,
        what: impl Into<String>,
        ids: &[usize],
    ) -> Result<Seen> {
        let (len, positions) = (kv_store(backend)?.len(kv)?, kv_store(backend)?.positions(kv)?);
        let q = backend.upload(&HostTensor::from_f32(&[self.query.len()], &self.query)?, DType::F32)?;
        let mut layers = Vec::new();
        for layer in 0..self.rows.len() {
            let keys = kv_store(backend)?.keys(kv, layer)?;
            let values = kv_store(backend)?.values(kv, layer)?;
            let mut attended = Vec::new();
            if !ids.is_empty() {
                let out = backend.attention(&q, kv, layer, self.spec())?;
                attended = backend.read(&out)?;
                backend.free(out)?;
            }
            layers.push([keys, values, attended]);
        }
        backend.free(q)?;
        Ok(Seen { what: what.into(), ids: ids.to_vec(), len, positions, layers })
    }

    /// Values as appended, keys within the bound of one rotation, attention within its bound over the keys shown.
    ///
    /// # Errors
    /// A suite error for another kind of tolerance, a defect of the kit if the oracle cannot answer.
    pub fn judge(&self, case: &Case, all: &[Seen], profile: &NumericProfile) -> Result<Finding, CheckError> {
        let mut finding = Finding::default();
        let (allowance, slack) = allowance(case)?;
        let kit = |e: oracle::OracleError| CheckError::Kit(format!("{}: {e}", case.id));
        for seen in all {
            let (what, held) = (&seen.what, seen.ids.len());
            finding.require(seen.len == held, || format!("{what}: len is {}, want {held}", seen.len));
            finding.require(seen.positions == (0..held).collect::<Vec<_>>(), || {
                format!("{what}: positions are {:?}, want 0..{held}", seen.positions)
            });
            for (layer, ((k_raw, v), [keys, values, attended])) in
                self.rows.iter().zip(&seen.layers).enumerate()
            {
                [keys, values, attended].into_iter().for_each(|part| finding.output(part));
                let (k_raw, v) = (self.pick(k_raw, &seen.ids), self.pick(v, &seen.ids));
                if let Some(at) = first_difference(values, &v) {
                    finding.wrong.push(format!("{what}: values of layer {layer} differ at [{at}]"));
                }
                if k_raw.len() != keys.len() {
                    let (got, want) = (keys.len(), k_raw.len());
                    finding.wrong.push(format!("{what}: layer {layer} has {got} key elements, want {want}"));
                    continue;
                }
                if k_raw.is_empty() {
                    continue;
                }
                let want = oracle::rope(&k_raw, self.rope(0), profile, &allowance).map_err(kit)?;
                if !finding.judge(
                    &format!("{what}: keys of layer {layer}"),
                    &Want::Bounded(want),
                    keys,
                    slack,
                ) {
                    // Attention over keys that cannot be has no truth: the oracle refuses numbers out of range, and that
                    // must not look like a defect of the kit.
                    continue;
                }
                let KvConfig { kv_heads, head_dim, .. } = self.config;
                let input = AttentionInput { q: &self.query, keys, values: &v, kv_heads, head_dim };
                let want = oracle::attention(&input, &self.spec(), profile, &allowance).map_err(kit)?;
                let what = format!("{what}: attention, layer {layer}");
                finding.judge(&what, &Want::Bounded(want), attended, slack);
            }
        }
        finding.shorten();
        Ok(finding)
    }
}
