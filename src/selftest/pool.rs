//! Trials on several threads. Each keeps its own knowledge, so that nothing is shared and no result depends on how
//! many there are.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use modelbench_zoo::Behaviour;

use super::trial::{Bench, SelftestError, Trial, trial};
use crate::runner::{Knowledge, Subject};

/// Bytes of what is known of op cases that all threads together keep.
const KEPT_BYTES: usize = 1 << 30;

/// Tries every behaviour on `jobs` threads and hands the trials to `report` in the order of `behaviours`, each as soon
/// as all before it are there.
///
/// # Errors
/// The first [`SelftestError`] in that order, or what `report` gives.
pub fn run<E: From<SelftestError>>(
    behaviours: &[&'static Behaviour],
    bench: &Bench<'_>,
    jobs: usize,
    mut report: impl FnMut(&Trial) -> Result<(), E>,
) -> Result<Vec<Trial>, E> {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        // Dropped before the threads are waited for, so that they stop when nobody wants their trials any more.
        let receiver = receiver;
        for _ in 0..jobs.clamp(1, behaviours.len().max(1)) {
            let (sender, next) = (sender.clone(), &next);
            // A worker dies with the thread that started it, so that each thread lives until nothing is left to do.
            scope.spawn(move || {
                let mut knowledge = None;
                while let Some(behaviour) = behaviours.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let done = with(&mut knowledge, KEPT_BYTES / jobs.max(1))
                        .and_then(|knowledge| trial(behaviour, bench, knowledge));
                    let failed = done.is_err();
                    if sender.send((behaviour.name, done)).is_err() || failed {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let mut waiting = Vec::new();
        let mut trials = Vec::with_capacity(behaviours.len());
        for behaviour in behaviours {
            let done = loop {
                if let Some(at) = waiting.iter().position(|(name, _)| *name == behaviour.name) {
                    break waiting.swap_remove(at).1;
                }
                match receiver.recv() {
                    Ok(more) => waiting.push(more),
                    Err(_) => return Err(SelftestError::Lost(behaviour.name).into()),
                }
            };
            let done: Trial = done?;
            report(&done)?;
            trials.push(done);
        }
        Ok(trials)
    })
}

fn with(knowledge: &mut Option<Knowledge>, bytes: usize) -> Result<&mut Knowledge, SelftestError> {
    match knowledge {
        Some(knowledge) => Ok(knowledge),
        None => Ok(knowledge.insert(Knowledge::shared(Subject::open(None)?, bytes))),
    }
}
