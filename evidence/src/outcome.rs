//! What happened in a case, and what that means: two types, joined by one function.

use modelbench_contract::{Cap, Caps};
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
    /// The name used in summaries.
    pub fn as_str(&self) -> &'static str {
        match self {
            Outcome::Pass => "pass",
            Outcome::Mismatch { .. } => "mismatch",
            Outcome::Error { .. } => "error",
            Outcome::Unsupported { .. } => "unsupported",
            Outcome::Delegated { .. } => "delegated",
            Outcome::Crash { .. } => "crash",
            Outcome::Timeout { .. } => "timeout",
            Outcome::Mistrusted { .. } => "mistrusted",
            Outcome::NotRun { .. } => "not-run",
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
    /// The verdict on an outcome, given the caps that the backend advertises.
    ///
    /// Everything but a pass is a regression, so that a new outcome can never become green by omission. A case
    /// counts as not applicable only if the cap it names is really absent.
    pub fn of(outcome: &Outcome, caps: &Caps) -> Verdict {
        match outcome {
            Outcome::Pass => Verdict::Ok,
            Outcome::NotRun { why: NotRun::CapNotAdvertised { cap } } if !caps.contains(cap) => {
                Verdict::NotApplicable
            }
            _ => Verdict::Regression,
        }
    }

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
