//! The files of a run folder: all there, all plain files, each byte for byte as the writer writes it.
//!
//! A folder is what people pass on. A file in it that says the same in other bytes is a copy that somebody made by
//! other means, and a missing one is half of the evidence: both are refused. A row file that is given alone is read as
//! its format demands instead, and DSSE demands that unknown keys are ignored.

use std::io;
use std::path::{Path, PathBuf};

use crate::publish::{BUNDLE_FILE, PUBLIC_KEY_FILE, ROW_FILE};
use crate::results::RESULTS_FILE;
use crate::{testresult, vsa};

/// The files of every run folder; one with the label `Reference` or `Approx` also holds a verification summary.
pub const FILES: [&str; 5] = [PUBLIC_KEY_FILE, RESULTS_FILE, ROW_FILE, BUNDLE_FILE, testresult::FILE];

/// Bytes of each text that a refusal shows.
const EXCERPT: usize = 40;

/// Why a run folder is refused.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A file is missing, or is something else.
    #[error("{} is {found}, expected a plain file: a run folder holds {}; copy it again, whole", .path.display(), FILES.join(", "))]
    NotAFile {
        /// The file.
        path: PathBuf,
        /// What is there.
        found: &'static str,
    },
    /// A file says something in other bytes than the writer's.
    #[error(
        "{}, byte {byte}: found {found:?}, expected {expected:?}, as modelbench writes it: the file was edited after \
         the run",
        .path.display()
    )]
    NotCanonical {
        /// The file.
        path: PathBuf,
        /// First byte that differs, from 1.
        byte: usize,
        /// The text from there.
        found: String,
        /// What the writer would have written.
        expected: String,
    },
    /// The key in the folder is not the signer's.
    #[error("{} is the key {found}, the row is signed by {signed}: the file was replaced", .path.display())]
    OtherKey {
        /// The file.
        path: PathBuf,
        /// Fingerprint of the key in the file.
        found: String,
        /// `keyid` of the row's signature.
        signed: String,
    },
    /// The folder cannot be listed.
    #[error("cannot list {}: {source}", .path.display())]
    List {
        /// The folder.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
}

/// Requires that every file of a run folder is there and is a plain file: a link could show another file tomorrow.
///
/// # Errors
/// [`FolderError::NotAFile`] for the first that is not.
pub(crate) fn require_files(folder: &Path) -> Result<(), FolderError> {
    for name in FILES {
        let path = folder.join(name);
        let found = match path.symlink_metadata() {
            Ok(metadata) if metadata.is_file() => continue,
            Ok(metadata) if metadata.is_dir() => "a folder",
            Ok(metadata) if metadata.is_symlink() => "a symbolic link",
            Ok(_) => "a device, pipe or socket",
            Err(error) if error.kind() == io::ErrorKind::NotFound => "not there",
            Err(_) => "not readable",
        };
        return Err(FolderError::NotAFile { path, found });
    }
    Ok(())
}

/// Requires that a file has exactly the bytes that the writer would have written.
///
/// # Errors
/// [`FolderError::NotCanonical`] with the first byte that differs.
pub(crate) fn require_bytes(path: &Path, found: &[u8], expected: &[u8]) -> Result<(), FolderError> {
    if found == expected {
        return Ok(());
    }
    let byte = same(found, expected) + 1;
    let (found, expected) = excerpts(found, expected);
    Err(FolderError::NotCanonical { path: path.to_owned(), byte, found, expected })
}

/// Number of bytes that both texts begin with.
fn same(first: &[u8], second: &[u8]) -> usize {
    first.iter().zip(second).take_while(|(a, b)| a == b).count()
}

/// Some text of both from the first byte on that differs.
pub(crate) fn excerpts(first: &[u8], second: &[u8]) -> (String, String) {
    let from = same(first, second);
    let excerpt = |text: &[u8]| {
        String::from_utf8_lossy(&text[from..text.len().min(from.saturating_add(EXCERPT))]).into_owned()
    };
    (excerpt(first), excerpt(second))
}

/// Names of everything else in the folder, sorted. No signature covers these, and nothing in the row speaks of them.
///
/// # Errors
/// [`FolderError::List`].
pub(crate) fn unnamed(folder: &Path) -> Result<Vec<String>, FolderError> {
    let failed = |source| FolderError::List { path: folder.to_owned(), source };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        // A verification summary is checked with the row: it is there exactly where the label has earned it.
        if !FILES.contains(&name.as_str()) && name != vsa::FILE {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}
