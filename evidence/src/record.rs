//! The lines of `results.jsonl`, the one record of a run: a header, a line per case, a footer.

use std::collections::BTreeMap;
use std::io::{self, Read};

use modelbench_contract::{Cap, Identity};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::expected::Expectation;
use crate::measured::Measured;
use crate::mode::Mode;
use crate::numerics::Numerics;
use crate::outcome::{Outcome, Verdict};

/// Identifies the format of `results.jsonl`.
pub const RESULTS_SCHEMA: &str = "urn:modelbench:results:v1";

/// A rung of the ladder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rung {
    /// Contract.
    R0,
    /// Ops.
    R1,
    /// Forward.
    R2,
    /// Caps.
    R3,
    /// Collectives.
    R4,
    /// Generation.
    R5,
    /// Endurance.
    R6,
}

impl Rung {
    /// Every rung, lowest first.
    pub const ALL: [Rung; 7] = [Rung::R0, Rung::R1, Rung::R2, Rung::R3, Rung::R4, Rung::R5, Rung::R6];

    /// The folder name in the suite tree and first segment of a case id.
    pub fn as_str(self) -> &'static str {
        ["r0", "r1", "r2", "r3", "r4", "r5", "r6"][self as usize]
    }

    /// What the rung shows, in one word.
    pub fn title(self) -> &'static str {
        ["contract", "ops", "forward", "caps", "collectives", "generation", "endurance"][self as usize]
    }
}

/// A file that the row speaks about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileDigest {
    /// Plain file name.
    pub name: String,
    /// Lower-case hex.
    pub sha256: String,
}

impl FileDigest {
    /// Reads everything to its end and gives its digest under a name.
    ///
    /// # Errors
    /// Those of the reader.
    pub fn of(name: impl Into<String>, mut reader: impl Read) -> io::Result<FileDigest> {
        let mut hash = Sha256::new();
        let mut piece = vec![0; 1 << 20];
        loop {
            match reader.read(&mut piece)? {
                0 => return Ok(FileDigest { name: name.into(), sha256: hex::encode(hash.finalize()) }),
                n => hash.update(&piece[..n]),
            }
        }
    }
}

/// Which suites a run was told to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuiteRef {
    /// Name of the set: `smoke`, `full`.
    pub set: String,
    /// sha256 over the whole suite tree, goldens and bundled fixtures.
    pub digest: String,
    /// True if `digest` is the one compiled into this kit.
    pub is_kit: bool,
    /// Number of cases that the set pins.
    pub cases: u64,
    /// sha256 over the sorted case ids that the set pins.
    pub cases_digest: String,
    /// Number of cases that the set `full` pins.
    pub full_cases: u64,
}

/// The model under test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelRef {
    /// Name of the folder or file.
    pub name: String,
    /// sha256 of the weight file(s).
    pub sha256: String,
    /// `llama` or `qwen2`.
    pub family: String,
    /// Number of parameters.
    pub parameters: u64,
    /// Shape: `layers`, `hidden`, `heads`, `kv_heads`, `head_dim`, `ffn`, `vocab`.
    pub shape: BTreeMap<String, u64>,
    /// Where its golden comes from: `stored` (matched by digest) or `computed` (the kit's own float64 evaluation).
    pub golden: String,
}

/// A verifier's challenge, as the run met it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all(serialize = "camelCase", deserialize = "camelCase"), deny_unknown_fields)]
pub struct ChallengeRef {
    /// The nonce, lower-case hex.
    pub nonce: String,
    /// sha256 of the challenge file.
    pub sha256: String,
    /// Fingerprint of the verifier's key.
    pub verifier: String,
    /// End of its validity, RFC 3339 UTC.
    pub expires: String,
}

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// [`RESULTS_SCHEMA`].
    pub schema: String,
    /// Version of the kit.
    pub kit_version: String,
    /// The modelbench binary.
    pub kit: FileDigest,
    /// The backend's own files; for a bundled backend the modelbench binary.
    pub backend_files: Vec<FileDigest>,
    /// What the backend says about itself.
    pub backend: Identity,
    /// Suites.
    pub suite: SuiteRef,
    /// Model under test.
    pub model: ModelRef,
    /// Seed of every generated input, as `0x…`.
    pub seed: String,
    /// Why the run was made.
    pub mode: Mode,
    /// Case filter, if the run had one. A filtered run has no row.
    pub filter: Option<String>,
    /// Known failures that the run was told of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expected: Vec<Expectation>,
    /// Waivers that the run was told of: the signed envelopes, as text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waivers: Vec<String>,
    /// How often a case that fails is tried again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retries: u32,
    /// True if the run demands the non-reference gate.
    pub require_non_reference: bool,
    /// True if the run refuses a device that the CPU emulates.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub require_hardware: bool,
    /// The challenge that the inputs derive from, if a verifier posed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub challenge: Option<ChallengeRef>,
    /// Operating system, CPU, kernel and the like, by name.
    pub environment: BTreeMap<String, String>,
    /// What stands between the backend and its device, or could redirect it: variables and layers, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub interference: BTreeMap<String, String>,
    /// What holds the worker in: measure by measure, what the kernel gave and what it could not.
    pub sandbox: BTreeMap<String, String>,
    /// Start, RFC 3339 UTC.
    pub started: String,
}

impl Header {
    /// True if the run fails without the gate: to require hardware is to require that it did the work.
    pub fn requires_gate(&self) -> bool {
        self.require_non_reference || self.require_hardware
    }
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// How far the outputs were from the truth.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quality {
    /// Elements compared.
    pub elements: u64,
    /// Elements whose bits differ from cpu-ref's answer to the same question.
    pub bits_differ: u64,
    /// Elements compared with cpu-ref bit by bit (0 where cpu-ref was not asked).
    pub bits_compared: u64,
    /// Largest error divided by its bound; absent where the case has no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst: Option<f64>,
    /// 99th percentile of error divided by bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99: Option<f64>,
    /// Mean of the signed error divided by bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<f64>,
    /// Of the elements with an error, the share whose result is too small in magnitude: about one half where results
    /// are rounded to nearest, 1 where they are truncated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inward: Option<f64>,
}

/// A line per case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseRecord {
    /// Stable printable name; its first segment is the rung.
    pub id: String,
    /// The rung.
    pub rung: Rung,
    /// What the case is about: an op, `forward`, a cap.
    pub subject: String,
    /// The cap that the case proves, if it proves one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proves: Option<Cap>,
    /// Outcomes of the tries before the last one, by name; the run was told to try failures again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tries: Vec<String>,
    /// What happened, in the last try.
    pub outcome: Outcome,
    /// What it means.
    pub verdict: Verdict,
    /// How far from the truth.
    pub quality: Quality,
    /// Ops that the backend ran, by name.
    pub native: BTreeMap<String, u64>,
    /// Ops that the host ran on cpu-ref in the backend's place, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub delegated: BTreeMap<String, u64>,
    /// sha256 over the outputs read from the backend, in order.
    pub output_sha256: String,
    /// Notes that explain a pass: near-ties, a sandbox measure that does not apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What the case found out about the backend's arithmetic, if that is what it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numerics: Option<Numerics>,
    /// Wall time in milliseconds: the only field of the line that differs between equal runs.
    pub ms: u64,
}

/// The last line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Footer {
    /// Number of case lines.
    pub cases: u64,
    /// sha256 over every byte before this line.
    pub sha256: String,
    /// End, RFC 3339 UTC.
    pub finished: String,
}

/// One line of `results.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "lowercase")]
pub enum Line {
    /// First.
    Header(Box<Header>),
    /// One per case.
    Case(Box<CaseRecord>),
    /// At most one, after the cases.
    Measured(Box<Measured>),
    /// Last.
    Footer(Footer),
}
