//! One run: every case of a plan, each on a live worker, whatever happened to the one before.

use std::time::{Instant, SystemTime};

use modelbench_evidence::expected::{Expectation, Rules};
use modelbench_evidence::measured::Measured;
use modelbench_evidence::mode::Mode;
use modelbench_evidence::outcome::Verdict;
use modelbench_evidence::record::{CaseRecord, ChallengeRef, Header};
use modelbench_evidence::time;

use super::candidate::Candidate;
use super::event::{Event, Sink};
use super::header::header;
use super::knowledge::Knowledge;
use super::measure::measure;
use super::post::Post;
use super::registry::Bench;
use crate::inputs::Stream;
use crate::suite::{Case, Set};
use crate::worker::{Worker, WorkerError};

/// The order of the cases of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Rung after rung, and within a rung as the seed decides.
    Seeded,
    /// As they stand in the plan.
    Given,
}

/// What to run.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The backend.
    pub candidate: Candidate,
    /// The set.
    pub set: &'a Set,
    /// Number of cases of the set `full`.
    pub full_cases: u64,
    /// Digest of the suite tree.
    pub suite_digest: String,
    /// True if that is the kit's own.
    pub suite_is_kit: bool,
    /// Cases to run.
    pub cases: Vec<Case>,
    /// In which order.
    pub order: Order,
    /// The filter that chose them.
    pub filter: Option<String>,
    /// The model under test, and all that is known beside the backend.
    pub knowledge: &'a mut Knowledge,
    /// Seed of every input.
    pub seed: u64,
    /// Why the run is made.
    pub mode: Mode,
    /// Known failures.
    pub expected: Vec<Expectation>,
    /// Waivers: the signed envelopes, as text.
    pub waivers: Vec<String>,
    /// How often a case that fails is tried again, each time on a fresh worker.
    pub retries: u32,
    /// The challenge that the seed derives from.
    pub challenge: Option<ChallengeRef>,
    /// True if the gate must pass.
    pub require_non_reference: bool,
    /// True if a device that the CPU emulates is refused.
    pub require_hardware: bool,
    /// Ends the run once so many cases are regressions; `None` runs every case.
    pub enough_regressions: Option<usize>,
}

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The backend could not be loaded.
    #[error("backend {backend:?} could not be loaded: {reason}")]
    NotLoaded {
        /// Its name.
        backend: String,
        /// What it or its worker said.
        reason: String,
    },
    /// The kit cannot do its job.
    #[error("{0}")]
    Kit(String),
    /// A sink failed.
    #[error("the record cannot be written: {0}")]
    Sink(#[from] std::io::Error),
}

/// What a run gave: the record but for its footer.
#[derive(Debug)]
pub struct Ran {
    /// The first line.
    pub header: Header,
    /// The cases.
    pub cases: Vec<CaseRecord>,
    /// What was measured beside them.
    pub measured: Option<Measured>,
}

/// Runs every case, measures where the work was done, and tells the sink.
///
/// A run with a filter measures only if the gate is required; one that was ended early by its regressions does not.
///
/// # Errors
/// [`RunError`]; a failing case is never one.
pub fn run(plan: Plan<'_>, sink: &mut dyn Sink) -> Result<Ran, RunError> {
    let started = time::format(SystemTime::now()).map_err(|e| RunError::Kit(e.to_string()))?;
    let spec = plan.candidate.worker();
    let not_loaded = |e: WorkerError| RunError::NotLoaded {
        backend: plan.candidate.backend.clone(),
        reason: e.to_string(),
    };
    let worker = Worker::launch(&spec).map_err(not_loaded)?;
    let header = header(&plan, &worker, started)?;
    let rules = Rules::of(&header).map_err(|e| RunError::Kit(format!("known failures and waivers: {e}")))?;
    sink.event(&Event::Started { header: &header, cases: plan.cases.len() })?;
    let Plan { cases, order, knowledge, seed, retries, enough_regressions, .. } = plan;
    let cases = match order {
        Order::Seeded => in_run_order(cases, seed),
        Order::Given => cases,
    };
    let mut bench = Bench {
        models: &mut knowledge.models,
        kept: &mut knowledge.ops,
        seed,
        class: header.backend.class,
        profile: header.backend.numerics,
        memory: None,
    };
    let mut post = Post::new(spec, worker, rules);
    let mut records = Vec::with_capacity(cases.len());
    let mut regressions = 0;
    let mut enough = false;
    for case in &cases {
        sink.event(&Event::CaseStarted { id: &case.id })?;
        let begun = Instant::now();
        let before = post.workers();
        let mut record = post.run(case, &mut bench, retries)?.record;
        record.ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        if post.workers() > before {
            sink.event(&Event::WorkerReplaced { workers: post.workers() })?;
        }
        sink.event(&Event::CaseFinished { record: &record })?;
        regressions += usize::from(record.verdict == Verdict::Regression);
        records.push(record);
        enough = enough_regressions.is_some_and(|enough| regressions >= enough);
        if enough {
            break;
        }
    }
    post.relieve();
    let wanted = header.filter.is_none() || header.requires_gate();
    let measured = if wanted && !enough {
        sink.event(&Event::Measuring)?;
        let measured = measure(&header, &records, &cases, &mut post, &mut bench)?;
        sink.event(&Event::Measured { measured: &measured })?;
        Some(measured)
    } else {
        None
    };
    post.relieve();
    Ok(Ran { header, cases: records, measured })
}

/// Rung after rung, and within a rung in an order that the seed decides: what a case leaves behind in a backend meets
/// other neighbours with another seed, and cannot hide behind the order of the files. The identity comes first.
fn in_run_order(mut cases: Vec<Case>, seed: u64) -> Vec<Case> {
    cases.sort_by_cached_key(|case| {
        let later = case.group.check != "identity";
        (case.rung, later, Stream::new(seed, &case.id, "order of the run").bits(0), case.id.clone())
    });
    cases
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::{SuiteTree, Suites};

    #[test]
    fn the_seed_decides_the_order_within_a_rung() {
        let all = Suites::load(SuiteTree::embedded()).expect("the kit's own suites").cases;
        let ids = |cases: Vec<Case>| cases.into_iter().map(|case| case.id).collect::<Vec<_>>();
        let (first, other) = (in_run_order(all.clone(), 1), ids(in_run_order(all.clone(), 2)));
        assert!(first.windows(2).all(|pair| pair[0].rung <= pair[1].rung));
        assert_eq!(first[0].id, "r0/contract/identity");
        let first = ids(first);
        assert_ne!(first, other);
        let mut reversed = all.clone();
        reversed.reverse();
        assert_eq!(first, ids(in_run_order(reversed, 1)), "the order of the files must not matter");
        let sorted = |mut ids: Vec<String>| {
            ids.sort();
            ids
        };
        assert_eq!(sorted(first), sorted(ids(all)));
    }
}
