//! KV stores that reach the same rows by different ways: in pieces, by forgetting, by cloning.

use modelbench_contract::{
    AttentionSpec, Backend, Class, DType, HostTensor, KvConfig, NumericProfile, Result, RopeSpec,
};
use modelbench_reference::CpuRef;

use super::super::finding::{CheckError, Finding};
use super::super::kv_rows::{KvRows, kv_store};
use super::super::ops::allowance;
use super::super::script::{Script, Truths, conclude};
use crate::compare::{Want, bits_differ, first_difference, judge};
use crate::inputs::{Stream, value};
use crate::oracle::{self, AttentionInput};
use crate::suite::Case;

/// Names of the axes that a check of this file reads.
pub(super) fn axes(check: &str) -> Option<&'static [&'static str]> {
    Some(match check {
        "kv-chunks" => &["chunk", "kv", "kv_heads", "head_dim", "group"],
        "evict-never-saw" | "kv-diverge" => &["kv", "kv_heads", "head_dim", "group"],
        _ => return None,
    })
}

/// Layers of every store of these checks.
const LAYERS: usize = 2;

/// Runs a check of this file.
///
/// # Errors
/// What stopped it.
pub(super) fn check<B: Backend>(
    case: &Case,
    seed: u64,
    backend: &mut B,
    class: Class,
    profile: &NumericProfile,
) -> Result<Finding, CheckError> {
    let (positions, group) = (case.size("kv")?, case.size("group")?);
    let config = |capacity| -> Result<KvConfig, CheckError> {
        let (kv_heads, head_dim) = (case.size("kv_heads")?, case.size("head_dim")?);
        Ok(KvConfig { layers: LAYERS, kv_heads, head_dim, capacity, theta: 10_000.0 })
    };
    if case.group.check == "kv-chunks" {
        let rows = KvRows::new(case, seed, "rows", config(positions)?, group, positions);
        let truths = Truths::new(profile, |profile| {
            (0..LAYERS).map(|layer| rows.truth(case, layer, 0..positions, positions, profile)).collect()
        })?;
        let chunk = case.size("chunk")?.max(1);
        let host = in_chunks(&mut CpuRef::new(), &rows, chunk);
        return conclude(case, &truths, host, &in_chunks(backend, &rows, chunk)?, class);
    }
    // Three rows beyond those that fill the store.
    let pool = Pool::new(case, seed, config(positions + 3)?, group, positions + 3);
    let diverge = case.group.check == "kv-diverge";
    let mut host = CpuRef::new();
    let seen =
        if diverge { pool.diverge(&mut host, positions) } else { pool.never_saw(&mut host, positions) };
    let host_seen =
        seen.map_err(|e| CheckError::Kit(format!("{}: cpu-ref refused the case: {e}", case.id)))?;
    let own = pool.judge(case, &host_seen, &host.numerics())?;
    if let Some(wrong) = own.wrong.first() {
        return Err(CheckError::Kit(format!("{}: cpu-ref does not hold: {wrong}", case.id)));
    }
    let seen = if diverge { pool.diverge(backend, positions)? } else { pool.never_saw(backend, positions)? };
    let mut finding = pool.judge(case, &seen, profile)?;
    for (got, host) in seen.iter().zip(&host_seen) {
        let (got, host) = (got.all(), host.all());
        finding.quality.bits_compared += host.len() as u64;
        finding.quality.bits_differ += bits_differ(&got, &host);
    }
    let (differ, all) = (finding.quality.bits_differ, finding.quality.bits_compared);
    finding.require(class != Class::Reference || differ == 0, || {
        format!("{differ} of {all} elements differ in bits from cpu-ref")
    });
    Ok(finding)
}

/// All positions at once, then in pieces: each piece is appended and its queries are asked.
fn in_chunks<B: Backend>(backend: &mut B, rows: &KvRows, chunk: usize) -> Result<Script> {
    let (mut script, positions) = (Script::default(), rows.positions());
    for size in [positions, chunk] {
        let mut kv = kv_store(backend)?.new_kv(&rows.config)?;
        let mut attended = vec![Vec::new(); LAYERS];
        for from in (0..positions).step_by(size) {
            let piece = from..(from + size).min(positions);
            rows.append(backend, &mut kv, piece.clone())?;
            for (layer, all) in attended.iter_mut().enumerate() {
                all.extend(rows.attend(backend, &kv, layer, piece.clone())?);
            }
        }
        rows.require_held(&mut script, &format!("in pieces of {size}"), backend, &kv, positions)?;
        kv_store(backend)?.free_kv(kv)?;
        for (layer, all) in attended.into_iter().enumerate() {
            script.answer(format!("layer {layer} in pieces of {size}"), layer, all);
        }
    }
    Ok(script)
}

/// Rows that stores are filled from, numbered; keys are rotated by the backend at the position that they come to.
struct Pool {
    config: KvConfig,
    group: usize,
    rows: Vec<(Vec<f32>, Vec<f32>)>,
    query: Vec<f32>,
}

/// What a store showed, and the rows that it should hold.
struct Seen {
    what: String,
    ids: Vec<usize>,
    len: usize,
    positions: Vec<usize>,
    layers: Vec<[Vec<f32>; 3]>,
}

impl Seen {
    fn all(&self) -> Vec<f32> {
        self.layers.iter().flatten().flatten().copied().collect()
    }
}

impl Pool {
    fn new(case: &Case, seed: u64, config: KvConfig, group: usize, rows: usize) -> Pool {
        let make = |name: &str, n: usize| -> Vec<f32> {
            let stream = Stream::new(seed, &case.id, name);
            (0..n as u64).map(|i| value(case.group.input, &stream, i)).collect()
        };
        let n = rows * config.row_len();
        let layers = (0..LAYERS).map(|layer| (make(&format!("k{layer}"), n), make(&format!("v{layer}"), n)));
        Pool { config, group, rows: layers.collect(), query: make("q", config.row_len() * group) }
    }

    fn spec(&self) -> AttentionSpec {
        let scale = (1.0 / (self.config.head_dim as f64).sqrt()) as f32;
        AttentionSpec { group: self.group, scale, causal: true }
    }

    fn rope(&self, pos: usize) -> RopeSpec {
        let KvConfig { kv_heads: n_heads, head_dim, theta, .. } = self.config;
        RopeSpec { pos, n_heads, head_dim, theta }
    }

    fn pick(&self, all: &[f32], ids: &[usize]) -> Vec<f32> {
        let width = self.config.row_len();
        ids.iter().flat_map(|id| all[id * width..(id + 1) * width].iter().copied()).collect()
    }

    fn fill<B: Backend>(&self, backend: &mut B, kv: &mut B::Kv, ids: &[usize], pos: usize) -> Result<()> {
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

    fn observe<B: Backend>(
        &self,
        backend: &mut B,
        kv: &B::Kv,
        what: impl Into<String>,
        ids: &[usize],
    ) -> Result<Seen> {
        let (len, positions) = (kv_store(backend)?.len(kv)?, kv_store(backend)?.positions(kv)?);
        let q = backend.upload(&HostTensor::from_f32(&[self.query.len()], &self.query)?, DType::F32)?;
        let mut layers = Vec::new();
        for layer in 0..LAYERS {
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

    /// Every span of a store of `n` positions is dropped in turn, and the store must equal one that only ever saw the
    /// survivors: now, and after both have gone on by one position.
    fn never_saw<B: Backend>(&self, backend: &mut B, n: usize) -> Result<Vec<Seen>> {
        let mut seen = Vec::new();
        for (from, count) in (0..n).flat_map(|from| (1..=n - from).map(move |count| (from, count))) {
            let mut ids: Vec<usize> = (0..n).collect();
            let mut forgetful = kv_store(backend)?.new_kv(&self.config)?;
            self.fill(backend, &mut forgetful, &ids, 0)?;
            kv_store(backend)?.evict(&mut forgetful, from as i64, count as i64)?;
            ids.drain(from..from + count);
            let mut innocent = kv_store(backend)?.new_kv(&self.config)?;
            self.fill(backend, &mut innocent, &ids, 0)?;
            let name = format!("{from}..{} of {n} dropped", from + count);
            let names = [format!("{name}, the store that saw it"), format!("{name}, the store that did not")];
            seen.push(self.observe(backend, &forgetful, &names[0], &ids)?);
            seen.push(self.observe(backend, &innocent, &names[1], &ids)?);
            let pos = ids.len();
            ids.push(n);
            for (mut kv, name) in [(forgetful, &names[0]), (innocent, &names[1])] {
                self.fill(backend, &mut kv, &[n], pos)?;
                seen.push(self.observe(backend, &kv, format!("{name}, one position later"), &ids)?);
                kv_store(backend)?.free_kv(kv)?;
            }
        }
        Ok(seen)
    }

    /// A store and its clone go on with other rows, one forgets, one is freed; each shows its own rows throughout.
    fn diverge<B: Backend>(&self, backend: &mut B, n: usize) -> Result<Vec<Seen>> {
        let mut seen = Vec::new();
        let base: Vec<usize> = (0..n).collect();
        let with = |id: usize| base.iter().copied().chain([id]).collect::<Vec<_>>();
        let mut original = kv_store(backend)?.new_kv(&self.config)?;
        self.fill(backend, &mut original, &base, 0)?;
        let mut copy = kv_store(backend)?.clone_kv(&original)?;
        seen.push(self.observe(backend, &copy, "the clone, fresh", &base)?);
        self.fill(backend, &mut original, &[n], n)?;
        seen.push(self.observe(backend, &copy, "the clone, after the original went on", &base)?);
        self.fill(backend, &mut copy, &[n + 1], n)?;
        let mut kept = with(n);
        seen.push(self.observe(backend, &original, "the original, after both went on", &kept)?);
        seen.push(self.observe(backend, &copy, "the clone, after both went on", &with(n + 1))?);
        kv_store(backend)?.evict(&mut original, 0, 1)?;
        kept.remove(0);
        seen.push(self.observe(backend, &original, "the original, after it forgot", &kept)?);
        seen.push(self.observe(backend, &copy, "the clone, after the original forgot", &with(n + 1))?);
        let second = kv_store(backend)?.clone_kv(&copy)?;
        kv_store(backend)?.evict(&mut copy, n as i64, 1)?;
        seen.push(self.observe(backend, &copy, "the clone, after it forgot", &base)?);
        self.fill(backend, &mut copy, &[n + 2], n)?;
        kv_store(backend)?.free_kv(original)?;
        seen.push(self.observe(backend, &copy, "the clone, after the original was freed", &with(n + 2))?);
        kv_store(backend)?.free_kv(copy)?;
        seen.push(self.observe(backend, &second, "the clone's clone, alone", &with(n + 1))?);
        kv_store(backend)?.free_kv(second)?;
        Ok(seen)
    }

    /// Values as appended, keys within the bound of one rotation, attention within its bound over the keys shown.
    fn judge(&self, case: &Case, all: &[Seen], profile: &NumericProfile) -> Result<Finding, CheckError> {
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
                let judged = judge(&Want::Bounded(want), keys, slack);
                finding.merge(judged.quality);
                if let Some(wrong) = judged.wrong {
                    // Attention over keys that cannot be has no truth.
                    finding.wrong.push(format!("{what}: keys of layer {layer}: {wrong}"));
                    continue;
                }
                let KvConfig { kv_heads, head_dim, .. } = self.config;
                let input = AttentionInput { q: &self.query, keys, values: &v, kv_heads, head_dim };
                let want = oracle::attention(&input, &self.spec(), profile, &allowance).map_err(kit)?;
                let judged = judge(&Want::Bounded(want), attended, slack);
                finding.merge(judged.quality);
                finding.wrong.extend(judged.wrong.map(|w| format!("{what}: attention, layer {layer}: {w}")));
            }
        }
        let more = finding.wrong.len().saturating_sub(6);
        if more > 0 {
            finding.wrong.truncate(6);
            finding.wrong.push(format!("and {more} more"));
        }
        Ok(finding)
    }
}
