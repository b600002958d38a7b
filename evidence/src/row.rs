//! The predicate of a support row: a pure function of the record of a run.
//!
//! Everything that is not a small count is a string, because many readers turn JSON numbers into doubles.

use std::collections::BTreeMap;

use modelbench_contract::{Cap, Class, DeviceKind, Op};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::expected::Expectation;
use crate::gaps::Gap;
use crate::gate::{self, Gate};
use crate::json::decimal;
use crate::label::{self, Derived, Label};
use crate::mode::Mode;
use crate::numerics::{self, NumericsRow};
use crate::record::{CaseRecord, ChallengeRef, Rung};
use crate::results::{RESULTS_FILE, Results};
use crate::time::{self, TimeError};

/// Identifies the predicate; the only place that says so.
pub const PREDICATE_TYPE: &str = "urn:modelbench:support-row:v1";

/// Who vouches for a row that this version writes: the tester alone.
pub const ASSURANCE: &str = "self-tested";

macro_rules! row_struct {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub struct $name { $($(#[$field_doc])* pub $field: $type,)* }
    };
}

row_struct! {
    /// The support row.
    Predicate {
        /// What the row says: what was earned, but not more than the mode of the run allows.
        label: Label,
        /// What the run earned, whatever its mode.
        earned_label: Label,
        /// Closeness that the backend promises.
        correctness_class: Class,
        /// Who vouches: [`ASSURANCE`].
        assurance: String,
        /// Highest rung reached without a break.
        highest_rung: Option<Rung>,
        /// Version of the kit that judged.
        kit_version: String,
        /// The backend.
        backend: BackendRow,
        /// Caps.
        caps: CapsRow,
        /// Declared arithmetic, which the bounds were derived from, and the arithmetic that the answers show.
        numerics: NumericsRow,
        /// Where it ran.
        hardware: HardwareRow,
        /// What it ran.
        model: ModelRow,
        /// Memory.
        capacity: CapacityRow,
        /// Closeness to the truth and to cpu-ref.
        parity: ParityRow,
        /// What happens to ops that the backend lacks.
        fallback: FallbackRow,
        /// The non-reference gate with each witness.
        gate: Gate,
        /// Counts by rung, lowest first.
        rungs: Vec<RungRow>,
        /// Ops proven natively.
        ops_proven: Vec<Op>,
        /// Everything that keeps the label down.
        gaps: Vec<Gap>,
        /// Declared limit of the claim; always null in this version.
        fence: Option<Value>,
        /// Signed excuses that the run was told of: the envelopes, as text.
        waivers: Vec<String>,
        /// What was asked.
        suite: SuiteRow,
        /// The challenge that the inputs derive from, if a verifier posed one.
        challenge: Option<ChallengeRef>,
        /// Known failures that the run was told of.
        expected: Vec<Expectation>,
        /// How often a case that failed was tried again.
        retries: u64,
        /// Operating system, CPU, kernel and the like, by name.
        environment: BTreeMap<String, String>,
        /// What stood between the backend and its device, or could redirect it.
        interference: BTreeMap<String, String>,
        /// What held the worker in, measure by measure.
        sandbox: BTreeMap<String, String>,
        /// Start of the run, RFC 3339 UTC.
        started_on: String,
        /// End of the run, RFC 3339 UTC.
        finished_on: String,
        /// End of the row's validity, [`time::VALID_DAYS`] after the run.
        valid_until: String,
        /// Why the run was made.
        mode: Mode,
        /// The record that everything here follows from.
        evidence: Vec<EvidenceRow>,
    }
}
row_struct! {
    /// The backend.
    BackendRow {
        /// Stable id.
        id: String,
        /// Its version.
        version: String,
        /// Its private tier string.
        tier: String,
    }
}
row_struct! {
    /// Caps.
    CapsRow {
        /// Caps without which no label is given; none in this version.
        required: Vec<Cap>,
        /// Advertised.
        declared: Vec<Cap>,
        /// Advertised and proven.
        proven: Vec<Cap>,
        /// Advertised and not proven.
        unproven: Vec<Cap>,
    }
}
row_struct! {
    /// Hardware and runtime, as the backend names them.
    HardwareRow {
        /// What kind of device.
        kind: DeviceKind,
        /// Its name.
        name: String,
        /// Driver and version; empty for a CPU.
        driver: String,
        /// Library that runs the ops.
        runtime: String,
    }
}
row_struct! {
    /// The model under test.
    ModelRow {
        /// Name of the folder or file.
        name: String,
        /// sha256 of the weights.
        sha256: String,
        /// `llama` or `qwen2`.
        family: String,
        /// Number of parameters, decimal.
        parameters: String,
        /// Shape, each figure decimal.
        shape: BTreeMap<String, String>,
        /// `stored` or `computed`.
        golden: String,
    }
}
row_struct! {
    /// Memory of device and host.
    CapacityRow {
        /// Of the device.
        device: CapacityState,
        /// Of the host.
        host: CapacityState,
    }
}
row_struct! {
    /// A memory size, or that it is unknown; never 0 for unknown.
    CapacityState {
        /// `unknown`; this version measures none.
        state: String,
    }
}
row_struct! {
    /// Closeness to the truth and to cpu-ref, over all cases.
    ParityRow {
        /// What bits are compared with.
        reference: String,
        /// Largest error divided by its bound, decimal; null if no case has a bound.
        worst_error_over_bound: Option<String>,
        /// The case with that error.
        worst_case: Option<String>,
        /// Elements compared with an oracle, decimal.
        elements_compared: String,
        /// Elements compared with cpu-ref bit by bit, decimal.
        bits_compared: String,
        /// Those that differ, decimal.
        bits_differ: String,
    }
}
row_struct! {
    /// What happens to ops that the backend lacks.
    FallbackRow {
        /// Who ran them.
        target: String,
        /// How they count.
        policy: String,
        /// Calls by op, each decimal.
        delegated: BTreeMap<String, String>,
    }
}
row_struct! {
    /// Counts of a rung.
    RungRow {
        /// The rung.
        rung: Rung,
        /// What it shows.
        title: String,
        /// Cases recorded.
        total: u64,
        /// Cases that count.
        applicable: u64,
        /// Ok.
        passed: u64,
        /// Wrong, dead or late.
        failed: u64,
        /// Missing in the backend.
        unsupported: u64,
        /// Helped by the host.
        delegated: u64,
        /// Did not run.
        not_run: u64,
        /// Failed as the list of known failures says.
        expected: u64,
        /// Failed and are waived.
        waived: u64,
        /// Largest error divided by its bound; null if no case has a bound.
        worst: Option<WorstRow>,
    }
}
row_struct! {
    /// The largest error of a rung.
    WorstRow {
        /// Error divided by bound, decimal.
        error_over_bound: String,
        /// The case.
        case: String,
    }
}
row_struct! {
    /// What was asked.
    SuiteRow {
        /// Name of the set.
        set: String,
        /// sha256 over suites, goldens and fixtures.
        digest: String,
        /// True if that is the kit's own.
        is_kit: bool,
        /// Cases that the set pins, decimal.
        cases: String,
        /// sha256 over their sorted ids.
        cases_digest: String,
        /// Cases that the set `full` pins, decimal.
        full_cases: String,
        /// Seed of every generated input.
        seed: String,
    }
}
row_struct! {
    /// A file that the row rests on.
    EvidenceRow {
        /// File name.
        name: String,
        /// Its digest.
        digest: DigestRow,
        /// Its media type.
        media_type: String,
    }
}
row_struct! {
    /// A digest.
    DigestRow {
        /// sha256, lower-case hex.
        sha256: String,
    }
}

impl Predicate {
    /// Derives the row from a record: gate, label, counts and all.
    ///
    /// # Errors
    /// [`TimeError`] if the record's end is not a time; a record from [`Results::parse`] never has that.
    pub fn of(results: &Results) -> Result<Predicate, TimeError> {
        let Results { header, cases, measured, footer, sha256 } = results;
        let gate = gate::decide(header, cases, measured.as_ref());
        let derived = label::derive(header, cases, &gate);
        let Derived { label, earned, gaps, rungs, highest_rung, .. } = derived;
        let Derived { caps_proven, caps_unproven, ops_proven, .. } = derived;
        let unknown = || CapacityState { state: "unknown".to_owned() };
        let (backend, suite, model) = (&header.backend, &header.suite, &header.model);
        Ok(Predicate {
            label,
            earned_label: earned,
            correctness_class: backend.class,
            assurance: ASSURANCE.to_owned(),
            highest_rung,
            kit_version: header.kit_version.clone(),
            backend: BackendRow {
                id: backend.name.clone(),
                version: backend.version.clone(),
                tier: backend.tier.clone(),
            },
            caps: CapsRow {
                required: Vec::new(),
                declared: backend.caps.iter().copied().collect(),
                proven: caps_proven,
                unproven: caps_unproven,
            },
            numerics: numerics::infer(backend.numerics, cases),
            hardware: HardwareRow {
                kind: backend.device.kind,
                name: backend.device.hardware.clone(),
                driver: backend.device.driver.clone(),
                runtime: backend.device.runtime.clone(),
            },
            model: ModelRow {
                name: model.name.clone(),
                sha256: model.sha256.clone(),
                family: model.family.clone(),
                parameters: model.parameters.to_string(),
                shape: texts(&model.shape),
                golden: model.golden.clone(),
            },
            capacity: CapacityRow { device: unknown(), host: unknown() },
            parity: parity(cases, &rungs),
            fallback: FallbackRow {
                target: "cpu-ref".to_owned(),
                policy: "the host runs missing ops on cpu-ref, counts them and gives no credit for them"
                    .to_owned(),
                delegated: texts(&gate::total_ops(cases.iter().map(|case| &case.delegated))),
            },
            gate,
            rungs: rungs.into_iter().map(RungRow::from).collect(),
            ops_proven,
            gaps,
            fence: None,
            waivers: header.waivers.clone(),
            suite: SuiteRow {
                set: suite.set.clone(),
                digest: suite.digest.clone(),
                is_kit: suite.is_kit,
                cases: suite.cases.to_string(),
                cases_digest: suite.cases_digest.clone(),
                full_cases: suite.full_cases.to_string(),
                seed: header.seed.clone(),
            },
            challenge: header.challenge.clone(),
            expected: header.expected.clone(),
            retries: u64::from(header.retries),
            environment: header.environment.clone(),
            interference: header.interference.clone(),
            sandbox: header.sandbox.clone(),
            started_on: header.started.clone(),
            finished_on: footer.finished.clone(),
            valid_until: time::valid_until(&footer.finished)?,
            mode: header.mode,
            evidence: vec![EvidenceRow {
                name: RESULTS_FILE.to_owned(),
                digest: DigestRow { sha256: sha256.clone() },
                media_type: "application/x-ndjson".to_owned(),
            }],
        })
    }
}

fn texts(counts: &BTreeMap<String, u64>) -> BTreeMap<String, String> {
    counts.iter().map(|(name, count)| (name.clone(), count.to_string())).collect()
}

fn parity(cases: &[CaseRecord], rungs: &[label::RungCount]) -> ParityRow {
    let worst = rungs.iter().filter_map(|rung| rung.worst.as_ref()).max_by(|a, b| a.0.total_cmp(&b.0));
    // 128 bits hold the sum of any number of 64-bit counts that a file can list.
    let sum = |count: fn(&CaseRecord) -> u64| {
        cases.iter().map(|case| u128::from(count(case))).sum::<u128>().to_string()
    };
    ParityRow {
        reference: "cpu-ref".to_owned(),
        worst_error_over_bound: worst.map(|(error, _)| decimal(*error)),
        worst_case: worst.map(|(_, case)| case.clone()),
        elements_compared: sum(|case| case.quality.elements),
        bits_compared: sum(|case| case.quality.bits_compared),
        bits_differ: sum(|case| case.quality.bits_differ),
    }
}

impl From<label::RungCount> for RungRow {
    fn from(count: label::RungCount) -> RungRow {
        RungRow {
            rung: count.rung,
            title: count.title.to_owned(),
            total: count.total,
            applicable: count.applicable,
            passed: count.passed,
            failed: count.failed,
            unsupported: count.unsupported,
            delegated: count.delegated,
            not_run: count.not_run,
            expected: count.expected,
            waived: count.waived,
            worst: count.worst.map(|(error, case)| WorstRow { error_over_bound: decimal(error), case }),
        }
    }
}
