//! Signed documents: strict JSON in a DSSE envelope, read back byte for byte as it was written.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::dsse::{DsseError, Envelope};
use crate::files::{self, Access};
use crate::json;
use crate::keys::{PrivateKey, PublicKey};

/// Such a document has a few fields; the longest, a test result, lists the cases that failed.
const MAX_BYTES: u64 = 64 << 20;

/// Something that is signed as a whole.
pub trait Document: Serialize + DeserializeOwned {
    /// What errors call it, with its article: `a challenge`.
    const WHAT: &'static str;
    /// Type of the envelope's payload.
    const PAYLOAD_TYPE: &'static str;
    /// Fields with one legal value. They are read first, so that another version is named as such.
    const CONSTANTS: &'static [(&'static str, &'static str)];
}

/// Why a document is refused, or cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// The envelope, its key or its signature.
    #[error(transparent)]
    Dsse(#[from] DsseError),
    /// Not the JSON of such a document.
    #[error("the payload is not {what}: {reason}")]
    Malformed {
        /// [`Document::WHAT`].
        what: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A constant differs.
    #[error("{field} is {found:?}, expected {expected:?} of {what}")]
    Constant {
        /// [`Document::WHAT`].
        what: &'static str,
        /// The field.
        field: &'static str,
        /// Its value.
        found: String,
        /// The constant.
        expected: &'static str,
    },
    /// The right content in other bytes than the writer's.
    #[error("byte {byte} of the payload: found {found:?}, expected {expected:?}, as the kit writes {what}")]
    NotCanonical {
        /// [`Document::WHAT`].
        what: &'static str,
        /// First byte that differs, from 1.
        byte: usize,
        /// The text from there.
        found: String,
        /// What the kit would have written.
        expected: String,
    },
    /// The file cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write {}: {source}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The name is taken.
    #[error("{} exists; signed files are never overwritten: choose another name", .path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
}

/// The bytes that are signed.
///
/// # Errors
/// [`DocumentError::Malformed`] if it cannot be written as JSON.
pub fn payload<D: Document>(document: &D) -> Result<Vec<u8>, DocumentError> {
    serde_json::to_vec(document).map_err(|error| malformed::<D>(error.to_string()))
}

/// Signs a document and gives the bytes of its envelope. The same key and document give the same bytes.
///
/// # Errors
/// [`DocumentError::Dsse`], [`DocumentError::Malformed`].
pub fn sign<D: Document>(document: &D, key: &PrivateKey) -> Result<Vec<u8>, DocumentError> {
    Ok(Envelope::sign_as(D::PAYLOAD_TYPE, &payload(document)?, key)?.to_bytes()?)
}

/// Checks the signature and reads the document: no unknown and no repeated key anywhere, and the very bytes that
/// [`payload`] gives.
///
/// # Errors
/// [`DocumentError`].
pub fn open<D: Document>(envelope: &[u8], key: &PublicKey) -> Result<D, DocumentError> {
    read(&Envelope::parse(envelope)?.verify_as(D::PAYLOAD_TYPE, key)?)
}

/// Reads a document whose signature nobody checked, to show it. Nothing of it may be believed.
///
/// # Errors
/// [`DocumentError`].
pub fn unverified<D: Document>(envelope: &[u8]) -> Result<D, DocumentError> {
    read(&Envelope::parse(envelope)?.unverified(D::PAYLOAD_TYPE)?)
}

/// The fingerprint of the key that an envelope says it is signed with: a hint to find the key by.
///
/// # Errors
/// [`DocumentError::Dsse`].
pub fn signer(envelope: &[u8]) -> Result<String, DocumentError> {
    Ok(Envelope::parse(envelope)?.signature()?.keyid.clone())
}

/// Reads the bytes of an envelope from a file.
///
/// # Errors
/// [`DocumentError::Read`].
pub fn load(path: &Path) -> Result<Vec<u8>, DocumentError> {
    files::read_capped(path, MAX_BYTES)
        .map_err(|source| DocumentError::Read { path: path.to_owned(), source })
}

/// Writes the bytes of an envelope to a new file, which appears complete or not at all.
///
/// # Errors
/// [`DocumentError::Exists`] if the name is taken, [`DocumentError::Write`].
pub fn save(path: &Path, envelope: &[u8]) -> Result<(), DocumentError> {
    files::write_new(path, envelope, Access::Everybody).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => DocumentError::Exists { path: path.to_owned() },
        _ => DocumentError::Write { path: path.to_owned(), source },
    })
}

fn malformed<D: Document>(reason: String) -> DocumentError {
    DocumentError::Malformed { what: D::WHAT, reason }
}

fn read<D: Document>(bytes: &[u8]) -> Result<D, DocumentError> {
    let text = std::str::from_utf8(bytes).map_err(|error| malformed::<D>(error.to_string()))?;
    let value = json::strict(text).map_err(malformed::<D>)?;
    for (field, expected) in D::CONSTANTS {
        let found = value.get(*field).and_then(Value::as_str);
        if found != Some(*expected) {
            let found = found.unwrap_or("absent").to_owned();
            return Err(DocumentError::Constant { what: D::WHAT, field, found, expected });
        }
    }
    let document: D = serde_json::from_value(value).map_err(|error| malformed::<D>(error.to_string()))?;
    let canonical = payload(&document)?;
    if canonical == bytes {
        return Ok(document);
    }
    let same = canonical.iter().zip(bytes).take_while(|(a, b)| a == b).count();
    let excerpt = |text: &[u8]| String::from_utf8_lossy(&text[same..text.len().min(same + 40)]).into_owned();
    Err(DocumentError::NotCanonical {
        what: D::WHAT,
        byte: same + 1,
        found: excerpt(bytes),
        expected: excerpt(&canonical),
    })
}
