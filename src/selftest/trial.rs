//! One behaviour against the kit.

use std::collections::BTreeSet;
use std::time::Duration;

use modelbench_evidence::gate::{self, GateVerdict, WitnessVerdict};
use modelbench_evidence::label;
use modelbench_evidence::measured::Measured;
use modelbench_evidence::mode::Mode;
use modelbench_evidence::outcome::{NotRun, Outcome, Verdict};
use modelbench_evidence::record::{CaseRecord, Header};
use modelbench_zoo::{Behaviour, HONEST, Kind};

use crate::bundled::MOCK_PREFIX;
use crate::runner::{self, Candidate, Knowledge, Order, Plan, Ran, RunError, Sink, SubjectError};
use crate::suite::{Case, Set};

/// Kills after which a behaviour is not tried further.
pub const ENOUGH: usize = 2;
/// Longest request of a behaviour that may hang. It decides nothing but how long the kit waits: whoever is that slow
/// is to be caught.
const FATAL_DEADLINE: Duration = Duration::from_secs(4);
/// Longest request of every other behaviour: generous, because an honest one must not fail on a busy machine.
const DEADLINE: Duration = Duration::from_secs(120);
/// Most memory of a behaviour that may grow without end.
const FATAL_MEMORY: u64 = 1 << 30;
/// Most memory of every other behaviour; the honest one stays far below in every case.
const MEMORY: u64 = 4 << 30;

/// What all trials have in common.
#[derive(Debug)]
pub struct Bench<'a> {
    /// The set whose cases are used.
    pub set: &'a Set,
    /// Its cases in the order of the trial.
    pub order: Vec<Case>,
    /// Ids of the cases that an allowed variation must survive; the honest one itself must survive all.
    pub short: BTreeSet<String>,
    /// Digest of the suite tree.
    pub suite_digest: String,
    /// True if that is the kit's own.
    pub suite_is_kit: bool,
    /// Seed of every input.
    pub seed: u64,
}

/// Something that rejected a behaviour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Killer {
    /// A case's id, or `gate/<witness>`, or `label/cap/<cap>`.
    pub by: String,
    /// The outcome of the case, or what the witness says.
    pub how: String,
}

/// How a behaviour fared.
#[derive(Debug)]
pub struct Trial {
    /// The behaviour.
    pub behaviour: &'static Behaviour,
    /// What rejected it, at most two, in the order in which it was met.
    pub killers: Vec<Killer>,
    /// Cases that ran.
    pub cases: usize,
}

impl Trial {
    /// True if the behaviour fared as it must: rejected, or, if it is allowed, not.
    pub fn as_it_must(&self) -> bool {
        self.killers.is_empty() == self.behaviour.allowed
    }
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum SelftestError {
    /// A run has no result, which is the kit's fault.
    #[error("{behaviour}: {source}")]
    Run {
        /// The behaviour.
        behaviour: &'static str,
        /// What the runner said.
        source: RunError,
    },
    /// The default model cannot be opened.
    #[error(transparent)]
    Subject(#[from] SubjectError),
    /// A thread of the kit ended early.
    #[error("{0}: the trial ended without a result, which is a defect of the kit")]
    Lost(&'static str),
}

/// Tries one behaviour.
///
/// # Errors
/// [`SelftestError::Run`]; a behaviour that is caught is never one.
pub(super) fn trial(
    behaviour: &'static Behaviour,
    bench: &Bench<'_>,
    knowledge: &mut Knowledge,
) -> Result<Trial, SelftestError> {
    // An adversary holds in the cases, or hides there: the gate must find it, so that every measurement is made.
    let adversary = behaviour.kind == Kind::Adversary;
    let short = adversary || (behaviour.allowed && behaviour.name != HONEST);
    let cases = bench.order.iter().filter(|case| !short || bench.short.contains(&case.id)).cloned();
    let plan = Plan {
        candidate: Candidate {
            backend: format!("{MOCK_PREFIX}{}", behaviour.name),
            self_test: true,
            environment: Vec::new(),
            request_deadline: if behaviour.fatal { FATAL_DEADLINE } else { DEADLINE },
            memory_limit_bytes: if behaviour.fatal { FATAL_MEMORY } else { MEMORY },
        },
        set: bench.set,
        full_cases: bench.set.file.cases,
        suite_digest: bench.suite_digest.clone(),
        suite_is_kit: bench.suite_is_kit,
        cases: cases.collect(),
        order: Order::Given,
        filter: None,
        knowledge,
        seed: bench.seed,
        mode: Mode::Ci,
        expected: Vec::new(),
        waivers: Vec::new(),
        retries: 0,
        challenge: None,
        require_non_reference: true,
        require_hardware: false,
        enough_regressions: (!adversary).then_some(ENOUGH),
    };
    let mut nobody: Vec<&mut dyn Sink> = Vec::new();
    let Ran { header, cases: records, measured } = runner::run(plan, &mut nobody)
        .map_err(|source| SelftestError::Run { behaviour: behaviour.name, source })?;
    // A case that found no worker says nothing about the behaviour.
    let unmanned = records.iter().find_map(|record| match &record.outcome {
        Outcome::NotRun { why: NotRun::Kit { reason } } => Some(reason.clone()),
        _ => None,
    });
    if let Some(reason) = unmanned {
        return Err(SelftestError::Run { behaviour: behaviour.name, source: RunError::Kit(reason) });
    }
    let mut killers: Vec<Killer> = records.iter().filter_map(by_case).collect();
    // Gate and label speak about whole runs; with enough killers there is none.
    if adversary {
        killers.splice(0..0, by_gate_and_label(&header, &records, measured.as_ref()));
    } else if killers.len() < ENOUGH {
        killers.extend(by_gate_and_label(&header, &records, measured.as_ref()));
    }
    killers.truncate(ENOUGH);
    Ok(Trial { behaviour, killers, cases: records.len() })
}

fn by_case(record: &CaseRecord) -> Option<Killer> {
    if matches!(record.verdict, Verdict::Ok | Verdict::NotApplicable) {
        return None;
    }
    let how = match &record.outcome {
        Outcome::Crash { cause, .. } => format!("crash: {cause}"),
        outcome => outcome.as_str().to_owned(),
    };
    Some(Killer { by: record.id.clone(), how })
}

/// What of a whole record contradicts the claims beyond its cases.
fn by_gate_and_label(header: &Header, records: &[CaseRecord], measured: Option<&Measured>) -> Vec<Killer> {
    let gate = gate::decide(header, records, measured);
    let mut killers = Vec::new();
    if gate.verdict == GateVerdict::Failed {
        let against = gate.witnesses.iter().filter(|w| w.verdict == WitnessVerdict::Contradiction);
        killers.extend(
            against.map(|w| Killer { by: format!("gate/{}", w.kind.as_str()), how: w.detail.clone() }),
        );
        if killers.is_empty() {
            killers.push(Killer { by: "gate".to_owned(), how: gate.reasons.join("; ") });
        }
    }
    let derived = label::derive(header, records, &gate);
    // A cap whose own case failed is rejected by that case already.
    let failed = |cap| records.iter().any(|record| record.proves == Some(cap) && by_case(record).is_some());
    killers.extend(derived.caps_unproven.iter().filter(|cap| !failed(**cap)).map(|cap| Killer {
        by: format!("label/cap/{}", cap.as_str()),
        how: "advertised, and nothing proves it".to_owned(),
    }));
    killers
}
