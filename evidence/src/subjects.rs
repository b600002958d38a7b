//! Files on disk against the subjects of a row: is this the very file that was tested?

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::record::FileDigest;
use crate::statement::Subject;

/// Bytes that are hashed at a time: a vendor's library may be larger than the memory.
const CHUNK: usize = 64 * 1024;

/// A file that is a subject of the row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchedSubject {
    /// The file on disk.
    pub file: PathBuf,
    /// Names under which the row lists its digest.
    pub names: Vec<String>,
    /// sha256, lower-case hex.
    pub sha256: String,
}

/// Why files and subjects do not fit.
#[derive(Debug, thiserror::Error)]
pub enum SubjectError {
    /// A file cannot be read.
    #[error("cannot read the subject {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The row is not about that file.
    #[error(
        "{} has sha256 {found}; the subjects of the row are {subjects}: the row is about other files; run the \
         backend with this one",
        .path.display()
    )]
    NotASubject {
        /// The file.
        path: PathBuf,
        /// Its digest.
        found: String,
        /// Names and digests in the row.
        subjects: String,
    },
    /// A file of the backend was not given.
    #[error(
        "the row is about {name} with sha256 {sha256}, which none of the given files has ({given}): give it with -subject"
    )]
    NotGiven {
        /// Name in the row.
        name: String,
        /// Digest in the row.
        sha256: String,
        /// The files given.
        given: String,
    },
}

/// Requires that each of the files has the digest of a subject, and that each file of the backend is among them. Names do
/// not matter, as in-toto has it. No files match nothing, and that is no error: the caller has to say so.
///
/// # Errors
/// [`SubjectError`].
pub fn match_files(
    files: &[PathBuf],
    subjects: &[Subject],
    backend: &[FileDigest],
) -> Result<Vec<MatchedSubject>, SubjectError> {
    let mut matched = Vec::with_capacity(files.len());
    for file in files {
        let sha256 = digest(file).map_err(|source| SubjectError::Read { path: file.clone(), source })?;
        let names: Vec<String> =
            subjects.iter().filter(|s| s.digest.sha256 == sha256).map(|s| s.name.clone()).collect();
        if names.is_empty() {
            let listed: Vec<String> =
                subjects.iter().map(|s| format!("{} ({})", s.name, s.digest.sha256)).collect();
            let subjects = listed.join(", ");
            return Err(SubjectError::NotASubject { path: file.clone(), found: sha256, subjects });
        }
        matched.push(MatchedSubject { file: file.clone(), names, sha256 });
    }
    let missing = backend.iter().find(|file| !matched.iter().any(|m| m.sha256 == file.sha256));
    match missing {
        Some(FileDigest { name, sha256 }) if !matched.is_empty() => {
            let given: Vec<String> =
                matched.iter().map(|m| format!("{} has {}", m.file.display(), m.sha256)).collect();
            Err(SubjectError::NotGiven {
                name: name.clone(),
                sha256: sha256.clone(),
                given: given.join(", "),
            })
        }
        _ => Ok(matched),
    }
}

/// sha256 of a plain file, lower-case hex.
fn digest(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a plain file"));
    }
    let mut hash = Sha256::new();
    let mut chunk = vec![0; CHUNK];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(hex::encode(hash.finalize())),
            Ok(n) => hash.update(&chunk[..n]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
