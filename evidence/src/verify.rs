//! Verifying a row: signature, digests, and everything derived anew from the record of the run.
//!
//! What can be computed is never believed, whoever signed it:
//!
//! | figure | where it comes from when a row is verified |
//! |---|---|
//! | label, gaps, highest rung, counts by rung, worst figures, parity sums, ops and caps proven, gate with witnesses, delegated calls, inferred arithmetic, validity, subjects | derived again from `results.jsonl`; the signed bytes must be exactly those |
//! | digest of `results.jsonl`; count and digest in its footer; every verdict | computed again |
//! | suite digest, number and ids of the cases; subject and cap of each case | compared with this kit's own suites, where the row used them |
//! | digests of the backend's files | computed from the files given as subjects; without them the runner's word |
//! | outcome, `elements`, `bits_compared`, `bits_differ`, `worst`, `p99`, `bias`, `inward`, `native`, `delegated`, `output_sha256`, `notes`, `numerics`, `ms` of a case | the runner's word; only what cannot be at the same time is refused (`record_checks`) |
//! | seed of a run with a challenge, seed and cases of the tier, trees against cpu-ref's, the gate's weights | computed again |
//! | outputs of the tier, where a challenge is given | computed again by the kit (`modelbench verify -challenge`) |
//! | measurements beside the cases: trees, CPU time, counters, poison | the runner's word |
//! | backend identity, model, environment, interference, sandbox, start and end, mode | the runner's word, in known forms |
//!
//! (`bits_compared` may exceed `elements`: relations between several calls compare bits on both sides of them.) The
//! runner's word is as good as the runner: a challenge, a second run by somebody else, or both, are what checks it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::{Digest as _, Sha256};

use crate::bundle::{Bundle, BundleError};
use crate::claims::{self, ClaimError, Posed};
use crate::companions::{self, CompanionError};
use crate::dsse::{DsseError, Envelope};
use crate::files::{folder_of, read_capped};
use crate::folder::{self, FolderError};
use crate::json;
use crate::keys::{KeyError, PublicKey};
use crate::pins::{self, PinsError};
pub use crate::pins::{CasePin, KitPins, SuiteCheck};
use crate::publish::{PUBLIC_KEY_FILE, ROW_FILE};
use crate::results::{RESULTS_FILE, Results, ResultsError};
use crate::statement::{Statement, StatementError};
use crate::subjects::{self, MatchedSubject, SubjectError};
use crate::time::{self, TimeError};

/// A row is some 10 KiB; a million gaps would still fit.
const MAX_ROW_BYTES: u64 = 64 << 20;
/// A record is some 5 MiB.
pub(crate) const MAX_RESULTS_BYTES: u64 = 256 << 20;

/// Whose word the row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signer {
    /// The holder of the public key that the caller gave.
    Given,
    /// Unknown: the key came with the row. The row is whole, but anybody could have made it.
    SelfContained,
}

/// What the caller knows beforehand, and what the row must speak about.
#[derive(Debug, Clone, Copy)]
pub struct Expectations<'a> {
    /// The signer's key; without it the key beside the row is used, which proves no identity.
    pub public_key: Option<&'a PublicKey>,
    /// What the caller's kit pins.
    pub kit: Option<&'a KitPins>,
    /// Keys of the maintainers whose waivers count.
    pub maintainers: &'a [PublicKey],
    /// A challenge that the run must have answered.
    pub challenge: Option<&'a Posed>,
    /// Files on disk that must be subjects of the row, with every file of the backend among them; none compares none.
    pub subjects: &'a [PathBuf],
    /// The time as of which the row must hold.
    pub now: SystemTime,
}

/// A row that holds.
#[derive(Debug)]
pub struct Verified {
    /// The file that was verified.
    pub row: PathBuf,
    /// The signer's fingerprint.
    pub keyid: String,
    /// Whose word it is.
    pub signer: Signer,
    /// What is known about the suites.
    pub suite: SuiteCheck,
    /// True if the row's other encoding lay beside it and holds the same envelope.
    pub both_encodings: bool,
    /// The given files, each with the subjects that it is; empty if none was given.
    pub subjects: Vec<MatchedSubject>,
    /// Files of the run folder that no part of the row speaks about, so that nobody vouches for them; empty if the row was
    /// given as a file.
    pub unnamed: Vec<String>,
    /// What was signed; equal to what follows from the results.
    pub statement: Statement,
    /// The record of the run.
    pub results: Results,
}

/// Why a row is refused.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// There is no row.
    #[error("no row at {}: expected a run folder with {ROW_FILE}, or a .dsse.json or .sigstore.json file", .path.display())]
    NoRow {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// A file that belongs to the row cannot be read.
    #[error("cannot read {}, which the row needs beside it: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The envelope, its key or its signature.
    #[error("{}: {source}", .path.display())]
    Dsse {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: DsseError,
    },
    /// The bundle.
    #[error("{}: {source}", .path.display())]
    Bundle {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: BundleError,
    },
    /// The two encodings of the row disagree.
    #[error(
        "{} and {} hold different envelopes: {field} is {found} in the first, {other} in the second: one of them was \
         replaced",
        .row.display(), .sibling.display()
    )]
    TwoRows {
        /// The row.
        row: PathBuf,
        /// Its other encoding.
        sibling: PathBuf,
        /// `payload`, `payloadType` or `signatures`.
        field: &'static str,
        /// The row's value, from where they differ.
        found: String,
        /// The other's value, from there.
        other: String,
    },
    /// A file of the run folder is missing, or not as the writer writes it.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The files given are not those that the row is about.
    #[error(transparent)]
    Subject(#[from] SubjectError),
    /// The public key beside the row.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The payload is no statement of ours.
    #[error(transparent)]
    Statement(#[from] StatementError),
    /// `results.jsonl` is not the file that the row was derived from.
    #[error(
        "{RESULTS_FILE} has sha256 {found}, the row was derived from {signed}: the file was replaced or changed"
    )]
    ResultsDigest {
        /// Digest in the row.
        signed: String,
        /// Digest of the file.
        found: String,
    },
    /// `results.jsonl` contradicts itself.
    #[error("{RESULTS_FILE}: {0}")]
    Results(#[from] ResultsError),
    /// The row says something that does not follow from the results.
    #[error("the row says {path} = {signed}, but {RESULTS_FILE} gives {derived}: do not trust this row")]
    Differs {
        /// Path within the statement.
        path: String,
        /// Value in the row.
        signed: String,
        /// Value derived anew.
        derived: String,
    },
    /// A statement beside the row.
    #[error(transparent)]
    Companion(#[from] CompanionError),
    /// The challenge, or a waiver.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The row claims this kit's suites, with something else in them.
    #[error(transparent)]
    Pins(#[from] PinsError),
    /// Too old.
    #[error("the row was valid until {until}, now it is {now}: run the backend again")]
    Expired {
        /// End of validity.
        until: String,
        /// Now.
        now: String,
    },
    /// From the future.
    #[error("the run ended at {finished}, but now it is {now}: check the clocks of both machines")]
    Future {
        /// End of the run.
        finished: String,
        /// Now.
        now: String,
    },
    /// A time cannot be used.
    #[error(transparent)]
    Time(#[from] TimeError),
}

/// Verifies a row as of now. See [`verify_at`].
///
/// # Errors
/// [`VerifyError`].
pub fn verify(
    path: &Path,
    public_key: Option<&PublicKey>,
    kit: Option<&KitPins>,
) -> Result<Verified, VerifyError> {
    verify_at(path, public_key, kit, SystemTime::now())
}

/// Verifies a row as of a given time. See [`verify_expecting`].
///
/// # Errors
/// [`VerifyError`].
pub fn verify_at(
    path: &Path,
    public_key: Option<&PublicKey>,
    kit: Option<&KitPins>,
    now: SystemTime,
) -> Result<Verified, VerifyError> {
    let expected = Expectations { public_key, kit, maintainers: &[], challenge: None, subjects: &[], now };
    verify_expecting(path, &expected)
}

/// Verifies a row.
///
/// `path` is a run folder or one of its row files. Of a folder every file must be there, byte for byte as the writer
/// writes it, with the signer's key; of a row file the other encoding is compared if it lies beside it, and without a
/// given key the signer's must lie there. `results.jsonl` must lie beside the row in any case. Checked are the signature
/// and the key's fingerprint; the digest and the whole content of `results.jsonl`; that the signed bytes are exactly what
/// follows from it; the pins of the kit, if the row used the kit's suites; the given subjects; and the time.
///
/// # Errors
/// [`VerifyError`] for the first difference.
pub fn verify_expecting(path: &Path, expected: &Expectations<'_>) -> Result<Verified, VerifyError> {
    let row = locate(path)?;
    let folder = folder_of(&row);
    let whole = path.is_dir();
    if whole {
        folder::require_files(folder)?;
    }
    let (envelope, bytes) = read_envelope(&row)?;
    let both_encodings = compare_sibling(&row, &envelope, whole)?;
    if whole {
        let canonical =
            envelope.to_bytes().map_err(|source| VerifyError::Dsse { path: row.clone(), source })?;
        folder::require_bytes(&row, &bytes, &canonical)?;
    }
    let beside = folder.join(PUBLIC_KEY_FILE);
    let (key, signer) = match expected.public_key {
        Some(key) => (*key, Signer::Given),
        None => (PublicKey::load(&beside)?, Signer::SelfContained),
    };
    let failed = |source| VerifyError::Dsse { path: row.clone(), source };
    let payload = envelope.verify(&key).map_err(failed)?;
    if whole {
        require_key(&beside, &key)?;
    }
    let statement = Statement::parse(&payload)?;
    let results = read_results(folder, &statement)?;
    compare(&statement, &payload, &Statement::of(&results)?)?;
    let keyid = key.keyid();
    if whole {
        let row_sha256 = hex::encode(Sha256::digest(&bytes));
        companions::check(folder, &results, &statement.predicate, &row_sha256, &key)?;
    }
    claims::check_verifier(&results, &keyid)?;
    claims::check_waivers(&results, &keyid, expected.maintainers, expected.now)?;
    if let Some(posed) = expected.challenge {
        claims::check_challenge(&results, &keyid, posed)?;
    }
    let suite = pins::check(&results, expected.kit)?;
    let subjects =
        subjects::match_files(expected.subjects, &statement.subject, &results.header.backend_files)?;
    check_time(&statement, expected.now)?;
    let unnamed = if whole { folder::unnamed(folder)? } else { Vec::new() };
    Ok(Verified { row, keyid, signer, suite, both_encodings, subjects, unnamed, statement, results })
}

fn locate(path: &Path) -> Result<PathBuf, VerifyError> {
    let row = if path.is_dir() { path.join(ROW_FILE) } else { path.to_owned() };
    if row.is_file() { Ok(row) } else { Err(VerifyError::NoRow { path: row }) }
}

fn is_bundle(path: &Path) -> bool {
    path.to_string_lossy().ends_with(".sigstore.json")
}

/// The envelope of a row file, and the bytes of the file.
fn read_envelope(path: &Path) -> Result<(Envelope, Vec<u8>), VerifyError> {
    let bytes = read(path, MAX_ROW_BYTES)?;
    let envelope = if is_bundle(path) {
        let bundle =
            Bundle::parse(&bytes).map_err(|source| VerifyError::Bundle { path: path.to_owned(), source })?;
        bundle.dsse_envelope
    } else {
        Envelope::parse(&bytes).map_err(|source| VerifyError::Dsse { path: path.to_owned(), source })?
    };
    Ok((envelope, bytes))
}

fn read(path: &Path, limit: u64) -> Result<Vec<u8>, VerifyError> {
    read_capped(path, limit).map_err(|source| VerifyError::Read { path: path.to_owned(), source })
}

/// Compares a row with its other encoding; false if that is not there. In a run folder its bytes must be the writer's.
fn compare_sibling(row: &Path, envelope: &Envelope, whole: bool) -> Result<bool, VerifyError> {
    let text = row.to_string_lossy();
    let sibling = match (text.strip_suffix(".dsse.json"), text.strip_suffix(".sigstore.json")) {
        (Some(stem), _) => format!("{stem}.sigstore.json"),
        (_, Some(stem)) => format!("{stem}.dsse.json"),
        (None, None) => return Ok(false),
    };
    let sibling = PathBuf::from(sibling);
    if sibling.symlink_metadata().is_err() {
        return Ok(false);
    }
    let (other, bytes) = read_envelope(&sibling)?;
    let signatures = |envelope: &Envelope| {
        let each = envelope.signatures.iter().map(|s| format!("{} by {}", s.sig, s.keyid));
        each.collect::<Vec<_>>().join(", ")
    };
    let fields = [
        ("payload", envelope.payload.clone(), other.payload.clone()),
        ("payloadType", envelope.payload_type.clone(), other.payload_type.clone()),
        ("signatures", signatures(envelope), signatures(&other)),
    ];
    if let Some((field, found, other)) = fields.into_iter().find(|(_, found, other)| found != other) {
        let (found, other) = folder::excerpts(found.as_bytes(), other.as_bytes());
        return Err(VerifyError::TwoRows { row: row.to_owned(), sibling, field, found, other });
    }
    if whole {
        let bundled = |source| VerifyError::Bundle { path: sibling.clone(), source };
        let canonical = Bundle::of(other).and_then(|bundle| bundle.to_bytes()).map_err(bundled)?;
        folder::require_bytes(&sibling, &bytes, &canonical)?;
    }
    Ok(true)
}

/// Requires that the key in a run folder is the signer's, written as the writer writes it.
fn require_key(beside: &Path, signer: &PublicKey) -> Result<(), VerifyError> {
    let found = PublicKey::load(beside)?;
    if found != *signer {
        let (path, found, signed) = (beside.to_owned(), found.keyid(), signer.keyid());
        return Err(FolderError::OtherKey { path, found, signed }.into());
    }
    let bytes = read(beside, MAX_ROW_BYTES)?;
    Ok(folder::require_bytes(beside, &bytes, signer.to_pem()?.as_bytes())?)
}

fn read_results(folder: &Path, statement: &Statement) -> Result<Results, VerifyError> {
    let bytes = read(&folder.join(RESULTS_FILE), MAX_RESULTS_BYTES)?;
    let found = hex::encode(Sha256::digest(&bytes));
    let signed = statement.results_digest().unwrap_or("absent");
    if signed != found {
        return Err(VerifyError::ResultsDigest { signed: signed.to_owned(), found });
    }
    Ok(Results::parse(&bytes)?)
}

/// Requires that the signed bytes are exactly those that follow from the results.
fn compare(signed: &Statement, payload: &[u8], derived: &Statement) -> Result<(), VerifyError> {
    let value = |statement: &Statement| {
        serde_json::to_value(statement).map_err(|error| StatementError::Malformed(error.to_string()))
    };
    if let Some(json::Difference { path, first: signed, second: derived }) =
        json::difference("statement", &value(signed)?, &value(derived)?)
    {
        return Err(VerifyError::Differs { path, signed, derived });
    }
    Ok(folder::require_bytes(Path::new("the signed payload"), payload, &derived.to_bytes()?)?)
}

fn check_time(statement: &Statement, now: SystemTime) -> Result<(), VerifyError> {
    let row = &statement.predicate;
    if now > time::parse(&row.valid_until)? {
        return Err(VerifyError::Expired { until: row.valid_until.clone(), now: time::format(now)? });
    }
    let finished = time::parse(&row.finished_on)?;
    if finished.duration_since(now).is_ok_and(|ahead| ahead > time::CLOCK_TOLERANCE) {
        return Err(VerifyError::Future { finished: row.finished_on.clone(), now: time::format(now)? });
    }
    Ok(())
}
