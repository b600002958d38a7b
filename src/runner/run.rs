//! One run: every case of a plan, each on a live worker, whatever happened to the one before.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use modelbench_contract::Identity;
use modelbench_evidence::outcome::{NotRun, Outcome, Verdict};
use modelbench_evidence::record::{CaseRecord, FileDigest, Header, Quality, RESULTS_SCHEMA, SuiteRef};
use modelbench_evidence::time;

use super::event::{Event, Sink};
use super::finding::{CheckError, Finding, outcome_of};
use super::knowledge::Knowledge;
use super::models::Subject;
use super::registry::{Bench, check, subject, unanswered};
use crate::inputs::Stream;
use crate::kit;
use crate::suite::{Case, Set};
use crate::worker::{Cause, Death, Worker, WorkerError, WorkerSpec};

/// Workers that may fail to start one after the other before the kit gives up on the rest.
const START_ATTEMPTS: usize = 3;
/// Lines of a dead worker's stderr that go into the record.
const STDERR_LINES: usize = 6;

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
    /// Exact name of the backend.
    pub backend: String,
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
    /// True if the gate must pass.
    pub require_non_reference: bool,
    /// Longest time that one request may take.
    pub request_deadline: Duration,
    /// Most memory that the worker may use.
    pub memory_limit_bytes: u64,
    /// True if self-test backends are allowed.
    pub self_test: bool,
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

/// Runs every case and tells the sink; gives the record's header and case lines.
///
/// # Errors
/// [`RunError`]; a failing case is never one.
pub fn run(plan: Plan<'_>, sink: &mut dyn Sink) -> Result<(Header, Vec<CaseRecord>), RunError> {
    let started = time::format(SystemTime::now()).map_err(|e| RunError::Kit(e.to_string()))?;
    let spec = spec(&plan);
    let not_loaded =
        |e: WorkerError| RunError::NotLoaded { backend: plan.backend.clone(), reason: e.to_string() };
    let worker = Worker::launch(&spec).map_err(not_loaded)?;
    let header = header(&plan, &worker, started)?;
    sink.event(&Event::Started { header: &header, cases: plan.cases.len() })?;
    let Plan { cases, order, knowledge, seed, enough_regressions, .. } = plan;
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
    let mut post =
        Post { spec, worker: Some(worker), workers: 1, failures: 0, identity: header.backend.clone() };
    let mut records = Vec::with_capacity(cases.len());
    let mut regressions = 0;
    for case in &cases {
        sink.event(&Event::CaseStarted { id: &case.id })?;
        let begun = Instant::now();
        let before = post.workers;
        let mut record = post.run(case, &mut bench)?;
        record.ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        if post.workers > before {
            sink.event(&Event::WorkerReplaced { workers: post.workers })?;
        }
        sink.event(&Event::CaseFinished { record: &record })?;
        regressions += usize::from(record.verdict == Verdict::Regression);
        records.push(record);
        if enough_regressions.is_some_and(|enough| regressions >= enough) {
            break;
        }
    }
    if let Some(worker) = post.worker.take() {
        worker.shutdown();
    }
    Ok((header, records))
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

/// The place where one worker stands at a time.
struct Post {
    spec: WorkerSpec,
    worker: Option<Worker>,
    workers: usize,
    failures: usize,
    identity: Identity,
}

impl Post {
    fn run(&mut self, case: &Case, bench: &mut Bench<'_>) -> Result<CaseRecord, RunError> {
        let mut record = CaseRecord {
            id: case.id.clone(),
            rung: case.rung,
            subject: subject(case),
            proves: case.group.proves,
            bits_probe: case.group.bits_probe,
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
                    let outcome = attempt(case, &mut worker, &self.identity, bench, &mut record)?;
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
        record.verdict = Verdict::of(&record.outcome, &self.identity.caps);
        Ok(record)
    }

    /// The worker at the post, or a fresh one with the same identity.
    fn staff(&mut self) -> Result<Worker, String> {
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

fn spec(plan: &Plan<'_>) -> WorkerSpec {
    let mut args = vec!["worker".into(), "--backend".into(), plan.backend.clone().into()];
    if plan.self_test {
        args.push("--self-test".into());
    }
    WorkerSpec {
        args,
        request_deadline: plan.request_deadline,
        start_deadline: plan.request_deadline.max(Duration::from_secs(30)),
        memory_limit_bytes: plan.memory_limit_bytes,
        ..WorkerSpec::this_binary()
    }
}

fn header(plan: &Plan<'_>, worker: &Worker, started: String) -> Result<Header, RunError> {
    let kit = own_binary().map_err(|e| RunError::Kit(format!("this program cannot read itself: {e}")))?;
    let model = plan.knowledge.models.subject().map(Subject::reference);
    let model = model.ok_or_else(|| RunError::Kit("the model under test is in use".into()))?;
    Ok(Header {
        schema: RESULTS_SCHEMA.to_owned(),
        kit_version: kit::VERSION.to_owned(),
        backend_files: vec![kit.clone()],
        kit,
        backend: worker.identity().clone(),
        suite: SuiteRef {
            set: plan.set.name.clone(),
            digest: plan.suite_digest.clone(),
            is_kit: plan.suite_is_kit,
            cases: plan.set.file.cases,
            cases_digest: plan.set.file.digest.clone(),
            full_cases: plan.full_cases,
        },
        model,
        seed: format!("{:#x}", plan.seed),
        mode: "ci".to_owned(),
        filter: plan.filter.clone(),
        require_non_reference: plan.require_non_reference,
        environment: environment(worker),
        sandbox: worker.sandbox().clone(),
        started,
    })
}

/// Digest of the running file, found out once: it cannot change.
fn own_binary() -> std::io::Result<FileDigest> {
    static OWN: OnceLock<FileDigest> = OnceLock::new();
    if let Some(known) = OWN.get() {
        return Ok(known.clone());
    }
    use sha2::{Digest, Sha256};
    // The running file itself, even if another one has taken its name since.
    let mut file =
        std::fs::File::open("/proc/self/exe").or_else(|_| std::fs::File::open(std::env::current_exe()?))?;
    let mut hash = Sha256::new();
    let mut piece = vec![0; 1 << 20];
    loop {
        match std::io::Read::read(&mut file, &mut piece)? {
            0 => break,
            n => hash.update(&piece[..n]),
        }
    }
    let digest = FileDigest { name: "modelbench".to_owned(), sha256: hex::encode(hash.finalize()) };
    Ok(OWN.get_or_init(|| digest).clone())
}

fn environment(worker: &Worker) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::from([
        ("os".to_owned(), std::env::consts::OS.to_owned()),
        ("arch".to_owned(), std::env::consts::ARCH.to_owned()),
    ]);
    let uname = rustix::system::uname();
    facts.insert("kernel".to_owned(), uname.release().to_string_lossy().into_owned());
    if let Ok(cores) = std::thread::available_parallelism() {
        facts.insert("cpus".to_owned(), cores.to_string());
    }
    facts.extend(worker.environment_facts());
    facts
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
