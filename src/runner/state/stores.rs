//! KV stores side by side and one after the other.

use modelbench_contract::{Backend, Class, KvConfig, NumericProfile, Result};
use modelbench_reference::CpuRef;

use super::super::finding::{CheckError, Finding};
use super::super::kv_rows::{KvRows, kv_store};
use super::super::script::{Script, Truths, conclude};
use crate::suite::Case;

/// Runs one of the checks of KV stores.
///
/// # Errors
/// What stopped it.
pub(super) fn check<B: Backend>(
    check: &str,
    case: &Case,
    seed: u64,
    backend: &mut B,
    class: Class,
    profile: &NumericProfile,
) -> Result<Finding, CheckError> {
    let positions = case.size("kv")?;
    let config = KvConfig {
        layers: case.size("layers")?,
        kv_heads: case.size("kv_heads")?,
        head_dim: case.size("head_dim")?,
        capacity: positions,
        theta: 10_000.0,
    };
    let group = case.size("group")?;
    let sets = ["a", "b", "c"].map(|name| KvRows::new(case, seed, name, config, group, positions));
    let mut host = CpuRef::new();
    if check == "store-reuse" {
        let truths = Truths::new(profile, |profile| {
            sets.iter()
                .map(|set| set.truth(case, config.layers - 1, positions - 1..positions, positions, profile))
                .collect()
        })?;
        return conclude(case, &truths, reuse(&mut host, &sets), &reuse(backend, &sets)?, class);
    }
    let [a, b, _] = sets;
    let pair = [a, b];
    let truths = Truths::new(profile, |profile| {
        let mut all = Vec::new();
        for step in 0..positions {
            for set in &pair {
                all.push(set.truth(case, step % config.layers, step..step + 1, step + 1, profile)?);
            }
        }
        Ok(all)
    })?;
    let host = interleaved(&mut host, &pair, true);
    conclude(case, &truths, host, &interleaved(backend, &pair, profile.deterministic)?, class)
}

/// Two stores of the same shape grow in turn, and each is asked after the other has grown; then one is freed and the
/// other lives on.
fn interleaved<B: Backend>(backend: &mut B, pair: &[KvRows; 2], deterministic: bool) -> Result<Script> {
    let mut script = Script::default();
    let [a, b] = pair;
    let mut stores = [kv_store(backend)?.new_kv(&a.config)?, kv_store(backend)?.new_kv(&b.config)?];
    let positions = a.positions();
    for step in 0..positions {
        for (rows, kv) in pair.iter().zip(&mut stores) {
            rows.append(backend, kv, step..step + 1)?;
        }
        for (i, (rows, kv)) in pair.iter().zip(&stores).enumerate() {
            let got = rows.attend(backend, kv, step % a.config.layers, step..step + 1)?;
            script.answer(format!("store {i} at {} positions", step + 1), 2 * step + i, got);
        }
    }
    for (i, (rows, kv)) in pair.iter().zip(&stores).enumerate() {
        rows.require_held(&mut script, &format!("store {i}"), backend, kv, positions)?;
    }
    let [gone, kept] = stores;
    kv_store(backend)?.free_kv(gone)?;
    let last = positions - 1;
    let got = b.attend(backend, &kept, last % b.config.layers, last..positions)?;
    script.again("store 1 after store 0 was freed", 2 * last + 1, got, deterministic);
    b.require_held(&mut script, "store 1 after store 0 was freed", backend, &kept, positions)?;
    kv_store(backend)?.free_kv(kept)?;
    Ok(script)
}

/// A store is filled and freed, and the next one of the same shape must be empty, hold only its own rows, and answer from
/// them alone.
fn reuse<B: Backend>(backend: &mut B, sets: &[KvRows; 3]) -> Result<Script> {
    let mut script = Script::default();
    for (i, rows) in sets.iter().enumerate() {
        let (layers, positions) = (rows.config.layers, rows.positions());
        let mut kv = kv_store(backend)?.new_kv(&rows.config)?;
        rows.require_held(&mut script, &format!("store {i} when new"), backend, &kv, 0)?;
        rows.append(backend, &mut kv, 0..positions - 1)?;
        rows.append(backend, &mut kv, positions - 1..positions)?;
        let got = rows.attend(backend, &kv, layers - 1, positions - 1..positions)?;
        script.answer(format!("store {i}"), i, got);
        rows.require_held(&mut script, &format!("store {i}"), backend, &kv, positions)?;
        kv_store(backend)?.free_kv(kv)?;
    }
    Ok(script)
}
