//! Where the work was done, measured on a fresh worker after the cases: see [`Measured`].

mod load;
mod order;
mod tier;
mod watermark;

use modelbench_evidence::measured::{Measured, Reading};
use modelbench_evidence::record::{CaseRecord, Header};
use modelbench_evidence::tier::{nonce, seed as tier_seed};

use super::finding::CheckError;
use super::post::Post;
use super::registry::Bench;
use super::run::RunError;
use crate::inputs::Stream;
use crate::suite::Case;
use crate::worker::Worker;

/// Measures everything that the gate needs beside the cases. `cases` are those of the run, and `records` their lines.
///
/// Nothing here fails the run: what cannot be measured says why, and the gate decides what that means.
///
/// # Errors
/// A defect of the kit, or no random numbers.
pub(super) fn measure(
    header: &Header,
    records: &[CaseRecord],
    cases: &[Case],
    post: &mut Post,
    bench: &mut Bench<'_>,
) -> Result<Measured, RunError> {
    let drawn = match &header.challenge {
        Some(challenge) => challenge.nonce.clone(),
        None => nonce().map_err(|e| RunError::Kit(e.to_string()))?,
    };
    let seed = tier_seed(&drawn, header).map_err(|e| RunError::Kit(e.to_string()))?;
    let stream = |what: &str| Stream::new(bench.seed, &drawn, what);
    let (order_stream, load_stream) = (stream("order"), stream("load"));
    let order = on_a_worker(post, |worker| order::measure(worker, &header.backend.numerics, &order_stream))?;
    let place = on_a_worker(post, |worker| load::measure(worker, &header.backend, &load_stream))?;
    let (load, counters) = match place {
        Reading::Measured(found) => (found.load, found.counters),
        Reading::NotMeasured(why) => (Reading::NotMeasured(why.clone()), Reading::NotMeasured(why)),
    };
    let watermark = on_a_worker(post, |worker| watermark::measure(worker, cases, bench))?;
    post.relieve();
    let tier = tier::measure(drawn, seed, records, cases, post, bench)?;
    Ok(Measured { order, load, counters, watermark, tier })
}

/// Measures on the worker at the post, or a fresh one. A worker that is of no use afterwards is dismissed, and its
/// measurement is none.
fn on_a_worker<T>(
    post: &mut Post,
    measure: impl FnOnce(&mut Worker) -> Result<Reading<T>, CheckError>,
) -> Result<Reading<T>, RunError> {
    let mut worker = match post.staff() {
        Ok(worker) => worker,
        Err(reason) => return Ok(Reading::NotMeasured(reason)),
    };
    let found = measure(&mut worker);
    if worker.remote().fault().is_some() {
        return Ok(Reading::NotMeasured(format!("the worker ended: {}", worker.autopsy())));
    }
    let reading = match found {
        Ok(reading) => reading,
        Err(CheckError::Backend(error)) => Reading::NotMeasured(format!("the backend refused: {error}")),
        Err(CheckError::Suite(error)) => return Err(RunError::Kit(error.to_string())),
        Err(error @ CheckError::Kit(_)) => return Err(RunError::Kit(error.to_string())),
    };
    // What a measurement left behind must not be there for the next one.
    match worker.remote().reset() {
        Ok(()) => post.hand_back(worker),
        Err(_) => drop(worker.autopsy()),
    }
    Ok(reading)
}
