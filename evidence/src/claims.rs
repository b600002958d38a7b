//! What others signed about a run, checked when its row is verified: the challenge it answers, the waivers it uses.

use std::time::SystemTime;

use crate::challenge::{Challenge, ChallengeError};
use crate::keys::PublicKey;
use crate::record::ChallengeRef;
use crate::results::Results;
use crate::time::{self, TimeError};
use crate::waiver::{Asked, Waiver, WaiverError};

/// A challenge that the caller posed, and the digest of its file.
#[derive(Debug, Clone)]
pub struct Posed {
    /// The challenge; its signature was checked.
    pub challenge: Challenge,
    /// sha256 of the file, lower-case hex.
    pub sha256: String,
}

impl Posed {
    /// What a run that answers it says in its header.
    pub fn reference(&self) -> ChallengeRef {
        ChallengeRef {
            nonce: self.challenge.nonce.clone(),
            sha256: self.sha256.clone(),
            verifier: self.challenge.verifier.clone(),
            expires: self.challenge.expires.clone(),
        }
    }
}

/// Why a row does not answer a challenge, or may not use a waiver.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// The run answers none.
    #[error("the row answers no challenge, yours has the nonce {nonce}: run the backend with -challenge")]
    NoChallenge {
        /// Nonce of the caller's challenge.
        nonce: String,
    },
    /// The run answers another one.
    #[error(
        "the row answers a challenge with {field} {found}, yours has {posed}: it answers another challenge"
    )]
    OtherChallenge {
        /// The field.
        field: &'static str,
        /// Value in the row.
        found: String,
        /// Value of the caller's challenge.
        posed: String,
    },
    /// The challenge itself refuses it.
    #[error(transparent)]
    Challenge(#[from] ChallengeError),
    /// A waiver refuses it.
    #[error("waivers[{index}] of the row: {source}")]
    Waiver {
        /// Its number in the record, from 0.
        index: usize,
        /// Why.
        source: WaiverError,
    },
    /// A time cannot be used.
    #[error(transparent)]
    Time(#[from] TimeError),
}

/// Checks that a run answers a challenge: this one, for its own backend, in time, and posed by somebody else.
///
/// # Errors
/// [`ClaimError`] for the first thing that is wrong.
pub fn check_challenge(results: &Results, row_keyid: &str, posed: &Posed) -> Result<(), ClaimError> {
    let header = &results.header;
    let Some(found) = &header.challenge else {
        return Err(ClaimError::NoChallenge { nonce: posed.challenge.nonce.clone() });
    };
    let mine = posed.reference();
    for (field, found, posed) in [
        ("nonce", &found.nonce, &mine.nonce),
        ("sha256", &found.sha256, &mine.sha256),
        ("verifier", &found.verifier, &mine.verifier),
        ("expires", &found.expires, &mine.expires),
    ] {
        if found != posed {
            let (found, posed) = (found.clone(), posed.clone());
            return Err(ClaimError::OtherChallenge { field, found, posed });
        }
    }
    posed.challenge.check_subject(&header.backend_files)?;
    posed.challenge.check_run(&header.started, &results.footer.finished)?;
    Ok(posed.challenge.check_signer(row_keyid)?)
}

/// Checks that whoever signed a row did not pose its challenge, whoever asks.
///
/// # Errors
/// [`ChallengeError::OwnNonce`].
pub(crate) fn check_verifier(results: &Results, row_keyid: &str) -> Result<(), ClaimError> {
    match &results.header.challenge {
        Some(challenge) if challenge.verifier == row_keyid => {
            Err(ChallengeError::OwnNonce { keyid: row_keyid.to_owned() }.into())
        }
        _ => Ok(()),
    }
}

/// Checks the waivers of a run: each signed by a maintainer whom the caller trusts, for this backend and device, and
/// valid both when the run ended and now.
///
/// # Errors
/// [`ClaimError::Waiver`] for the first that does not count.
pub fn check_waivers(
    results: &Results,
    row_keyid: &str,
    maintainers: &[PublicKey],
    now: SystemTime,
) -> Result<(), ClaimError> {
    let device = &results.header.backend.device.hardware;
    let asked = Asked { maintainers, row_keyid, backend: &results.header.backend.name, device };
    let finished = time::parse(&results.footer.finished)?;
    for (index, envelope) in results.header.waivers.iter().enumerate() {
        let wrong = |source| ClaimError::Waiver { index, source };
        let waiver = Waiver::open(envelope.as_bytes(), &asked, finished).map_err(wrong)?;
        waiver.check_open(now).map_err(wrong)?;
        waiver.matched(results.cases.iter().map(|case| case.id.as_str())).map_err(wrong)?;
    }
    Ok(())
}
