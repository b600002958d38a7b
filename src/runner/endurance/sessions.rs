//! Several sessions at once, each with a KV store of its own shape.

use modelbench_contract::{Backend, Class, KvConfig, NumericProfile, Result};
use modelbench_reference::CpuRef;

use super::super::finding::{CheckError, Finding};
use super::super::kv_rows::{KvRows, kv_store};
use super::super::script::{Script, Truths, conclude};
use crate::inputs::Stream;
use crate::suite::Case;

/// `stores` stores of different shapes grow by one position in each round, in another order each time; every answer must
/// be that of the store alone. Every third round one store is freed and its session begins anew.
pub(super) fn check<B: Backend>(
    case: &Case,
    seed: u64,
    backend: &mut B,
    class: Class,
    profile: &NumericProfile,
) -> Result<Finding, CheckError> {
    let (stores, rounds) = (case.size("stores")?.max(1), case.size("rounds")?);
    let (heads, head_dim, group) = (case.size("kv_heads")?, case.size("head_dim")?, case.size("group")?);
    let sets: Vec<KvRows> = (0..stores)
        .map(|i| {
            // Shapes that differ, and some that are equal.
            let (layers, kv_heads) = (1 + i % 2, heads + i % 3);
            let config = KvConfig { layers, kv_heads, head_dim, capacity: rounds, theta: 10_000.0 };
            KvRows::new(case, seed, &format!("session {i}"), config, group, rounds)
        })
        .collect();
    let turns = turns(&Stream::new(seed, &case.id, "turns"), stores, rounds);
    let truths = Truths::new(profile, |profile| {
        turns
            .iter()
            .map(|turn| {
                let set = &sets[turn.store];
                let (layer, last) = (turn.held % set.config.layers, turn.held);
                set.truth(case, layer, last..last + 1, last + 1, profile)
            })
            .collect()
    })?;
    let host = play(&mut CpuRef::new(), &sets, &turns);
    conclude(case, &truths, host, &play(backend, &sets, &turns)?, class)
}

/// One store grows by one position.
struct Turn {
    store: usize,
    /// Positions held before.
    held: usize,
    /// True if the session begins with this turn.
    fresh: bool,
}

fn turns(stream: &Stream, stores: usize, rounds: usize) -> Vec<Turn> {
    let (mut held, mut turns) = (vec![0; stores], Vec::new());
    for round in 0..rounds {
        let restarted =
            (round % 3 == 2).then(|| stream.below((rounds * stores + round) as u64, stores as u64));
        for store in stream.order((round * stores) as u64, stores) {
            if restarted == Some(store as u64) {
                held[store] = 0;
            }
            turns.push(Turn { store, held: held[store], fresh: held[store] == 0 });
            held[store] += 1;
        }
    }
    turns
}

fn play<B: Backend>(backend: &mut B, sets: &[KvRows], turns: &[Turn]) -> Result<Script> {
    let mut script = Script::default();
    let mut stores: Vec<Option<B::Kv>> = sets.iter().map(|_| None).collect();
    for (i, Turn { store, held, fresh }) in turns.iter().enumerate() {
        let set = &sets[*store];
        if *fresh {
            if let Some(old) = stores[*store].take() {
                kv_store(backend)?.free_kv(old)?;
            }
            stores[*store] = Some(kv_store(backend)?.new_kv(&set.config)?);
        }
        let Some(kv) = stores[*store].as_mut() else { continue };
        set.append(backend, kv, *held..held + 1)?;
        let got = set.attend(backend, kv, held % set.config.layers, *held..held + 1)?;
        script.answer(format!("session {store} at {} positions, turn {i}", held + 1), i, got);
    }
    for (i, (set, kv)) in sets.iter().zip(stores).enumerate() {
        let Some(kv) = kv else { continue };
        let held = turns.iter().rev().find(|turn| turn.store == i).map_or(0, |turn| turn.held + 1);
        set.require_held(&mut script, &format!("session {i} at the end"), backend, &kv, held)?;
        kv_store(backend)?.free_kv(kv)?;
    }
    Ok(script)
}
