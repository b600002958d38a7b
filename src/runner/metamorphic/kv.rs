//! KV stores that reach the same rows by different ways: in pieces, by forgetting, by cloning.

use modelbench_contract::{Backend, Class, KvConfig, NumericProfile, Result};
use modelbench_reference::CpuRef;

use super::super::finding::{CheckError, Finding};
use super::super::kv_pool::{Pool, Seen};
use super::super::kv_rows::{KvRows, kv_store};
use super::super::script::{Script, Truths, conclude};
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
    let pool = Pool::new(case, seed, config(positions + 3)?, group);
    let diverges = case.group.check == "kv-diverge";
    let mut host = CpuRef::new();
    let seen =
        if diverges { diverge(&pool, &mut host, positions) } else { never_saw(&pool, &mut host, positions) };
    let host_seen =
        seen.map_err(|e| CheckError::Kit(format!("{}: cpu-ref refused the case: {e}", case.id)))?;
    let own = pool.judge(case, &host_seen, &host.numerics())?;
    if let Some(wrong) = own.wrong.first() {
        return Err(CheckError::Kit(format!("{}: cpu-ref does not hold: {wrong}", case.id)));
    }
    let seen =
        if diverges { diverge(&pool, backend, positions)? } else { never_saw(&pool, backend, positions)? };
    let mut finding = pool.judge(case, &seen, profile)?;
    for (got, host) in seen.iter().zip(&host_seen) {
        finding.compare_bits(&got.all(), &host.all());
    }
    finding.require_bits(class);
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

/// Every span of a store of `n` positions is dropped in turn, and the store must equal one that only ever saw the
/// survivors: now, and after both have gone on by one position.
fn never_saw<B: Backend>(pool: &Pool, backend: &mut B, n: usize) -> Result<Vec<Seen>> {
    let mut seen = Vec::new();
    for (from, count) in (0..n).flat_map(|from| (1..=n - from).map(move |count| (from, count))) {
        let mut ids: Vec<usize> = (0..n).collect();
        let mut forgetful = kv_store(backend)?.new_kv(&pool.config)?;
        pool.fill(backend, &mut forgetful, &ids, 0)?;
        kv_store(backend)?.evict(&mut forgetful, from as i64, count as i64)?;
        ids.drain(from..from + count);
        let mut innocent = kv_store(backend)?.new_kv(&pool.config)?;
        pool.fill(backend, &mut innocent, &ids, 0)?;
        let name = format!("{from}..{} of {n} dropped", from + count);
        let names = [format!("{name}, the store that saw it"), format!("{name}, the store that did not")];
        seen.push(pool.observe(backend, &forgetful, &names[0], &ids)?);
        seen.push(pool.observe(backend, &innocent, &names[1], &ids)?);
        let pos = ids.len();
        ids.push(n);
        for (mut kv, name) in [(forgetful, &names[0]), (innocent, &names[1])] {
            pool.fill(backend, &mut kv, &[n], pos)?;
            seen.push(pool.observe(backend, &kv, format!("{name}, one position later"), &ids)?);
            kv_store(backend)?.free_kv(kv)?;
        }
    }
    Ok(seen)
}

/// A store and its clone go on with other rows, one forgets, one is freed; each shows its own rows throughout.
fn diverge<B: Backend>(pool: &Pool, backend: &mut B, n: usize) -> Result<Vec<Seen>> {
    let mut seen = Vec::new();
    let base: Vec<usize> = (0..n).collect();
    let with = |id: usize| base.iter().copied().chain([id]).collect::<Vec<_>>();
    let mut original = kv_store(backend)?.new_kv(&pool.config)?;
    pool.fill(backend, &mut original, &base, 0)?;
    let mut copy = kv_store(backend)?.clone_kv(&original)?;
    seen.push(pool.observe(backend, &copy, "the clone, fresh", &base)?);
    pool.fill(backend, &mut original, &[n], n)?;
    seen.push(pool.observe(backend, &copy, "the clone, after the original went on", &base)?);
    pool.fill(backend, &mut copy, &[n + 1], n)?;
    let mut kept = with(n);
    seen.push(pool.observe(backend, &original, "the original, after both went on", &kept)?);
    seen.push(pool.observe(backend, &copy, "the clone, after both went on", &with(n + 1))?);
    kv_store(backend)?.evict(&mut original, 0, 1)?;
    kept.remove(0);
    seen.push(pool.observe(backend, &original, "the original, after it forgot", &kept)?);
    seen.push(pool.observe(backend, &copy, "the clone, after the original forgot", &with(n + 1))?);
    let second = kv_store(backend)?.clone_kv(&copy)?;
    kv_store(backend)?.evict(&mut copy, n as i64, 1)?;
    seen.push(pool.observe(backend, &copy, "the clone, after it forgot", &base)?);
    pool.fill(backend, &mut copy, &[n + 2], n)?;
    kv_store(backend)?.free_kv(original)?;
    seen.push(pool.observe(backend, &copy, "the clone, after the original was freed", &with(n + 2))?);
    kv_store(backend)?.free_kv(copy)?;
    seen.push(pool.observe(backend, &second, "the clone's clone, alone", &with(n + 1))?);
    kv_store(backend)?.free_kv(second)?;
    Ok(seen)
}
