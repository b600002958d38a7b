//! What happened in a case, and what that means: two types, joined by [`Rules`](crate::expected::Rules).

use modelbench_contract::Cap;
use serde::{Deserialize, Serialize};

/// Why a case did not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "kebab-case", deny_unknown_fields)]
pub enum NotRun {
    /// The case proves a cap that the backend does not advertise.
    CapNotAdvertised {
        /// The cap.
        cap: Cap,
    },
    /// The kit could not carry on: no fresh worker could be started, or the run was told to stop.
    Kit {
        /// What prevented it.
        reason: String,
    },
}

/// What happened in a case. Exactly one of these, never two.
// Without `deny_unknown_fields`: together with the flattened reason of `NotRun` it would refuse that reason.
// Unknown fields are refused all the same, because a record line must equal its own re-serialisation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Outcome {
    /// Every check of the case held.
    Pass,
    /// An answer came back and is wrong.
    Mismatch {
        /// What differs, with the first elements.
        detail: String,
    },
    /// The backend answered with an error that the case does not expect, or broke the protocol.
    Error {
        /// The error's text.
        detail: String,
    },
    /// The backend answered `Unimplemented`.
    Unsupported {
        /// What it lacks.
        detail: String,
    },
    /// Every check held, but the host ran some ops on cpu-ref because the backend lacks them.
    Delegated {
        /// The ops, by name.
        ops: Vec<String>,
    },
    /// The worker died.
    Crash {
        /// Signal name or exit status.
        cause: String,
        /// The op in flight, if known.
        op: Option<String>,
        /// The last lines of the worker's stderr.
        stderr: String,
    },
    /// A request did not finish before its deadline; the worker was killed.
    Timeout {
        /// The op in flight, if known.
        op: Option<String>,
        /// The deadline, as text.
        after: String,
        /// The last lines of the worker's stderr.
        stderr: String,
    },
    /// The answer holds, but carries too little information to trust.
    Mistrusted {
        /// Why.
        detail: String,
    },
    /// The case did not run.
    NotRun {
        /// Why not.
        #[serde(flatten)]
        why: NotRun,
    },
}

impl Outcome {
    /// The names of all outcomes, `pass` first.
    pub const NAMES: [&str; 9] = [
        "pass",
        "mismatch",
        "error",
        "unsupported",
        "delegated",
        "crash",
        "timeout",
        "mistrusted",
        "not-run",
    ];

    /// The name used in summaries.
    pub fn as_str(&self) -> &'static str {
        match self {
            Outcome::Pass => Outcome::NAMES[0],
            Outcome::Mismatch { .. } => Outcome::NAMES[1],
            Outcome::Error { .. } => Outcome::NAMES[2],
            Outcome::Unsupported { .. } => Outcome::NAMES[3],
            Outcome::Delegated { .. } => Outcome::NAMES[4],
            Outcome::Crash { .. } => Outcome::NAMES[5],
            Outcome::Timeout { .. } => Outcome::NAMES[6],
            Outcome::Mistrusted { .. } => Outcome::NAMES[7],
            Outcome::NotRun { .. } => Outcome::NAMES[8],
        }
    }
}

/// What an outcome means for the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The case supports the claim.
    Ok,
    /// The case refutes the claim, or fails to support it.
    Regression,
    /// A listed failure happened as listed.
    ExpectedFailure,
    /// A listed failure did not happen: the list is stale.
    UnexpectedPass,
    /// A signed waiver excuses the case.
    Waived,
    /// The case proves a cap that is not advertised; it is outside the claim.
    NotApplicable,
}

impl Verdict {
    /// The name used in summaries.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Regression => "regression",
            Verdict::ExpectedFailure => "expected-failure",
            Verdict::UnexpectedPass => "unexpected-pass",
            Verdict::Waived => "waived",
            Verdict::NotApplicable => "not-applicable",
        }
    }
}
