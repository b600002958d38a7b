//! Challenges: a verifier's nonce, from which a run derives its inputs, so that recorded answers are of no use.
//!
//! The verifier signs a random nonce for one subject and a short time. The run derives its seed from it by [`seed`], so
//! that inputs exist only after the challenge was issued, and only for this backend and these suites. The verifier
//! derives the same seed, computes the answers again, and lets each nonce count for one row (see [`crate::ledger`]).
//! What this shows is that somebody computed the answers for this run; not which silicon did.

use std::time::{Duration, SystemTime};

use hkdf::Hkdf;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::document::{self, Document, DocumentError};
use crate::keys::{PrivateKey, PublicKey};
use crate::period::{self, CLOCK_SKEW, Period, PeriodError};
use crate::record::FileDigest;
use crate::record_checks::{self, FieldError};
use crate::results::ids_digest;
use crate::time::{self, TimeError};
use crate::ttl;

/// `payloadType` of the envelope of a challenge.
pub const PAYLOAD_TYPE: &str = "application/vnd.modelbench.challenge+json";
/// Identifies the format of a challenge.
pub const SCHEMA: &str = "urn:modelbench:challenge:v1";
/// The longest time for which a challenge may be open.
pub const LONGEST: Duration = ttl::days(30);

const NONCE_BYTES: usize = 32;

/// Why a challenge is refused.
#[derive(Debug, thiserror::Error)]
pub enum ChallengeError {
    /// The envelope, its signature or its form.
    #[error("challenge: {0}")]
    Document(#[from] DocumentError),
    /// It does not hold now.
    #[error(transparent)]
    Period(#[from] PeriodError),
    /// A time is none.
    #[error(transparent)]
    Time(#[from] TimeError),
    /// A field has a value that cannot be.
    #[error("challenge: {field} is {found}, expected {expected}")]
    Field {
        /// Path of the field.
        field: String,
        /// Its value.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// It was issued for another backend.
    #[error(
        "the challenge is for {name} with sha256 {wanted}, but the backend's files are {found}: a challenge \
         counts for its own subject only; ask the verifier for one for this backend"
    )]
    Foreign {
        /// Name of the subject.
        name: String,
        /// Its digest.
        wanted: String,
        /// Names and digests of the backend's files.
        found: String,
    },
    /// The run says that it took place outside the time of the challenge.
    #[error(
        "the run took from {started} to {finished}, the challenge was open from {issued} to {expires}: the run \
         did not answer this challenge"
    )]
    Outside {
        /// Start of the run.
        started: String,
        /// End of the run.
        finished: String,
        /// Begin of the challenge.
        issued: String,
        /// End of the challenge.
        expires: String,
    },
    /// Who wrote the row also chose the nonce.
    #[error(
        "the challenge and the row are both signed by {keyid}: a nonce that the tester chose proves nothing; \
         use a verifier's challenge"
    )]
    OwnNonce {
        /// Fingerprint of the key.
        keyid: String,
    },
    /// The operating system gives no random numbers.
    #[error("no random numbers for a nonce: {0}")]
    Random(String),
    /// The key derivation refused; a defect.
    #[error("no seed can be derived: {0}")]
    Derivation(String),
}

impl From<FieldError> for ChallengeError {
    fn from(error: FieldError) -> ChallengeError {
        let FieldError { field, found, expected } = error;
        ChallengeError::Field { field, found, expected }
    }
}

/// A verifier's nonce for one subject and a short time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Challenge {
    /// [`SCHEMA`].
    pub schema: String,
    /// 32 random bytes as lower-case hex.
    pub nonce: String,
    /// A file of the backend; for a bundled backend the modelbench binary.
    pub subject: FileDigest,
    /// Begin, RFC 3339 UTC in whole seconds.
    pub issued: String,
    /// End, RFC 3339 UTC in whole seconds; at most [`LONGEST`] later.
    pub expires: String,
    /// Fingerprint of the verifier's key, which signs the challenge.
    pub verifier: String,
}

impl Document for Challenge {
    const WHAT: &'static str = "a challenge";
    const PAYLOAD_TYPE: &'static str = PAYLOAD_TYPE;
    const CONSTANTS: &'static [(&'static str, &'static str)] = &[("schema", SCHEMA)];
}

impl Challenge {
    /// A new challenge with a random nonce, and the bytes of its signed envelope.
    ///
    /// # Errors
    /// [`ChallengeError::Field`] for a subject without a plain name and a digest, [`ChallengeError::Period`] for a
    /// `ttl` outside one minute to [`LONGEST`], [`ChallengeError::Random`].
    pub fn issue(
        subject: FileDigest,
        ttl: Duration,
        key: &PrivateKey,
        now: SystemTime,
    ) -> Result<(Challenge, Vec<u8>), ChallengeError> {
        record_checks::file("subject", &subject)?;
        let (issued, expires) = period::from(now, ttl, LONGEST)?;
        let mut nonce = [0u8; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(|error| ChallengeError::Random(error.to_string()))?;
        let challenge = Challenge {
            schema: SCHEMA.to_owned(),
            nonce: hex::encode(nonce),
            subject,
            issued,
            expires,
            verifier: key.public_key().keyid(),
        };
        let envelope = document::sign(&challenge, key)?;
        Ok((challenge, envelope))
    }

    /// Reads an envelope that the holder of `key` signed, and checks that the challenge is open now.
    ///
    /// # Errors
    /// As [`Challenge::read`]; [`ChallengeError::Period`] if it expired or is not valid yet.
    pub fn open(envelope: &[u8], key: &PublicKey, now: SystemTime) -> Result<Challenge, ChallengeError> {
        let challenge = Challenge::read(envelope, key)?;
        challenge.check_open(now)?;
        Ok(challenge)
    }

    /// Reads an envelope that the holder of `key` signed, at whatever time: for a row that answered in time and is
    /// verified again later.
    ///
    /// # Errors
    /// [`ChallengeError::Document`] for an envelope or payload that does not hold, [`ChallengeError::Field`] and
    /// [`ChallengeError::Period`] for values that [`Challenge::issue`] would not write.
    pub fn read(envelope: &[u8], key: &PublicKey) -> Result<Challenge, ChallengeError> {
        let challenge: Challenge = document::open(envelope, key)?;
        challenge.check_form(&key.keyid())?;
        Ok(challenge)
    }

    /// Reads an envelope whose signature nobody checked, to show it.
    ///
    /// # Errors
    /// As [`Challenge::read`], but for the signature.
    pub fn unverified(envelope: &[u8]) -> Result<Challenge, ChallengeError> {
        let challenge: Challenge = document::unverified(envelope)?;
        challenge.check_form(&document::signer(envelope)?)?;
        Ok(challenge)
    }

    fn check_form(&self, signer: &str) -> Result<(), ChallengeError> {
        record_checks::digest("nonce", &self.nonce)?;
        record_checks::file("subject", &self.subject)?;
        self.period().check_form(LONGEST)?;
        if self.verifier == signer {
            return Ok(());
        }
        Err(ChallengeError::Field {
            field: "verifier".to_owned(),
            found: self.verifier.clone(),
            expected: format!("{signer}, the key that signed it"),
        })
    }

    fn period(&self) -> Period<'_> {
        Period { what: "the challenge", issued: &self.issued, expires: &self.expires }
    }

    /// Checks that the challenge is open at a time: not expired, and issued already.
    ///
    /// # Errors
    /// [`ChallengeError::Period`], with both times.
    pub fn check_open(&self, now: SystemTime) -> Result<(), ChallengeError> {
        Ok(self.period().check(now)?)
    }

    /// Checks that the challenge was issued for a backend: one of the backend's files is its subject.
    ///
    /// # Errors
    /// [`ChallengeError::Foreign`].
    pub fn check_subject(&self, backend_files: &[FileDigest]) -> Result<(), ChallengeError> {
        if backend_files.iter().any(|file| file.sha256 == self.subject.sha256) {
            return Ok(());
        }
        let found: Vec<String> =
            backend_files.iter().map(|file| format!("{} with {}", file.name, file.sha256)).collect();
        let FileDigest { name, sha256: wanted } = self.subject.clone();
        Err(ChallengeError::Foreign { name, wanted, found: found.join(", ") })
    }

    /// Checks that a run says it took place while the challenge was open (RFC 3339 UTC both).
    ///
    /// # Errors
    /// [`ChallengeError::Outside`], [`ChallengeError::Time`].
    pub fn check_run(&self, started: &str, finished: &str) -> Result<(), ChallengeError> {
        let (begin, end) = (time::parse(started)?, time::parse(finished)?);
        let early = time::parse(&self.issued)?.duration_since(begin).is_ok_and(|ahead| ahead > CLOCK_SKEW);
        let late = end.duration_since(time::parse(&self.expires)?).is_ok_and(|behind| behind > CLOCK_SKEW);
        if !early && !late && begin <= end {
            return Ok(());
        }
        Err(ChallengeError::Outside {
            started: started.to_owned(),
            finished: finished.to_owned(),
            issued: self.issued.clone(),
            expires: self.expires.clone(),
        })
    }

    /// Checks that the row is signed by another key than the challenge.
    ///
    /// # Errors
    /// [`ChallengeError::OwnNonce`].
    pub fn check_signer(&self, row_keyid: &str) -> Result<(), ChallengeError> {
        if self.verifier == row_keyid {
            return Err(ChallengeError::OwnNonce { keyid: self.verifier.clone() });
        }
        Ok(())
    }

    /// The seed of a run that answers this challenge, by [`seed`].
    ///
    /// # Errors
    /// As [`seed`].
    pub fn seed(
        &self,
        backend: &str,
        backend_files: &[FileDigest],
        suite_digest: &str,
    ) -> Result<u64, ChallengeError> {
        seed(&self.nonce, &backend_digest(backend, backend_files), suite_digest)
    }
}

/// One digest for a backend: the sha256 of `backend ` and its id, and of the sha256 digests of its files, as lower-case
/// hex; these lines sorted, each followed by a newline. Names of files do not count. The id does, because one file may
/// hold several backends.
pub fn backend_digest(backend: &str, files: &[FileDigest]) -> String {
    let id = format!("backend {backend}");
    ids_digest(files.iter().map(|file| file.sha256.as_str()).chain([id.as_str()]))
}

/// The seed that follows from a nonce, a backend and suites, each 32 bytes as lower-case hex.
///
/// It is the first 8 bytes, big-endian, of HKDF-SHA256 (RFC 5869) with the nonce as key material, the text of [`SCHEMA`]
/// as salt, and as info the text `seed`, the backend's digest and the suites' digest, as bytes, one after the other.
///
/// # Errors
/// [`ChallengeError::Field`] for a text that is not 32 bytes of lower-case hex.
pub fn seed(nonce: &str, backend_digest: &str, suite_digest: &str) -> Result<u64, ChallengeError> {
    let bytes = |field: &str, text: &str| -> Result<Vec<u8>, ChallengeError> {
        record_checks::digest(field, text)?;
        hex::decode(text).map_err(|error| ChallengeError::Derivation(error.to_string()))
    };
    let nonce = bytes("nonce", nonce)?;
    let info = [bytes("backend digest", backend_digest)?, bytes("suite digest", suite_digest)?];
    let mut out = [0u8; 8];
    Hkdf::<Sha256>::new(Some(SCHEMA.as_bytes()), &nonce)
        .expand_multi_info(&[b"seed", &info[0], &info[1]], &mut out)
        .map_err(|error| ChallengeError::Derivation(error.to_string()))?;
    Ok(u64::from_be_bytes(out))
}
