//! Rung 5: after positions are dropped, a KV store equals one that never saw them.

use modelbench_contract::{
    AttentionSpec, Backend, BackendError, DType, HostTensor, KvConfig, KvStore, NumericProfile, Op, Result,
    RopeSpec,
};

use super::finding::{CheckError, Finding};
use super::ops::allowance;
use crate::compare::{Want, first_difference, judge};
use crate::inputs::{Stream, value};
use crate::oracle::{self, AttentionInput};
use crate::suite::Case;

/// Names of the axes that the check reads.
pub const AXES: [&str; 4] = ["kv", "from", "n", "span"];
/// Values of the axis `span`: spans that drop nothing.
pub const SPANS: [&str; 3] = ["minus-one", "none", "negative-count"];

const LAYERS: usize = 2;
const SPEC: KvConfig = KvConfig { layers: LAYERS, kv_heads: 2, head_dim: 8, capacity: 64, theta: 10_000.0 };
const GROUP: usize = 2;

/// What a store gave back after the eviction.
struct Seen {
    dropped: usize,
    len: usize,
    positions: Vec<usize>,
    keys: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
    attended: Vec<Vec<f32>>,
}

/// Appends rows, evicts, and compares keys, values, positions and attention with the truth of a store that only saw
/// the survivors.
///
/// # Errors
/// What stopped the check.
pub fn check<B: Backend>(
    case: &Case,
    seed: u64,
    backend: &mut B,
    profile: &NumericProfile,
) -> Result<Finding, CheckError> {
    let held = case.size("kv")?;
    let (from, n) = span(case)?;
    let width = SPEC.row_len();
    let make = |layer: usize, name: &str, count: usize| -> Vec<f32> {
        let stream = Stream::new(seed, &case.id, &format!("{name}{layer}"));
        (0..count as u64).map(|i| value(case.group.input, &stream, i)).collect()
    };
    let rows: Vec<(Vec<f32>, Vec<f32>)> =
        (0..LAYERS).map(|layer| (make(layer, "k", held * width), make(layer, "v", held * width))).collect();
    let query = make(0, "q", width * GROUP);

    // The rule of the contract, written out: what is dropped, and who survives.
    let dropped =
        if from < 0 || n <= 0 || from as usize >= held { 0 } else { (n as usize).min(held - from as usize) };
    let gone = |i: usize| dropped > 0 && (from as usize..from as usize + dropped).contains(&i);
    let left: Vec<usize> = (0..held).filter(|&i| !gone(i)).collect();

    let seen = drive(backend, &rows, &query, held, (from, n), !left.is_empty())?;
    let mut finding = Finding::default();
    finding.require(seen.dropped == dropped, || format!("evict returned {}, want {dropped}", seen.dropped));
    finding.require(seen.len == left.len(), || format!("len is {}, want {}", seen.len, left.len()));
    finding.require(seen.positions == (0..left.len()).collect::<Vec<_>>(), || {
        format!("positions are {:?}, want 0..{}", seen.positions, left.len())
    });
    let (allowance, slack) = allowance(case)?;
    let kit = |e: oracle::OracleError| CheckError::Kit(format!("{}: {e}", case.id));
    for (layer, (k_raw, v)) in rows.iter().enumerate() {
        let survivors = |all: &[f32]| -> Vec<f32> {
            left.iter().flat_map(|&i| all[i * width..(i + 1) * width].iter().copied()).collect()
        };
        let (k_raw, v) = (survivors(k_raw), survivors(v));
        let (Some(keys), Some(values)) = (seen.keys.get(layer), seen.values.get(layer)) else { continue };
        finding.output(keys);
        finding.output(values);
        if let Some(at) = first_difference(values, &v) {
            finding.wrong.push(format!("layer {layer}: values differ from the survivors' at [{at}]"));
        }
        if k_raw.is_empty() {
            finding.require(keys.is_empty(), || format!("layer {layer}: an empty store gave keys"));
            continue;
        }
        let rope = RopeSpec { pos: 0, n_heads: SPEC.kv_heads, head_dim: SPEC.head_dim, theta: SPEC.theta };
        let want = oracle::rope(&k_raw, rope, profile, &allowance).map_err(kit)?;
        let judged = judge(&Want::Bounded(want), keys, slack);
        finding.merge(judged.quality);
        if let Some(wrong) = judged.wrong {
            // Attention over keys that cannot be has no truth: the oracle refuses numbers out of range, and that must
            // not look like a defect of the kit.
            finding.wrong.push(format!("layer {layer}, keys: {wrong}"));
            continue;
        }
        // Attention over what the store says it holds: the store and the kernel must mean the same positions.
        let input =
            AttentionInput { q: &query, keys, values: &v, kv_heads: SPEC.kv_heads, head_dim: SPEC.head_dim };
        let want = oracle::attention(&input, &attention_spec(), profile, &allowance).map_err(kit)?;
        let got = seen.attended.get(layer).map(Vec::as_slice).unwrap_or_default();
        finding.output(got);
        let judged = judge(&Want::Bounded(want), got, slack);
        finding.merge(judged.quality);
        finding.wrong.extend(judged.wrong.map(|wrong| format!("layer {layer}, attention: {wrong}")));
    }
    Ok(finding)
}

fn attention_spec() -> AttentionSpec {
    AttentionSpec { group: GROUP, scale: (1.0 / (SPEC.head_dim as f64).sqrt()) as f32, causal: true }
}

/// The span of a case: two sizes, or one of [`SPANS`].
pub fn span(case: &Case) -> Result<(i64, i64), CheckError> {
    if !case.params().contains_key("span") {
        return Ok((case.size("from")? as i64, case.size("n")? as i64));
    }
    Ok(match case.text("span")? {
        "minus-one" => (-1, 2),
        "none" => (1, 0),
        "negative-count" => (1, -2),
        other => {
            return Err(case.invalid(format!("span {other:?}: expected one of {}", SPANS.join(", "))).into());
        }
    })
}

fn drive<B: Backend>(
    backend: &mut B,
    rows: &[(Vec<f32>, Vec<f32>)],
    query: &[f32],
    held: usize,
    (from, n): (i64, i64),
    attend: bool,
) -> Result<Seen, BackendError> {
    fn store<B: Backend>(backend: &mut B) -> Result<&mut dyn KvStore<Tensor = B::Tensor, Kv = B::Kv>> {
        backend.kv_store().ok_or_else(|| BackendError::unimplemented(Op::NewKv))
    }
    let width = SPEC.row_len();
    let mut kv = store(backend)?.new_kv(&SPEC)?;
    for (layer, (k, v)) in rows.iter().enumerate() {
        let k_raw = backend.upload(&HostTensor::from_f32(&[held, width], k)?, DType::F32)?;
        let rope = RopeSpec { pos: 0, n_heads: SPEC.kv_heads, head_dim: SPEC.head_dim, theta: SPEC.theta };
        let k_rope = backend.rope(&k_raw, rope)?;
        let v = backend.upload(&HostTensor::from_f32(&[held, width], v)?, DType::F32)?;
        store(backend)?.append(&mut kv, layer, &k_raw, &k_rope, &v, 0)?;
        for tensor in [k_raw, k_rope, v] {
            backend.free(tensor)?;
        }
    }
    let dropped = store(backend)?.evict(&mut kv, from, n)?;
    let (len, positions) = (store(backend)?.len(&kv)?, store(backend)?.positions(&kv)?);
    let (mut keys, mut values, mut attended) = (Vec::new(), Vec::new(), Vec::new());
    let q = backend.upload(&HostTensor::from_f32(&[query.len()], query)?, DType::F32)?;
    for layer in 0..rows.len() {
        keys.push(store(backend)?.keys(&kv, layer)?);
        values.push(store(backend)?.values(&kv, layer)?);
        if attend {
            let out = backend.attention(&q, &kv, layer, attention_spec())?;
            attended.push(backend.read(&out)?);
            backend.free(out)?;
        }
    }
    backend.free(q)?;
    store(backend)?.free_kv(kv)?;
    Ok(Seen { dropped, len, positions, keys, values, attended })
}
