//! The predicate of a support row: a pure function of the record of a run.
//!
//! Everything that is not a small count is a string, because many readers turn JSON numbers into doubles.

mod derive;

use std::collections::BTreeMap;

use modelbench_contract::{Cap, Class, DeviceKind, Op};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::expected::Expectation;
use crate::gaps::Gap;
use crate::gate::Gate;
use crate::label::Label;
use crate::mode::Mode;
use crate::numerics::NumericsRow;
use crate::record::{ChallengeRef, Rung};
#[cfg(doc)]
use crate::time;

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
