//! Waivers: a maintainer's signed, expiring, public excuse for cases of one backend on one kind of device.
//!
//! A waived case stays in the denominator and in the row. Who signs the row cannot sign its waivers.

use std::time::{Duration, SystemTime};

use globset::GlobMatcher;
use modelbench_contract::is_backend_id;
use serde::{Deserialize, Serialize};

use crate::document::{self, Document, DocumentError};
use crate::expected::{self, is_address};
use crate::keys::{PrivateKey, PublicKey};
use crate::period::{self, Period, PeriodError};
use crate::ttl;

/// `payloadType` of the envelope of a waiver.
pub const PAYLOAD_TYPE: &str = "application/vnd.modelbench.waiver+json";
/// Identifies the format of a waiver.
pub const SCHEMA: &str = "urn:modelbench:waiver:v1";
/// The longest time for which a waiver may hold. An excuse that is needed for longer is signed again, by somebody who
/// looked again.
pub const LONGEST: Duration = ttl::days(366);

/// Why a waiver is refused.
#[derive(Debug, thiserror::Error)]
pub enum WaiverError {
    /// The envelope, its signature or its form.
    #[error("waiver: {0}")]
    Document(#[from] DocumentError),
    /// It does not hold now.
    #[error(transparent)]
    Period(#[from] PeriodError),
    /// A field has a value that cannot be.
    #[error("waiver: {field} is {found:?}, expected {expected}")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// It excuses another backend.
    #[error(
        "the waiver is for the backend {waived}, the row is about {found}: a waiver counts for its own backend only"
    )]
    ForeignBackend {
        /// Backend of the waiver.
        waived: String,
        /// Backend of the row.
        found: String,
    },
    /// It excuses another device.
    #[error(
        "the waiver is for devices that match {waived:?}, the row's device is {found:?}: it does not count here"
    )]
    ForeignDevice {
        /// Glob of the waiver.
        waived: String,
        /// Hardware of the row.
        found: String,
    },
    /// The vendor excused itself.
    #[error("the waiver and the row are both signed by {keyid}: a vendor's own key cannot waive")]
    OwnKey {
        /// Fingerprint of the key.
        keyid: String,
    },
    /// Nobody whom the caller trusts signed it.
    #[error("the waiver is signed by {signed}, the maintainers' keys given are {trusted}: it does not count")]
    Untrusted {
        /// Fingerprint of the signer.
        signed: String,
        /// Fingerprints of the trusted keys.
        trusted: String,
    },
    /// It excuses nothing.
    #[error("the waiver for {cases:?} matches none of the {total} cases of the record: correct or remove it")]
    Unused {
        /// Glob of the waiver.
        cases: String,
        /// Cases of the record.
        total: usize,
    },
}

/// What a waiver says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// Glob over case ids: `*` stays within a segment, `**` crosses them.
    pub cases: String,
    /// Id of the backend.
    pub backend: String,
    /// Glob over the device's hardware name; `*` matches any text.
    pub device: String,
    /// Address of the issue, `https://…`.
    pub issue: String,
    /// Why the cases are excused, for people.
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Signed {
    schema: String,
    terms: Terms,
    issued: String,
    expires: String,
    maintainer: String,
}

impl Document for Signed {
    const WHAT: &'static str = "a waiver";
    const PAYLOAD_TYPE: &'static str = PAYLOAD_TYPE;
    const CONSTANTS: &'static [(&'static str, &'static str)] = &[("schema", SCHEMA)];
}

/// The row that a waiver is asked to excuse, and who may.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// Keys of the maintainers whom the caller trusts.
    pub maintainers: &'a [PublicKey],
    /// Fingerprint of the row's signer.
    pub row_keyid: &'a str,
    /// Id of the row's backend.
    pub backend: &'a str,
    /// Hardware name of the row's device.
    pub device: &'a str,
}

/// A waiver that was read.
#[derive(Debug, Clone)]
pub struct Waiver {
    /// What it says.
    pub terms: Terms,
    /// Begin, RFC 3339 UTC.
    pub issued: String,
    /// End, RFC 3339 UTC.
    pub expires: String,
    /// Fingerprint of the maintainer's key, which signed it.
    pub maintainer: String,
    cases: GlobMatcher,
    device: GlobMatcher,
}

impl Waiver {
    /// Signs terms, and gives the bytes of the envelope too.
    ///
    /// # Errors
    /// [`WaiverError::Field`] for terms that cannot be, [`WaiverError::Period`] for a `ttl` outside one minute to
    /// [`LONGEST`], [`WaiverError::Document`].
    pub fn sign(
        terms: Terms,
        ttl: Duration,
        key: &PrivateKey,
        now: SystemTime,
    ) -> Result<(Waiver, Vec<u8>), WaiverError> {
        let (issued, expires) = period::from(now, ttl, LONGEST)?;
        let maintainer = key.public_key().keyid();
        let signed = Signed { schema: SCHEMA.to_owned(), terms, issued, expires, maintainer };
        let envelope = document::sign(&signed, key)?;
        let keyid = signed.maintainer.clone();
        Ok((Waiver::of(signed, &keyid)?, envelope))
    }

    /// Reads a waiver that counts for a row now: signed by one of the maintainers, who did not sign the row, and about
    /// the row's backend and device.
    ///
    /// # Errors
    /// [`WaiverError`] for the first thing that is wrong.
    pub fn open(envelope: &[u8], asked: &Asked<'_>, now: SystemTime) -> Result<Waiver, WaiverError> {
        let signed = document::signer(envelope)?;
        if signed == asked.row_keyid {
            return Err(WaiverError::OwnKey { keyid: signed });
        }
        let Some(key) = asked.maintainers.iter().find(|key| key.keyid() == signed) else {
            let trusted: Vec<String> = asked.maintainers.iter().map(PublicKey::keyid).collect();
            let trusted = if trusted.is_empty() { "none".to_owned() } else { trusted.join(", ") };
            return Err(WaiverError::Untrusted { signed, trusted });
        };
        let waiver = Waiver::read(envelope, key)?;
        waiver.check_open(now)?;
        let Terms { backend, device, .. } = &waiver.terms;
        if backend != asked.backend {
            let (waived, found) = (backend.clone(), asked.backend.to_owned());
            return Err(WaiverError::ForeignBackend { waived, found });
        }
        if !waiver.device.is_match(asked.device) {
            let (waived, found) = (device.clone(), asked.device.to_owned());
            return Err(WaiverError::ForeignDevice { waived, found });
        }
        Ok(waiver)
    }

    /// Reads a waiver that the holder of `key` signed, whatever it is about and whenever it holds.
    ///
    /// # Errors
    /// [`WaiverError::Document`], [`WaiverError::Field`], [`WaiverError::Period`] for a form that [`Waiver::sign`] would
    /// not write.
    pub fn read(envelope: &[u8], key: &PublicKey) -> Result<Waiver, WaiverError> {
        Waiver::of(document::open(envelope, key)?, &key.keyid())
    }

    /// Reads a waiver whose signature nobody checked, to show it.
    ///
    /// # Errors
    /// As [`Waiver::read`], but for the signature.
    pub fn unverified(envelope: &[u8]) -> Result<Waiver, WaiverError> {
        Waiver::of(document::unverified(envelope)?, &document::signer(envelope)?)
    }

    fn of(signed: Signed, signer: &str) -> Result<Waiver, WaiverError> {
        let Signed { schema: _, terms, issued, expires, maintainer } = signed;
        if maintainer != signer {
            return Err(wrong("maintainer", &maintainer, format!("{signer}, the key that signed it")));
        }
        check_terms(&terms)?;
        let cases = glob("cases", &terms.cases, true)?;
        let device = glob("device", &terms.device, false)?;
        let waiver = Waiver { terms, issued, expires, maintainer, cases, device };
        waiver.period().check_form(LONGEST)?;
        Ok(waiver)
    }

    fn period(&self) -> Period<'_> {
        Period { what: "the waiver", issued: &self.issued, expires: &self.expires }
    }

    /// Checks that the waiver holds at a time.
    ///
    /// # Errors
    /// [`WaiverError::Period`], with both times.
    pub fn check_open(&self, now: SystemTime) -> Result<(), WaiverError> {
        Ok(self.period().check(now)?)
    }

    /// True if the waiver excuses a case.
    pub fn matches(&self, case_id: &str) -> bool {
        self.cases.is_match(case_id)
    }

    /// How many of the cases of a record the waiver is about.
    ///
    /// # Errors
    /// [`WaiverError::Unused`] if there are none.
    pub fn matched<'a>(&self, case_ids: impl IntoIterator<Item = &'a str>) -> Result<usize, WaiverError> {
        let (mut total, mut matched) = (0, 0);
        for id in case_ids {
            total += 1;
            matched += usize::from(self.matches(id));
        }
        if matched == 0 {
            return Err(WaiverError::Unused { cases: self.terms.cases.clone(), total });
        }
        Ok(matched)
    }
}

fn wrong(field: &'static str, found: &str, expected: impl Into<String>) -> WaiverError {
    WaiverError::Field { field, found: found.to_owned(), expected: expected.into() }
}

fn check_terms(terms: &Terms) -> Result<(), WaiverError> {
    let Terms { cases, backend, device, issue, reason } = terms;
    if cases.is_empty() {
        return Err(wrong("cases", cases, "a glob over case ids, such as r1/matmul/bound/**"));
    }
    if !is_backend_id(backend.strip_prefix("mock:").unwrap_or(backend)) {
        return Err(wrong("backend", backend, "an id [a-z0-9][a-z0-9-]{0,31}"));
    }
    if device.is_empty() {
        return Err(wrong("device", device, "a glob over the hardware name, such as \"Vendor X2*\""));
    }
    if !is_address(issue) {
        return Err(wrong("issue", issue, "the address of a public issue, https://…"));
    }
    if reason.trim().is_empty() || reason.contains(char::is_control) {
        return Err(wrong("reason", reason, "one line that says why the cases are excused"));
    }
    Ok(())
}

fn glob(field: &'static str, pattern: &str, segments: bool) -> Result<GlobMatcher, WaiverError> {
    expected::glob(pattern, segments).map_err(|reason| wrong(field, pattern, format!("a glob: {reason}")))
}
