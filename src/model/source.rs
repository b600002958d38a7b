//! Bytes of a model, on disk or built in, read at positions.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use sha2::{Digest, Sha256};

/// A file that cannot be opened or read as asked.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The operating system refused.
    #[error("{file}: cannot {action}: {error}")]
    Io {
        /// The file.
        file: String,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        error: io::Error,
    },
    /// Not a regular file.
    #[error("{file}: expected a regular file; give the model file or its folder")]
    NotAFile {
        /// The path.
        file: String,
    },
    /// A read past the end.
    #[error(
        "{file}: the file ends at byte {total}, but {len} bytes at byte {offset} are needed; it is truncated"
    )]
    OutOfRange {
        /// The file.
        file: String,
        /// First byte asked for.
        offset: u64,
        /// Number of bytes asked for.
        len: u64,
        /// Length of the file.
        total: u64,
    },
    /// Larger than such a file may be.
    #[error("{file}: {total} bytes, expected at most {limit}; this is not such a file")]
    TooLarge {
        /// The file.
        file: String,
        /// Length of the file.
        total: u64,
        /// The limit.
        limit: u64,
    },
}

#[derive(Debug)]
enum Bytes {
    File(File),
    Embedded(&'static [u8]),
    #[cfg(test)]
    Owned(Vec<u8>),
}

/// A file on disk or bytes built into the program. Reads are positional, so a source can be shared.
#[derive(Debug)]
pub struct Source {
    name: String,
    bytes: Bytes,
    len: u64,
}

impl Source {
    /// Opens a regular file; its name in errors is the path.
    ///
    /// # Errors
    /// [`SourceError::Io`] and [`SourceError::NotAFile`].
    pub fn open(path: &Path) -> Result<Self, SourceError> {
        let name = path.display().to_string();
        let failed = |action, error| SourceError::Io { file: name.clone(), action, error };
        // The kind is asked before opening: opening a FIFO would wait for a writer.
        if !std::fs::metadata(path).map_err(|e| failed("open", e))?.is_file() {
            return Err(SourceError::NotAFile { file: name });
        }
        let file = File::open(path).map_err(|e| failed("open", e))?;
        let len = file.metadata().map_err(|e| failed("read the size of", e))?.len();
        Ok(Source { name, bytes: Bytes::File(file), len })
    }

    /// Bytes built into the program, called `name` in errors.
    pub fn embedded(name: impl Into<String>, bytes: &'static [u8]) -> Self {
        Source { name: name.into(), bytes: Bytes::Embedded(bytes), len: bytes.len() as u64 }
    }

    #[cfg(test)]
    pub(super) fn owned(name: &str, bytes: Vec<u8>) -> Self {
        let len = bytes.len() as u64;
        Source { name: name.into(), bytes: Bytes::Owned(bytes), len }
    }

    /// What errors call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Length in bytes when it was opened.
    pub fn total(&self) -> u64 {
        self.len
    }

    /// Fills `out` with the bytes from `offset`.
    ///
    /// # Errors
    /// [`SourceError::OutOfRange`] if they do not all lie inside, [`SourceError::Io`].
    pub fn read_exact_at(&self, out: &mut [u8], offset: u64) -> Result<(), SourceError> {
        self.check(offset, out.len() as u64)?;
        let from_memory = |bytes: &[u8], out: &mut [u8]| {
            let found = usize::try_from(offset).ok().and_then(|o| bytes.get(o..)?.get(..out.len()));
            found.map(|found| out.copy_from_slice(found))
        };
        let done = match &self.bytes {
            Bytes::File(file) => {
                return file.read_exact_at(out, offset).map_err(|error| SourceError::Io {
                    file: self.name.clone(),
                    action: "read",
                    error,
                });
            }
            Bytes::Embedded(bytes) => from_memory(bytes, out),
            #[cfg(test)]
            Bytes::Owned(bytes) => from_memory(bytes, out),
        };
        done.ok_or_else(|| self.out_of_range(offset, out.len() as u64))
    }

    /// The `len` bytes from `offset`; checked against the length before anything is allocated.
    ///
    /// # Errors
    /// As [`Source::read_exact_at`].
    pub fn read_at(&self, offset: u64, len: u64) -> Result<Vec<u8>, SourceError> {
        self.check(offset, len)?;
        let size = usize::try_from(len).map_err(|_| self.out_of_range(offset, len))?;
        let mut out = vec![0; size];
        self.read_exact_at(&mut out, offset)?;
        Ok(out)
    }

    /// Everything, if it is at most `limit` bytes.
    ///
    /// # Errors
    /// [`SourceError::TooLarge`], [`SourceError::Io`].
    pub fn read_all(&self, limit: u64) -> Result<Vec<u8>, SourceError> {
        if self.len > limit {
            return Err(SourceError::TooLarge { file: self.name.clone(), total: self.len, limit });
        }
        self.read_at(0, self.len)
    }

    /// SHA-256 of everything, lower-case hexadecimal, read in pieces.
    ///
    /// # Errors
    /// [`SourceError::Io`].
    pub fn sha256(&self) -> Result<String, SourceError> {
        let mut hash = Sha256::new();
        let mut piece = vec![0; 1 << 20];
        let mut at = 0;
        while at < self.len {
            let len = usize::try_from(self.len - at).map_or(piece.len(), |rest| rest.min(piece.len()));
            self.read_exact_at(&mut piece[..len], at)?;
            hash.update(&piece[..len]);
            at += len as u64;
        }
        Ok(hex::encode(hash.finalize()))
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), SourceError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(self.out_of_range(offset, len)),
        }
    }

    fn out_of_range(&self, offset: u64, len: u64) -> SourceError {
        SourceError::OutOfRange { file: self.name.clone(), offset, len, total: self.len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_inside_and_refuses_outside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("five");
        std::fs::write(&path, b"abcde").unwrap();
        for source in [Source::open(&path).unwrap(), Source::embedded("five", b"abcde")] {
            assert_eq!(source.read_at(1, 3).unwrap(), b"bcd");
            assert_eq!(source.read_at(5, 0).unwrap(), b"");
            for (offset, len) in [(3, 3), (6, 0), (u64::MAX, 2), (0, u64::MAX)] {
                let error = source.read_at(offset, len).unwrap_err().to_string();
                assert!(error.contains("the file ends at byte 5"), "{error}");
            }
            assert!(source.read_all(4).unwrap_err().to_string().contains("expected at most 4"));
            assert_eq!(
                source.sha256().unwrap(),
                "36bbe50ed96841d10443bcb670d6554f0a34b761be67ec9c4a8ad2c0c44ca42c"
            );
        }
        assert!(Source::open(folder.path()).unwrap_err().to_string().contains("regular file"));
        assert!(Source::open(&folder.path().join("none")).unwrap_err().to_string().contains("cannot open"));
    }

    #[test]
    fn reads_stay_inside() {
        let source = Source::owned("three", vec![1, 2, 3]);
        assert_eq!(source.read_at(1, 2).unwrap(), [2, 3]);
        for (offset, len) in [(1, 3), (4, 0), (u64::MAX, 2), (0, u64::MAX)] {
            let error = source.read_at(offset, len).unwrap_err().to_string();
            assert!(error.contains("three"), "{error}");
        }
    }
}
