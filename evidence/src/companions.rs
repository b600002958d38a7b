//! The statements that lie beside a row, in the words of others: made with it, checked with it.

use std::path::{Path, PathBuf};

use crate::document::{self, DocumentError};
use crate::dsse::{DsseError, Envelope};
use crate::files::read_capped;
use crate::folder::{self, FolderError};
use crate::intoto::AttestationError;
use crate::keys::{PrivateKey, PublicKey};
use crate::results::Results;
use crate::row::Predicate;
use crate::{testresult, vsa};

/// A statement names at most every case of a run.
const MAX_BYTES: u64 = 256 << 20;

/// Why a statement beside a row is refused.
#[derive(Debug, thiserror::Error)]
pub enum CompanionError {
    /// It cannot be read.
    #[error("cannot read {}, which belongs to the row: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// It does not follow from the record.
    #[error("{}: {source}", .path.display())]
    Statement {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: AttestationError,
    },
    /// It is not as the writer writes it.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// It says that a label was verified that the row does not have.
    #[error("{} is there, but the label is {label}: only Reference and Approx have one; remove it", .path.display())]
    Unearned {
        /// The file.
        path: PathBuf,
        /// The label of the row.
        label: &'static str,
    },
}

/// The files of a row with their bytes: a test result, and a verification summary for `Reference` and `Approx`.
///
/// # Errors
/// [`DocumentError`] if one cannot be signed.
pub(crate) fn signed(
    results: &Results,
    row: &Predicate,
    row_sha256: &str,
    key: &PrivateKey,
) -> Result<Vec<(&'static str, Vec<u8>)>, DocumentError> {
    let mut files = vec![(testresult::FILE, document::sign(&testresult::of(results, row), key)?)];
    if let Some(summary) = vsa::of(results, row, row_sha256) {
        files.push((vsa::FILE, document::sign(&summary, key)?));
    }
    Ok(files)
}

/// Checks the files of a row in a run folder: all that it must have, and no summary that it has not earned.
///
/// # Errors
/// [`CompanionError`] for the first that does not hold.
pub(crate) fn check(
    folder: &Path,
    results: &Results,
    row: &Predicate,
    row_sha256: &str,
    key: &PublicKey,
) -> Result<(), CompanionError> {
    let path = folder.join(testresult::FILE);
    let wrong = |path: &Path| {
        let path = path.to_owned();
        move |source| CompanionError::Statement { path, source }
    };
    let bytes = read(&path)?;
    testresult::of(results, row).check(&bytes, key).map_err(wrong(&path))?;
    as_written(&path, &bytes)?;
    let path = folder.join(vsa::FILE);
    match vsa::of(results, row, row_sha256) {
        Some(summary) => {
            let bytes = read(&path)?;
            summary.check(&bytes, key).map_err(wrong(&path))?;
            as_written(&path, &bytes)
        }
        None if path.symlink_metadata().is_ok() => {
            Err(CompanionError::Unearned { path, label: row.label.as_str() })
        }
        None => Ok(()),
    }
}

/// Requires that the envelope has the writer's bytes, like every file of a run folder.
fn as_written(path: &Path, bytes: &[u8]) -> Result<(), CompanionError> {
    let wrong = |error: DsseError| CompanionError::Statement {
        path: path.to_owned(),
        source: AttestationError::Document(error.into()),
    };
    let canonical = Envelope::parse(bytes).and_then(|envelope| envelope.to_bytes()).map_err(wrong)?;
    Ok(folder::require_bytes(path, bytes, &canonical)?)
}

fn read(path: &Path) -> Result<Vec<u8>, CompanionError> {
    read_capped(path, MAX_BYTES).map_err(|source| CompanionError::Read { path: path.to_owned(), source })
}
