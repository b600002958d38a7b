//! The place where one worker stands at a time.

use std::collections::BTreeMap;

use modelbench_contract::Identity;
use modelbench_evidence::expected::Rules;
use modelbench_evidence::outcome::{NotRun, Outcome, Verdict};
use modelbench_evidence::record::{CaseRecord, Quality};

use super::finding::{CheckError, Finding, outcome_of};
use super::registry::{Bench, check, subject, unanswered};
use super::run::RunError;
use crate::suite::Case;
use crate::worker::{Cause, Death, Worker, WorkerSpec};

/// Workers that may fail to start one after the other before the kit gives up on the rest.
const START_ATTEMPTS: usize = 3;
/// Lines of a dead worker's stderr that go into the record.
const STDERR_LINES: usize = 6;

/// The place where one worker stands at a time, and the rules for what it answers.
pub(super) struct Post {
    spec: WorkerSpec,
    worker: Option<Worker>,
    workers: usize,
    failures: usize,
    identity: Identity,
    rules: Rules,
}

/// What became of a case.
pub(super) struct Answer {
    /// Its line of the record.
    pub(super) record: CaseRecord,
    /// The outputs, if they are few.
    pub(super) values: Option<Vec<f32>>,
}

impl Post {
    /// A post with its first worker.
    pub(super) fn new(spec: WorkerSpec, worker: Worker, rules: Rules) -> Post {
        let identity = worker.identity().clone();
        Post { spec, worker: Some(worker), workers: 1, failures: 0, identity, rules }
    }

    /// Number of workers so far.
    pub(super) fn workers(&self) -> usize {
        self.workers
    }

    /// Puts back a worker that [`Post::staff`] gave.
    pub(super) fn hand_back(&mut self, worker: Worker) {
        self.worker = Some(worker);
    }

    /// Ends the worker at the post; the next case gets a fresh one.
    pub(super) fn relieve(&mut self) {
        if let Some(worker) = self.worker.take() {
            worker.shutdown();
        }
    }

    /// Runs a case. With `retries` a case that fails is tried again so often, each time on a fresh worker.
    ///
    /// # Errors
    /// A suite that asks for the impossible, or a defect of the kit.
    pub(super) fn run(
        &mut self,
        case: &Case,
        bench: &mut Bench<'_>,
        retries: u32,
    ) -> Result<Answer, RunError> {
        let mut tries = Vec::new();
        loop {
            let mut answer = self.once(case, bench)?;
            let ran = !matches!(answer.record.outcome, Outcome::NotRun { .. });
            if answer.record.verdict == Verdict::Regression
                && ran
                && (tries.len() as u64) < u64::from(retries)
            {
                tries.push(answer.record.outcome.as_str().to_owned());
                self.relieve();
                continue;
            }
            answer.record.tries = tries;
            return Ok(answer);
        }
    }

    fn once(&mut self, case: &Case, bench: &mut Bench<'_>) -> Result<Answer, RunError> {
        let mut values = None;
        let mut record = CaseRecord {
            id: case.id.clone(),
            rung: case.rung,
            subject: subject(case),
            proves: case.group.proves,
            tries: Vec::new(),
            outcome: Outcome::Pass,
            verdict: Verdict::Regression,
            quality: Quality::default(),
            native: BTreeMap::new(),
            delegated: BTreeMap::new(),
            output_sha256: Finding::default().output_sha256(),
            notes: Vec::new(),
            numerics: unanswered(case).map_err(|e| RunError::Kit(e.to_string()))?,
            ms: 0,
        };
        record.outcome = match case.group.proves {
            Some(cap) if !self.identity.caps.contains(&cap) => {
                Outcome::NotRun { why: NotRun::CapNotAdvertised { cap } }
            }
            _ => match self.staff() {
                Err(reason) => Outcome::NotRun { why: NotRun::Kit { reason } },
                Ok(mut worker) => {
                    let outcome =
                        attempt(case, &mut worker, &self.identity, bench, &mut record, &mut values)?;
                    match worker.remote().fault() {
                        None => {
                            self.worker = Some(worker);
                            outcome
                        }
                        Some(_) => of_death(&worker.autopsy()),
                    }
                }
            },
        };
        record.verdict = self.rules.verdict(&record.id, &record.outcome);
        Ok(Answer { record, values })
    }

    /// The worker at the post, or a fresh one with the same identity.
    pub(super) fn staff(&mut self) -> Result<Worker, String> {
        if let Some(worker) = self.worker.take() {
            return Ok(worker);
        }
        if self.failures >= START_ATTEMPTS {
            return Err(format!("{START_ATTEMPTS} workers in a row did not start"));
        }
        self.workers += 1;
        match Worker::launch(&self.spec) {
            Ok(worker) => {
                self.failures = 0;
                Ok(worker)
            }
            Err(error) => {
                self.failures += 1;
                Err(format!("no fresh worker: {error}"))
            }
        }
    }
}

/// Runs the check and asks who the backend is now; fills in everything of the record but the verdict.
fn attempt(
    case: &Case,
    worker: &mut Worker,
    identity: &Identity,
    bench: &mut Bench<'_>,
    record: &mut CaseRecord,
    values: &mut Option<Vec<f32>>,
) -> Result<Outcome, RunError> {
    bench.memory = Some(worker.memory());
    let remote = worker.remote();
    let counted = remote.ops_sent().clone();
    let found = check(case, remote, bench);
    let sent = remote.ops_sent().clone();
    let outcome = match found {
        Ok(finding) => {
            record.quality = finding.quality;
            record.output_sha256 = finding.output_sha256();
            *values = finding.values().map(<[f32]>::to_vec);
            record.notes.clone_from(&finding.notes);
            record.numerics = finding.numerics;
            record.delegated.clone_from(&finding.delegated);
            for (op, count) in sent {
                let new = count - counted.get(&op).copied().unwrap_or(0);
                if new > 0 {
                    record.native.insert(op.as_str().to_owned(), new);
                }
            }
            finding.outcome()
        }
        Err(CheckError::Backend(error)) => outcome_of(&error),
        Err(CheckError::Suite(error)) => return Err(RunError::Kit(error.to_string())),
        Err(error @ CheckError::Kit(_)) => return Err(RunError::Kit(error.to_string())),
    };
    // The handles of this case must not be there for the next one.
    let after = remote.reset().and_then(|()| remote.refresh_identity());
    Ok(match after {
        Ok(now) if now == *identity => outcome,
        Ok(now) => Outcome::Error { detail: changed(identity, &now) },
        Err(error) if outcome == Outcome::Pass => {
            Outcome::Error { detail: format!("after the case: {error}") }
        }
        Err(_) => outcome,
    })
}

fn changed(was: &Identity, now: &Identity) -> String {
    let (was, now) = (serde_json::to_value(was), serde_json::to_value(now));
    if let (Ok(serde_json::Value::Object(was)), Ok(serde_json::Value::Object(now))) = (was, now) {
        for (field, value) in &was {
            if now.get(field) != Some(value) {
                let now = now.get(field).unwrap_or(&serde_json::Value::Null);
                return format!("the backend's identity changed: {field} was {value}, now it is {now}");
            }
        }
    }
    "the backend's identity changed".to_owned()
}

/// The outcome of the case during which a worker died.
fn of_death(death: &Death) -> Outcome {
    let op = death.last_op.map(|op| op.as_str().to_owned());
    let stderr = death.stderr_tail(STDERR_LINES);
    match &death.cause {
        Cause::Timeout { after, .. } => {
            Outcome::Timeout { op, after: format!("{} s", after.as_secs_f64()), stderr }
        }
        Cause::Garbage { .. } => Outcome::Error { detail: death.to_string() },
        cause => Outcome::Crash { cause: cause.to_string(), op, stderr },
    }
}
