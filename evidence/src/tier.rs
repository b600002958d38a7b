//! The challenge tier: which cases are asked again with inputs that nobody could know.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use crate::challenge::{self, ChallengeError};
use crate::outcome::Outcome;
use crate::record::{CaseRecord, Header, Rung};
use crate::record_checks::op_named;

/// Most cases of a tier.
pub const TIER_CASES: usize = 128;
/// Most elements of the output of a case of the tier, so that the record can hold the values themselves.
pub const TIER_ELEMENTS: u64 = 4096;

/// The ids of the tier that a nonce chooses among the cases of single ops that passed, in the order in which they are
/// asked: those with the smallest sha256 over the nonce, a newline and the id.
///
/// Whoever knows the record knows the tier, and nobody knows it before the nonce.
pub fn select<'a>(nonce: &str, cases: &'a [CaseRecord]) -> Vec<&'a str> {
    let passed = cases.iter().filter(|case| {
        case.rung == Rung::R1
            && case.outcome == Outcome::Pass
            && op_named(&case.subject).is_some()
            && case.numerics.is_none()
            && (1..=TIER_ELEMENTS).contains(&case.quality.elements)
    });
    let mut keyed: Vec<([u8; 32], &str)> = passed
        .map(|case| (Sha256::digest(format!("{nonce}\n{}", case.id)).into(), case.id.as_str()))
        .collect();
    keyed.sort_unstable();
    keyed.truncate(TIER_CASES);
    keyed.into_iter().map(|(_, id)| id).collect()
}

/// The seed that a nonce gives for the backend and the suites of a run, as `0x…`.
///
/// # Errors
/// As [`challenge::seed`].
pub fn seed(nonce: &str, header: &Header) -> Result<String, ChallengeError> {
    let backend = challenge::backend_digest(&header.backend.name, &header.backend_files);
    challenge::seed(nonce, &backend, &header.suite.digest).map(|seed| format!("{seed:#x}"))
}

/// A nonce that nobody knew before: 32 random bytes of the operating system, as lower-case hex.
///
/// # Errors
/// [`ChallengeError::Random`].
pub fn nonce() -> Result<String, ChallengeError> {
    let mut nonce = [0u8; 32];
    getrandom::fill(&mut nonce).map_err(|error| ChallengeError::Random(error.to_string()))?;
    Ok(hex::encode(nonce))
}

/// Values as the record holds them: f32 little-endian in standard base64.
pub fn encode(values: &[f32]) -> String {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    STANDARD.encode(bytes)
}

/// Values from a record; `None` for a text that [`encode`] does not write.
pub fn decode(text: &str) -> Option<Vec<f32>> {
    let bytes = STANDARD.decode(text).ok().filter(|bytes| bytes.len() % 4 == 0)?;
    Some(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}
