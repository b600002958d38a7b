//! The verifier's ledger of nonces: each counts for one row.
//!
//! A text file that only grows, a line per nonce: the nonce, the sha256 of the row that used it, and when, separated by
//! single spaces. A ledger that cannot be read to its end is an error: what it does not tell might be that the nonce was
//! used.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::challenge::{Challenge, ChallengeError};
use crate::files::{folder_of, sync_folder};
use crate::record_checks;
use crate::time::{self, TimeError};

/// Lines of 150 bytes: some seven million nonces.
const MAX_BYTES: u64 = 1 << 30;

/// Why a nonce cannot be claimed.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// Another row had it.
    #[error(
        "the nonce {nonce} was used at {at} by the row with sha256 {first}, this row has {second}: a challenge \
         counts for one row; ask the verifier for a new one"
    )]
    Used {
        /// The nonce.
        nonce: String,
        /// When.
        at: String,
        /// The row that used it.
        first: String,
        /// The row that wants it.
        second: String,
    },
    /// The challenge does not hold at the time of its first use.
    #[error(transparent)]
    Challenge(#[from] Box<ChallengeError>),
    /// The file is not a ledger.
    #[error(
        "{} line {line}: {reason}; the ledger is damaged: restore it from a copy, for it may have held used nonces",
        .path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Where, from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// A nonce or digest from the caller is none.
    #[error("{field} is {found}, expected {expected}")]
    Field {
        /// What it is.
        field: String,
        /// Its value.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// The operating system refused.
    #[error("cannot use the ledger {}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The clock is off.
    #[error(transparent)]
    Time(#[from] TimeError),
}

/// How a nonce came to be claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// Now, for the first time.
    First,
    /// By the same row before: it is verified again.
    Again {
        /// When it was claimed, RFC 3339 UTC.
        at: String,
    },
}

/// A file of used nonces.
#[derive(Debug, Clone)]
pub struct Ledger {
    path: PathBuf,
}

impl Ledger {
    /// The ledger in a file, which is made when the first nonce is claimed.
    pub fn new(path: &Path) -> Ledger {
        Ledger { path: path.to_owned() }
    }

    /// Claims the nonce of a challenge for a row, by the sha256 of the row. A row that claims for the first time must
    /// come while the challenge is open; one that did may be verified again at any time.
    ///
    /// # Errors
    /// [`LedgerError`]; nothing is written then.
    pub fn claim(&self, challenge: &Challenge, row: &str, now: SystemTime) -> Result<Claim, LedgerError> {
        self.claim_if(&challenge.nonce, row, now, || challenge.check_open(now))
    }

    /// Claims a nonce for a row without asking for the time of its challenge.
    ///
    /// # Errors
    /// [`LedgerError`]; nothing is written then.
    pub fn claim_nonce(&self, nonce: &str, row: &str, now: SystemTime) -> Result<Claim, LedgerError> {
        self.claim_if(nonce, row, now, || Ok(()))
    }

    fn claim_if(
        &self,
        nonce: &str,
        row: &str,
        now: SystemTime,
        allowed: impl FnOnce() -> Result<(), ChallengeError>,
    ) -> Result<Claim, LedgerError> {
        for (field, text) in [("nonce", nonce), ("sha256 of the row", row)] {
            record_checks::digest(field, text).map_err(|error| LedgerError::Field {
                field: error.field,
                found: error.found,
                expected: error.expected,
            })?;
        }
        let failed = |source| LedgerError::File { path: self.path.clone(), source };
        let fresh = !self.path.exists();
        let mut file =
            OpenOptions::new().read(true).append(true).create(true).open(&self.path).map_err(failed)?;
        // Held until the file is closed: nobody else claims between our look and our line.
        file.lock().map_err(failed)?;
        match self.read(&mut file)?.remove(nonce) {
            Some((first, at)) if first == row => return Ok(Claim::Again { at }),
            Some((first, at)) => {
                let (nonce, second) = (nonce.to_owned(), row.to_owned());
                return Err(LedgerError::Used { nonce, at, first, second });
            }
            None => allowed().map_err(Box::new)?,
        }
        let line = format!("{nonce} {row} {}\n", time::format(now)?);
        file.write_all(line.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
        if fresh {
            sync_folder(folder_of(&self.path)).map_err(failed)?;
        }
        Ok(Claim::First)
    }

    /// All claims, by nonce: row and time.
    fn read(&self, file: &mut File) -> Result<HashMap<String, (String, String)>, LedgerError> {
        let failed = |source| LedgerError::File { path: self.path.clone(), source };
        let mut bytes = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > MAX_BYTES {
            let reason = format!("the ledger has more than {MAX_BYTES} bytes");
            return Err(failed(io::Error::new(io::ErrorKind::FileTooLarge, reason)));
        }
        let mut claims = HashMap::new();
        for (i, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let corrupt = |reason| LedgerError::Corrupt { path: self.path.clone(), line: i + 1, reason };
            let (nonce, row, at) = read_line(line).map_err(corrupt)?;
            if claims.insert(nonce.clone(), (row, at)).is_some() {
                return Err(corrupt(format!("the nonce {nonce} is there twice")));
            }
        }
        Ok(claims)
    }
}

fn read_line(line: &[u8]) -> Result<(String, String, String), String> {
    let text = line.strip_suffix(b"\n").ok_or("the line has no end")?;
    let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
    let fields: Vec<&str> = text.split(' ').collect();
    let [nonce, row, at] = fields.as_slice() else {
        return Err(format!("found {} fields, expected a nonce, a sha256 and a time", fields.len()));
    };
    for (field, text) in [("the nonce", nonce), ("the row", row)] {
        record_checks::digest(field, text)
            .map_err(|error| format!("{} is {}, expected {}", error.field, error.found, error.expected))?;
    }
    time::parse(at).map_err(|error| error.to_string())?;
    Ok(((*nonce).to_owned(), (*row).to_owned(), (*at).to_owned()))
}
