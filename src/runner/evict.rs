//! Rung 5: after positions are dropped, a KV store equals one that never saw them.

use modelbench_contract::{Backend, KvConfig, NumericProfile};

use super::finding::{CheckError, Finding};
use super::kv_pool::Pool;
use super::kv_rows::kv_store;
use crate::suite::Case;

/// Names of the axes that the check reads.
pub const AXES: [&str; 4] = ["kv", "from", "n", "span"];
/// Values of the axis `span`: spans that drop nothing.
pub const SPANS: [&str; 3] = ["minus-one", "none", "negative-count"];

const GROUP: usize = 2;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 8;

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
    let config =
        KvConfig { layers: 2, kv_heads: KV_HEADS, head_dim: HEAD_DIM, capacity: held, theta: 10_000.0 };
    let pool = Pool::new(case, seed, config, GROUP);

    // The rule of the contract, written out: what is dropped, and who survives.
    let dropped =
        if from < 0 || n <= 0 || from as usize >= held { 0 } else { (n as usize).min(held - from as usize) };
    let gone = |i: usize| dropped > 0 && (from as usize..from as usize + dropped).contains(&i);
    let all: Vec<usize> = (0..held).collect();
    let left: Vec<usize> = all.iter().copied().filter(|&i| !gone(i)).collect();

    let mut kv = kv_store(backend)?.new_kv(&config)?;
    pool.fill(backend, &mut kv, &all, 0)?;
    let found = kv_store(backend)?.evict(&mut kv, from, n)?;
    let seen = pool.observe(backend, &kv, "the store", &left)?;
    kv_store(backend)?.free_kv(kv)?;
    let mut finding = pool.judge(case, &[seen], profile)?;
    finding.require(found == dropped, || format!("evict returned {found}, want {dropped}"));
    Ok(finding)
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
