//! The row as a SLSA verification summary v1, for consumers that know no support rows. A pure function of the record and
//! the row's envelope; there is none below `Approx`.

use serde::{Deserialize, Serialize};

use crate::intoto::{InToto, PredicateOf, sha256, tested};
use crate::label::Label;
use crate::publish::ROW_FILE;
use crate::results::Results;
use crate::row::Predicate;
use crate::statement::SubjectDigest;
use crate::testresult::suite_uri;

/// File name of the envelope, beside the row.
pub const FILE: &str = "vsa.dsse.json";
/// `verifier.id`: the derivation that `modelbench verify` repeats.
pub const VERIFIER: &str = "urn:modelbench:verify";
/// The SLSA specification that the fields follow.
const SLSA_VERSION: &str = "1.1";

/// The predicate, with the names of the specification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Summary {
    /// Who verified.
    pub verifier: Verifier,
    /// End of the run that the row was derived from, RFC 3339 UTC.
    pub time_verified: String,
    /// The backend that the subjects belong to.
    pub resource_uri: String,
    /// The suites that decided.
    pub policy: Policy,
    /// The row.
    pub input_attestations: Vec<InputAttestation>,
    /// Always `PASSED`.
    pub verification_result: String,
    /// One level: `MODELBENCH_REFERENCE` or `MODELBENCH_APPROX`.
    pub verified_levels: Vec<String>,
    /// Version of the SLSA specification.
    pub slsa_version: String,
}

/// Who verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verifier {
    /// [`VERIFIER`].
    pub id: String,
}

/// The policy that the subjects were verified against.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// `urn:modelbench:suite:<set>`.
    pub uri: String,
    /// Digest of suites, goldens and fixtures.
    pub digest: SubjectDigest,
}

/// An attestation that the decision rests on. Readers of the published schema know these two fields only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputAttestation {
    /// Where it is, seen from the summary's own place: the file name of the row.
    pub uri: String,
    /// Digest of its envelope.
    pub digest: SubjectDigest,
}

impl PredicateOf for Summary {
    const WHAT: &'static str = "a verification summary";
    const TYPE: &'static str = "https://slsa.dev/verification_summary/v1";
}

/// The statement that follows from a record, its row, and the sha256 of the bytes of `row.dsse.json`; none unless the
/// label is `Reference` or `Approx`.
pub fn of(results: &Results, row: &Predicate, row_sha256: &str) -> Option<InToto<Summary>> {
    let level = match row.label {
        Label::Reference => "MODELBENCH_REFERENCE",
        Label::Approx => "MODELBENCH_APPROX",
        Label::Fenced | Label::Partial | Label::NotYet => return None,
    };
    let suite = &results.header.suite;
    let predicate = Summary {
        verifier: Verifier { id: VERIFIER.to_owned() },
        time_verified: row.finished_on.clone(),
        resource_uri: format!("urn:modelbench:backend:{}", row.backend.id),
        policy: Policy { uri: suite_uri(&suite.set), digest: sha256(&suite.digest) },
        input_attestations: vec![InputAttestation { uri: ROW_FILE.to_owned(), digest: sha256(row_sha256) }],
        verification_result: "PASSED".to_owned(),
        verified_levels: vec![level.to_owned()],
        slsa_version: SLSA_VERSION.to_owned(),
    };
    Some(InToto::new(tested(&results.header), predicate))
}
