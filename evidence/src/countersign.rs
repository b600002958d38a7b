//! Countersignatures: an independent verifier ran the subject again, came to the same outcomes, and says so in an
//! envelope of its own beside the row.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::document::{self, DocumentError};
use crate::dsse::{DsseError, Envelope, PAYLOAD_TYPE};
use crate::intoto::{AttestationError, InToto, PredicateOf, sha256};
use crate::keys::{PrivateKey, PublicKey};
use crate::label::Label;
use crate::publish::ROW_FILE;
use crate::record_checks;
use crate::results::Results;
use crate::statement::{Statement, StatementError, Subject};
use crate::time::{self, TimeError};
use crate::verify::{Signer, Verified};

/// What a countersignature vouches for.
pub const ASSURANCE: &str = "reproduced";
/// File names of countersignatures begin with this.
pub const FILE_PREFIX: &str = "countersignature-";
/// Cases that an error lists.
const LISTED: usize = 10;

/// Why a row cannot be countersigned, or why a countersignature does not count.
#[derive(Debug, thiserror::Error)]
pub enum CountersignError {
    /// One person on both sides.
    #[error("the row and the countersignature are both by {keyid}: nobody reproduces one's own row")]
    OwnRow {
        /// Fingerprint of the key.
        keyid: String,
    },
    /// Nobody knows who signed the row.
    #[error("the row was verified with the key that lay beside it: give the key of its signer")]
    UnknownSigner,
    /// The second run is somebody else's.
    #[error("the second run is signed by {found}, expected the countersigner's own key {expected}")]
    OthersRun {
        /// Signer of the second run.
        found: String,
        /// The countersigner.
        expected: String,
    },
    /// The second run is the first.
    #[error("both rows rest on the same record with sha256 {sha256}: run the backend again")]
    SameRun {
        /// sha256 of `results.jsonl`.
        sha256: String,
    },
    /// The second run is about something else.
    #[error("{what} is {row} in the row and {rerun} in the second run: they are not about the same")]
    Differs {
        /// What differs.
        what: &'static str,
        /// In the row.
        row: String,
        /// In the second run.
        rerun: String,
    },
    /// Cases ended differently.
    #[error("{count} cases ended differently in the second run: {listed}")]
    Outcomes {
        /// How many.
        count: usize,
        /// The first of them, with both outcomes.
        listed: String,
    },
    /// The file is not the row that was verified.
    #[error("{ROW_FILE} is not the row that was verified: {reason}")]
    RowFile {
        /// What differs.
        reason: String,
    },
    /// A field has a value that cannot be.
    #[error("countersignature: {field} is {found}, expected {expected}")]
    Field {
        /// Path of the field.
        field: String,
        /// Its value.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// The envelope, its signature or its form.
    #[error("countersignature: {0}")]
    Document(#[from] DocumentError),
    /// It says something else than the row.
    #[error(transparent)]
    Attestation(#[from] AttestationError),
    /// The row's envelope.
    #[error("{ROW_FILE}: {0}")]
    Dsse(#[from] DsseError),
    /// The row's payload.
    #[error("{ROW_FILE}: {0}")]
    Statement(#[from] StatementError),
    /// A time is none.
    #[error(transparent)]
    Time(#[from] TimeError),
}

/// What the countersigner says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Reproduction {
    /// [`ASSURANCE`].
    pub assurance: String,
    /// The row that was reproduced.
    pub row: ReproducedRow,
    /// The countersigner's own run.
    pub run: SecondRun,
    /// Fingerprint of the countersigner's key.
    pub verifier: String,
    /// End of the countersigner's run, RFC 3339 UTC.
    pub time_verified: String,
}

/// The row that was reproduced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReproducedRow {
    /// sha256 of `row.dsse.json`.
    pub sha256: String,
    /// Its label.
    pub label: Label,
}

/// The countersigner's own run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecondRun {
    /// sha256 of its `results.jsonl`.
    pub results_sha256: String,
    /// Its label.
    pub label: Label,
    /// Its cases.
    pub case_count: u64,
    /// Those that ended as in the row.
    pub agreeing: u64,
    /// The others; empty, since nobody countersigns otherwise.
    pub differing: Vec<String>,
}

impl PredicateOf for Reproduction {
    const WHAT: &'static str = "a countersignature";
    const TYPE: &'static str = "urn:modelbench:countersignature:v1";
}

/// The name of the file that holds a countersignature by a key: the first 16 characters of its fingerprint, as a file
/// name may have them.
pub fn file_name(keyid: &str) -> String {
    let fingerprint = keyid.strip_prefix("SHA256:").unwrap_or(keyid);
    let plain = fingerprint.chars().take(16).map(|c| match c {
        '/' => '_',
        '+' => '-',
        c => c,
    });
    format!("{FILE_PREFIX}{}.dsse.json", plain.collect::<String>())
}

/// Says that a run of one's own reproduces a row, and gives the bytes of the envelope. `row_file` holds the bytes of
/// the `row.dsse.json` that was verified.
///
/// # Errors
/// [`CountersignError`] unless the row's signer is known and somebody else, the second run is signed by `key` and rests
/// on a record of its own, and both are about the same backend, files, device, suites, set and model with the same
/// label and the same outcome of every case.
pub fn countersign(
    row: &Verified,
    row_file: &[u8],
    rerun: &Verified,
    key: &PrivateKey,
) -> Result<Vec<u8>, CountersignError> {
    let keyid = key.public_key().keyid();
    if row.signer != Signer::Given {
        return Err(CountersignError::UnknownSigner);
    }
    if row.keyid == keyid {
        return Err(CountersignError::OwnRow { keyid });
    }
    if rerun.keyid != keyid {
        return Err(CountersignError::OthersRun { found: rerun.keyid.clone(), expected: keyid });
    }
    if row.results.sha256 == rerun.results.sha256 {
        return Err(CountersignError::SameRun { sha256: row.results.sha256.clone() });
    }
    same_claim(&row.statement, &rerun.statement)?;
    same_outcomes(&row.results, &rerun.results)?;
    let run = Ran {
        results_sha256: rerun.results.sha256.clone(),
        finished: rerun.statement.predicate.finished_on.clone(),
    };
    Ok(document::sign(&statement(row, row_file, &keyid, run)?, key)?)
}

/// Reads a countersignature by the holder of `key`, and checks that it is about this very row and by somebody else.
///
/// # Errors
/// [`CountersignError`].
pub fn open(
    envelope: &[u8],
    key: &PublicKey,
    row: &Verified,
    row_file: &[u8],
) -> Result<InToto<Reproduction>, CountersignError> {
    let keyid = key.keyid();
    if row.keyid == keyid {
        return Err(CountersignError::OwnRow { keyid });
    }
    let signed: InToto<Reproduction> = document::open(envelope, key)?;
    let ran = Ran {
        results_sha256: signed.predicate.run.results_sha256.clone(),
        finished: signed.predicate.time_verified.clone(),
    };
    record_checks::digest("run.resultsSha256", &ran.results_sha256).map_err(|error| {
        let record_checks::FieldError { field, found, expected } = error;
        CountersignError::Field { field, found, expected }
    })?;
    time::parse(&ran.finished)?;
    if ran.results_sha256 == row.results.sha256 {
        return Err(CountersignError::SameRun { sha256: ran.results_sha256 });
    }
    statement(row, row_file, &keyid, ran)?.compare(&signed)?;
    Ok(signed)
}

/// What only the countersigner knows.
struct Ran {
    results_sha256: String,
    finished: String,
}

/// The statement about a row that a run reproduced in every case.
fn statement(
    row: &Verified,
    row_file: &[u8],
    keyid: &str,
    ran: Ran,
) -> Result<InToto<Reproduction>, CountersignError> {
    check_file(row, row_file)?;
    let file = hex::encode(Sha256::digest(row_file));
    let mut subject = vec![Subject { name: ROW_FILE.to_owned(), digest: sha256(&file) }];
    subject.extend(row.statement.subject.iter().cloned());
    let (label, cases) = (row.statement.predicate.label, row.results.cases.len() as u64);
    let predicate = Reproduction {
        assurance: ASSURANCE.to_owned(),
        row: ReproducedRow { sha256: file, label },
        run: SecondRun {
            results_sha256: ran.results_sha256,
            label,
            case_count: cases,
            agreeing: cases,
            differing: Vec::new(),
        },
        verifier: keyid.to_owned(),
        time_verified: ran.finished,
    };
    Ok(InToto::new(subject, predicate))
}

/// The file must hold what was verified; it may have been replaced since.
fn check_file(row: &Verified, row_file: &[u8]) -> Result<(), CountersignError> {
    let envelope = Envelope::parse(row_file)?;
    let keyid = &envelope.signature()?.keyid;
    if keyid != &row.keyid {
        let reason = format!("it is signed by {keyid}, not by {}", row.keyid);
        return Err(CountersignError::RowFile { reason });
    }
    if Statement::parse(&envelope.unverified(PAYLOAD_TYPE)?)? != row.statement {
        return Err(CountersignError::RowFile { reason: "it holds another statement".to_owned() });
    }
    Ok(())
}

fn same_claim(row: &Statement, rerun: &Statement) -> Result<(), CountersignError> {
    let subjects = |statement: &Statement| {
        let mut digests: Vec<&str> = statement.subject.iter().map(|s| s.digest.sha256.as_str()).collect();
        digests.sort_unstable();
        digests.dedup();
        digests.join(", ")
    };
    let (a, b) = (&row.predicate, &rerun.predicate);
    let text = str::to_owned;
    for (what, row, rerun) in [
        ("the label", text(a.label.as_str()), text(b.label.as_str())),
        ("the backend", text(&a.backend.id), text(&b.backend.id)),
        ("the list of subjects' digests", subjects(row), subjects(rerun)),
        ("the device", text(&a.hardware.name), text(&b.hardware.name)),
        ("the tier", text(&a.backend.tier), text(&b.backend.tier)),
        ("the digest of the suites", text(&a.suite.digest), text(&b.suite.digest)),
        ("the set", text(&a.suite.set), text(&b.suite.set)),
        ("the digest of the model", text(&a.model.sha256), text(&b.model.sha256)),
    ] {
        if row != rerun {
            return Err(CountersignError::Differs { what, row, rerun });
        }
    }
    Ok(())
}

fn same_outcomes(row: &Results, rerun: &Results) -> Result<(), CountersignError> {
    use std::collections::BTreeMap;
    let outcomes = |results: &'_ Results| -> BTreeMap<String, String> {
        let text = |case: &crate::record::CaseRecord| {
            (case.id.clone(), format!("{} ({})", case.outcome.as_str(), case.verdict.as_str()))
        };
        results.cases.iter().map(text).collect()
    };
    let (first, second) = (outcomes(row), outcomes(rerun));
    let absent = "absent".to_owned();
    let differing: Vec<String> = first
        .keys()
        .chain(second.keys().filter(|id| !first.contains_key(*id)))
        .filter(|id| first.get(*id) != second.get(*id))
        .map(|id| {
            let of = |map: &'_ BTreeMap<String, String>| map.get(id).unwrap_or(&absent).clone();
            format!("{id}: {} in the row, {} in the second run", of(&first), of(&second))
        })
        .collect();
    match differing.len() {
        0 => Ok(()),
        count => {
            let mut listed = differing[..count.min(LISTED)].join("; ");
            if count > LISTED {
                listed += &format!("; and {} more", count - LISTED);
            }
            Err(CountersignError::Outcomes { count, listed })
        }
    }
}
