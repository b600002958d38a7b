//! Verifying a row: signature, digests, and everything derived anew from the record of the run.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::bundle::{Bundle, BundleError};
use crate::dsse::{DsseError, Envelope};
use crate::files::{folder_of, read_capped};
use crate::json;
use crate::keys::{KeyError, PublicKey};
use crate::publish::{BUNDLE_FILE, PUBLIC_KEY_FILE, ROW_FILE};
use crate::record::SuiteRef;
use crate::results::{RESULTS_FILE, Results, ResultsError};
use crate::statement::{Statement, StatementError};
use crate::time::{self, TimeError};

/// A row is some 10 KiB; a million gaps would still fit.
const MAX_ROW_BYTES: u64 = 256 << 20;
/// A record is some 5 MiB.
const MAX_RESULTS_BYTES: u64 = 4 << 30;

/// What a kit pins: the digest of its suites, and for each set the number of cases and the digest of their ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KitPins {
    /// sha256 over suites, goldens and fixtures.
    pub suite_digest: String,
    /// By set: number of cases, and [`ids_digest`](crate::results::ids_digest) of their ids.
    pub sets: BTreeMap<String, (u64, String)>,
}

/// Whose word the row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signer {
    /// The holder of the public key that the caller gave.
    Given,
    /// Unknown: the key came with the row. The row is whole, but anybody could have made it.
    SelfContained,
}

/// What is known about the suites of the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuiteCheck {
    /// They are this kit's, and the set's cases are the ones it pins.
    Pinned,
    /// The row says that they are a kit's own, but of another version than this kit, which cannot check them.
    OtherKit,
    /// The row itself says that they are not a kit's own.
    Foreign,
    /// The caller gave no pins.
    NotAsked,
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
        "{ROW_FILE} and {BUNDLE_FILE} hold different envelopes ({field} differs): one of them was replaced"
    )]
    TwoRows {
        /// `payload`, `payloadType` or `signatures`.
        field: &'static str,
    },
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
    /// The row claims this kit's suites, with other cases.
    #[error("the row says suite.{field} = {found}, this kit pins {pinned}: the run did not use these suites")]
    Pins {
        /// The field.
        field: &'static str,
        /// Value in the row.
        found: String,
        /// Value of the kit.
        pinned: String,
    },
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

/// Verifies a row as of a given time.
///
/// `path` is a run folder or one of its row files; `results.jsonl` must lie beside the row, and without `public_key`
/// the signer's key too. Checked are the signature and the key's fingerprint; that both encodings hold the same
/// envelope, if both are there; the digest and the whole content of `results.jsonl`; that subjects and row are exactly
/// what follows from it; the pins of the kit, if the row used the kit's suites; and the time.
///
/// # Errors
/// [`VerifyError`] for the first difference.
pub fn verify_at(
    path: &Path,
    public_key: Option<&PublicKey>,
    kit: Option<&KitPins>,
    now: SystemTime,
) -> Result<Verified, VerifyError> {
    let row = locate(path)?;
    let folder = folder_of(&row);
    let envelope = read_envelope(&row)?;
    let both_encodings = compare_sibling(&row, &envelope)?;
    let (key, signer) = match public_key {
        Some(key) => (*key, Signer::Given),
        None => (PublicKey::load(&folder.join(PUBLIC_KEY_FILE))?, Signer::SelfContained),
    };
    let payload = envelope.verify(&key).map_err(|source| VerifyError::Dsse { path: row.clone(), source })?;
    let statement = Statement::parse(&payload)?;
    let results = read_results(folder, &statement)?;
    compare(&statement, &Statement::of(&results)?)?;
    let suite = check_pins(&results.header.suite, kit)?;
    check_time(&statement, now)?;
    Ok(Verified { row, keyid: key.keyid(), signer, suite, both_encodings, statement, results })
}

fn locate(path: &Path) -> Result<PathBuf, VerifyError> {
    let row = if path.is_dir() { path.join(ROW_FILE) } else { path.to_owned() };
    if row.is_file() { Ok(row) } else { Err(VerifyError::NoRow { path: row }) }
}

fn is_bundle(path: &Path) -> bool {
    path.to_string_lossy().ends_with(".sigstore.json")
}

fn read_envelope(path: &Path) -> Result<Envelope, VerifyError> {
    let bytes = read(path, MAX_ROW_BYTES)?;
    if is_bundle(path) {
        let bundle =
            Bundle::parse(&bytes).map_err(|source| VerifyError::Bundle { path: path.to_owned(), source })?;
        Ok(bundle.dsse_envelope)
    } else {
        Envelope::parse(&bytes).map_err(|source| VerifyError::Dsse { path: path.to_owned(), source })
    }
}

fn read(path: &Path, limit: u64) -> Result<Vec<u8>, VerifyError> {
    read_capped(path, limit).map_err(|source| VerifyError::Read { path: path.to_owned(), source })
}

/// Compares a row with its other encoding; false if that is not there.
fn compare_sibling(row: &Path, envelope: &Envelope) -> Result<bool, VerifyError> {
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
    let other = read_envelope(&sibling)?;
    let differing = [
        ("payload", other.payload != envelope.payload),
        ("payloadType", other.payload_type != envelope.payload_type),
        ("signatures", other.signatures != envelope.signatures),
    ];
    match differing.into_iter().find(|(_, differs)| *differs) {
        Some((field, _)) => Err(VerifyError::TwoRows { field }),
        None => Ok(true),
    }
}

fn read_results(folder: &Path, statement: &Statement) -> Result<Results, VerifyError> {
    use sha2::Digest as _;
    let bytes = read(&folder.join(RESULTS_FILE), MAX_RESULTS_BYTES)?;
    let found = hex::encode(sha2::Sha256::digest(&bytes));
    let signed = statement.results_digest().unwrap_or("absent");
    if signed != found {
        return Err(VerifyError::ResultsDigest { signed: signed.to_owned(), found });
    }
    Ok(Results::parse(&bytes)?)
}

fn compare(signed: &Statement, derived: &Statement) -> Result<(), VerifyError> {
    let value = |statement: &Statement| {
        serde_json::to_value(statement).map_err(|error| StatementError::Malformed(error.to_string()))
    };
    match json::difference("statement", &value(signed)?, &value(derived)?) {
        None => Ok(()),
        Some(json::Difference { path, first: signed, second: derived }) => {
            Err(VerifyError::Differs { path, signed, derived })
        }
    }
}

fn check_pins(suite: &SuiteRef, kit: Option<&KitPins>) -> Result<SuiteCheck, VerifyError> {
    let Some(kit) = kit else { return Ok(SuiteCheck::NotAsked) };
    if suite.digest != kit.suite_digest {
        return Ok(if suite.is_kit { SuiteCheck::OtherKit } else { SuiteCheck::Foreign });
    }
    let compare = |field, found: String, pinned: Option<String>| match pinned {
        Some(pinned) if pinned == found => Ok(()),
        pinned => Err(VerifyError::Pins {
            field,
            found,
            pinned: pinned.unwrap_or_else(|| "no such set".to_owned()),
        }),
    };
    let pins = kit.sets.get(&suite.set);
    let full = kit.sets.get("full");
    compare("isKit", suite.is_kit.to_string(), Some(true.to_string()))?;
    compare("set", suite.set.clone(), pins.map(|_| suite.set.clone()))?;
    compare("cases", suite.cases.to_string(), pins.map(|(cases, _)| cases.to_string()))?;
    compare("casesDigest", suite.cases_digest.clone(), pins.map(|(_, digest)| digest.clone()))?;
    compare("fullCases", suite.full_cases.to_string(), full.map(|(cases, _)| cases.to_string()))?;
    Ok(SuiteCheck::Pinned)
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
