//! What a check found, and what can stop it.

use modelbench_contract::{BackendError, Class, ErrorKind};
use modelbench_evidence::numerics::Numerics;
use modelbench_evidence::outcome::Outcome;
use modelbench_evidence::record::Quality;
use modelbench_evidence::tier::TIER_ELEMENTS;
use sha2::{Digest, Sha256};

use crate::compare::{Want, bits_differ, judge};
use crate::suite::SuiteError;

/// What stops a check before it can judge.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The backend refused, or its worker is gone.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The suite asks for something that cannot be.
    #[error(transparent)]
    Suite(#[from] SuiteError),
    /// The kit disagrees with itself or with its goldens. This is never the backend's fault and ends the run.
    #[error("defect of the kit, not of the backend: {0}")]
    Kit(String),
}

/// Most defects of one case that are told in words; the rest is counted.
const TOLD: usize = 6;

/// What a check found out about a backend.
#[derive(Debug, Default)]
pub struct Finding {
    /// How far from the truth.
    pub quality: Quality,
    /// What is wrong, in words; the first is shown first. Empty means that every check held.
    pub wrong: Vec<String>,
    /// Why the answer cannot be trusted although it holds.
    pub mistrusted: Option<String>,
    /// Ops that the host ran, by name.
    pub delegated: std::collections::BTreeMap<String, u64>,
    /// Notes on a pass.
    pub notes: Vec<String>,
    /// What was found out about the backend's arithmetic.
    pub numerics: Option<Numerics>,
    outputs: Sha256,
    kept: Vec<f32>,
    dropped: bool,
}

impl Finding {
    /// Starts with what the host did for the backend.
    pub fn with_help(delegated: std::collections::BTreeMap<String, u64>) -> Finding {
        Finding { delegated, ..Finding::default() }
    }

    /// Adds an output of the backend to the digest of the case.
    pub fn output(&mut self, values: &[f32]) {
        self.outputs.update((values.len() as u64).to_le_bytes());
        for value in values {
            self.outputs.update(value.to_le_bytes());
        }
        self.dropped |= (self.kept.len() + values.len()) as u64 > TIER_ELEMENTS;
        if self.dropped {
            self.kept = Vec::new();
        } else {
            self.kept.extend_from_slice(values);
        }
    }

    /// The outputs, one after the other, unless they are more than a record would hold.
    pub fn values(&self) -> Option<&[f32]> {
        (!self.dropped).then_some(&self.kept)
    }

    /// Adds a defect unless `held`.
    pub fn require(&mut self, held: bool, defect: impl FnOnce() -> String) {
        if !held {
            self.wrong.push(defect());
        }
    }

    /// Judges a part of the case, adds its figures and what is wrong with it, and says whether it holds.
    pub fn judge(&mut self, what: &str, want: &Want, got: &[f32], slack: f64) -> bool {
        let judged = judge(want, got, slack);
        self.merge(judged.quality);
        let held = judged.wrong.is_none();
        self.wrong.extend(judged.wrong.map(|wrong| format!("{what}: {wrong}")));
        held
    }

    /// Keeps the first few defects and counts the rest.
    pub fn shorten(&mut self) {
        let more = self.wrong.len().saturating_sub(TOLD);
        if more > 0 {
            self.wrong.truncate(TOLD);
            self.wrong.push(format!("and {more} more"));
        }
    }

    /// Counts the elements of an output whose bits differ from cpu-ref's.
    pub fn compare_bits(&mut self, got: &[f32], host: &[f32]) {
        self.quality.bits_compared += host.len() as u64;
        self.quality.bits_differ += bits_differ(got, host);
    }

    /// Requires that none of the elements counted so far differ, where the backend declares itself `Reference`.
    pub fn require_bits(&mut self, class: Class) {
        let (differ, all) = (self.quality.bits_differ, self.quality.bits_compared);
        self.require(class != Class::Reference || differ == 0, || {
            format!("{differ} of {all} elements differ in bits from cpu-ref")
        });
    }

    /// Adds the figures of another part of the same case.
    pub fn merge(&mut self, part: Quality) {
        let larger = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
        let (n, m) = (self.quality.elements as f64, part.elements as f64);
        let mean = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) if n + m > 0.0 => Some((a * n + b * m) / (n + m)),
            (a, b) => a.or(b),
        };
        self.quality.bias = mean(self.quality.bias, part.bias);
        self.quality.inward = mean(self.quality.inward, part.inward);
        self.quality.elements += part.elements;
        self.quality.bits_compared += part.bits_compared;
        self.quality.bits_differ += part.bits_differ;
        self.quality.worst = larger(self.quality.worst, part.worst);
        self.quality.p99 = larger(self.quality.p99, part.p99);
    }

    /// sha256 over the outputs, as lower-case hex.
    pub fn output_sha256(&self) -> String {
        hex::encode(self.outputs.clone().finalize())
    }

    /// The outcome that these facts amount to.
    pub fn outcome(&self) -> Outcome {
        if !self.wrong.is_empty() {
            Outcome::Mismatch { detail: self.wrong.join("\n") }
        } else if let Some(why) = &self.mistrusted {
            Outcome::Mistrusted { detail: why.clone() }
        } else if !self.delegated.is_empty() {
            Outcome::Delegated { ops: self.delegated.keys().cloned().collect() }
        } else {
            Outcome::Pass
        }
    }
}

/// The outcome of a case whose backend gave an error.
pub fn outcome_of(error: &BackendError) -> Outcome {
    let detail = error.to_string();
    match error.kind {
        ErrorKind::Unimplemented => Outcome::Unsupported { detail },
        // The client found that the answer does not have the shape that the op has.
        ErrorKind::Internal if error.message.starts_with("wrong shape:") => Outcome::Mismatch { detail },
        _ => Outcome::Error { detail },
    }
}
