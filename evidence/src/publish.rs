//! Writing the row of a run: complete, atomic, never over another row.

use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::bundle::{Bundle, BundleError};
use crate::companions;
use crate::document::DocumentError;
use crate::dsse::{DsseError, Envelope};
use crate::files::{self, Access};
use crate::keys::{KeyError, PrivateKey};
use crate::results::{RESULTS_FILE, Results, ResultsError};
use crate::statement::{Statement, StatementError};
use crate::time::TimeError;

/// File name of the row as a DSSE envelope.
pub const ROW_FILE: &str = "row.dsse.json";
/// File name of the row as a sigstore bundle.
pub const BUNDLE_FILE: &str = "row.sigstore.json";
/// File name of the signer's public key.
pub const PUBLIC_KEY_FILE: &str = "public-key.pem";

/// Why no row was written.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// There is a row already, or another file under the name of one.
    #[error("{} exists with other content; rows are never overwritten: use a fresh run folder", .path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("cannot write {}: {source}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The record is incomplete or wrong.
    #[error("no row from this record: {0}")]
    Results(#[from] ResultsError),
    /// A time is wrong.
    #[error("no row from this record: {0}")]
    Time(#[from] TimeError),
    /// The statement cannot be written.
    #[error(transparent)]
    Statement(#[from] StatementError),
    /// The statement cannot be signed.
    #[error(transparent)]
    Dsse(#[from] DsseError),
    /// The envelope cannot be bundled.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The public key cannot be written.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A statement beside the row cannot be written.
    #[error(transparent)]
    Document(#[from] DocumentError),
}

/// What was written.
#[derive(Debug)]
pub enum Published {
    /// A row and all that belongs to it.
    Row(Box<PublishedRow>),
    /// Results alone, because the run was filtered: part of a suite supports no claim.
    ResultsOnly,
}

/// A written row.
#[derive(Debug)]
pub struct PublishedRow {
    /// The DSSE envelope.
    pub row: PathBuf,
    /// The sigstore bundle.
    pub bundle: PathBuf,
    /// The signer's public key.
    pub public_key: PathBuf,
    /// The signer's fingerprint.
    pub keyid: String,
    /// What was signed.
    pub statement: Statement,
}

/// Derives the row from the bytes of a complete `results.jsonl`, signs it and writes it to the existing folder `dir`,
/// beside the results (which are written too unless they are there already).
///
/// Every file appears complete or not at all, and the row comes last: an interrupted run leaves none.
///
/// # Errors
/// [`PublishError`]; nothing is overwritten. An incomplete record ([`PublishError::Results`]) writes nothing at all.
pub fn write_run(dir: &Path, results: &[u8], key: &PrivateKey) -> Result<Published, PublishError> {
    let record = Results::parse(results)?;
    let row = dir.join(ROW_FILE);
    if row.symlink_metadata().is_ok() {
        return Err(PublishError::Exists { path: row });
    }
    place(&dir.join(RESULTS_FILE), results)?;
    if record.header.filter.is_some() {
        return Ok(Published::ResultsOnly);
    }
    let statement = Statement::of(&record)?;
    let envelope = Envelope::sign(&statement.to_bytes()?, key)?;
    let (bundle, public_key) = (dir.join(BUNDLE_FILE), dir.join(PUBLIC_KEY_FILE));
    place(&public_key, key.public_key().to_pem()?.as_bytes())?;
    place(&bundle, &Bundle::of(envelope.clone())?.to_bytes()?)?;
    let bytes = envelope.to_bytes()?;
    let sha256 = hex::encode(Sha256::digest(&bytes));
    for (name, companion) in companions::signed(&record, &statement.predicate, &sha256, key)? {
        place(&dir.join(name), &companion)?;
    }
    place(&row, &bytes)?;
    let keyid = key.public_key().keyid();
    Ok(Published::Row(Box::new(PublishedRow { row, bundle, public_key, keyid, statement })))
}

/// Writes a new file; a file that already has these very bytes is as good.
fn place(path: &Path, bytes: &[u8]) -> Result<(), PublishError> {
    let failed = |source| PublishError::Write { path: path.to_owned(), source };
    match files::write_new(path, bytes, Access::Everybody) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            match files::read_capped(path, bytes.len() as u64) {
                Ok(found) if found == bytes => Ok(()),
                Ok(_) => Err(PublishError::Exists { path: path.to_owned() }),
                Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                    Err(PublishError::Exists { path: path.to_owned() })
                }
                Err(error) => Err(failed(error)),
            }
        }
        other => other.map_err(failed),
    }
}
