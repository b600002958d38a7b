//! Finding the record of a run by the name of any of its files, without asking who signed it.

use std::io;
use std::path::{Path, PathBuf};

use crate::bundle::{Bundle, BundleError};
use crate::dsse::{DsseError, Envelope, PAYLOAD_TYPE};
use crate::files::{folder_of, read_capped};
use crate::results::{RESULTS_FILE, Results, ResultsError};
use crate::statement::{Statement, StatementError};
use crate::verify::MAX_RESULTS_BYTES;

/// Why there is no record to read.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file cannot be read.
    #[error(
        "cannot read {}: {source}; give a run folder, its {RESULTS_FILE}, or a row file with {RESULTS_FILE} beside it",
        .path.display()
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The record is incomplete or contradicts itself.
    #[error("{}: {source}", .path.display())]
    Results {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: ResultsError,
    },
    /// The row is not an envelope.
    #[error("{}: {source}", .path.display())]
    Dsse {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: DsseError,
    },
    /// The row is not a bundle.
    #[error("{}: {source}", .path.display())]
    Bundle {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: BundleError,
    },
    /// The row is none.
    #[error("{}: {source}", .path.display())]
    Statement {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: StatementError,
    },
    /// The record beside the row is another.
    #[error("{} was derived from a {RESULTS_FILE} with sha256 {signed}, the one beside it has {found}", .path.display())]
    OtherRecord {
        /// The row.
        path: PathBuf,
        /// Digest in the row.
        signed: String,
        /// Digest of the file.
        found: String,
    },
}

/// Reads the record that a path names: a run folder, its `results.jsonl`, or a row file (`.dsse.json`,
/// `.sigstore.json`) with the record it was derived from beside it. The record is read strictly; signatures are not
/// checked.
///
/// # Errors
/// [`LoadError`].
pub fn results(path: &Path) -> Result<Results, LoadError> {
    let text = path.to_string_lossy();
    if path.is_dir() {
        return record(&path.join(RESULTS_FILE));
    }
    if !text.ends_with(".dsse.json") && !text.ends_with(".sigstore.json") {
        return record(path);
    }
    let owned = || path.to_owned();
    let bytes = read(path)?;
    let envelope = if text.ends_with(".sigstore.json") {
        Bundle::parse(&bytes).map_err(|source| LoadError::Bundle { path: owned(), source })?.dsse_envelope
    } else {
        Envelope::parse(&bytes).map_err(|source| LoadError::Dsse { path: owned(), source })?
    };
    let payload =
        envelope.unverified(PAYLOAD_TYPE).map_err(|source| LoadError::Dsse { path: owned(), source })?;
    let row = Statement::parse(&payload).map_err(|source| LoadError::Statement { path: owned(), source })?;
    let results = record(&folder_of(path).join(RESULTS_FILE))?;
    let signed = row.results_digest().unwrap_or("absent");
    if signed == results.sha256 {
        return Ok(results);
    }
    Err(LoadError::OtherRecord { path: owned(), signed: signed.to_owned(), found: results.sha256 })
}

fn record(path: &Path) -> Result<Results, LoadError> {
    Results::parse(&read(path)?).map_err(|source| LoadError::Results { path: path.to_owned(), source })
}

fn read(path: &Path) -> Result<Vec<u8>, LoadError> {
    read_capped(path, MAX_RESULTS_BYTES).map_err(|source| LoadError::Read { path: path.to_owned(), source })
}
