//! The sigstore bundle v0.3 around an envelope, for verifiers of that family.

use serde::{Deserialize, Serialize};

use crate::dsse::{DsseError, Envelope};
use crate::json;

/// `mediaType` of a bundle.
pub const MEDIA_TYPE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

/// Why a bundle is refused.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// Not the JSON of a bundle.
    #[error("not a sigstore bundle: {0}")]
    Malformed(String),
    /// Another version.
    #[error("mediaType of the bundle is {found:?}, expected {MEDIA_TYPE:?}")]
    MediaType {
        /// What was found.
        found: String,
    },
    /// The hint is not the envelope's key.
    #[error("verificationMaterial.publicKey.hint is {hint:?}, expected the signature's keyid {keyid:?}")]
    Hint {
        /// The hint.
        hint: String,
        /// The envelope's `keyid`.
        keyid: String,
    },
    /// The envelope within is wrong.
    #[error("dsseEnvelope of the bundle: {0}")]
    Envelope(#[from] DsseError),
}

/// A bundle whose verification material is a plain public key, named by its fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bundle {
    /// [`MEDIA_TYPE`].
    pub media_type: String,
    /// How to find the key.
    pub verification_material: VerificationMaterial,
    /// The envelope.
    pub dsse_envelope: Envelope,
}

/// How to find the key of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VerificationMaterial {
    /// The key.
    pub public_key: KeyHint,
}

/// Names a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyHint {
    /// The signature's `keyid`.
    pub hint: String,
}

impl Bundle {
    /// Wraps an envelope.
    ///
    /// # Errors
    /// [`BundleError::Envelope`] unless it has exactly one signature.
    pub fn of(envelope: Envelope) -> Result<Bundle, BundleError> {
        let hint = envelope.signature()?.keyid.clone();
        Ok(Bundle {
            media_type: MEDIA_TYPE.to_owned(),
            verification_material: VerificationMaterial { public_key: KeyHint { hint } },
            dsse_envelope: envelope,
        })
    }

    /// Reads the JSON of a bundle and checks its type and hint. No signature is checked yet.
    ///
    /// # Errors
    /// [`BundleError`].
    pub fn parse(bytes: &[u8]) -> Result<Bundle, BundleError> {
        let text = std::str::from_utf8(bytes).map_err(|error| BundleError::Malformed(error.to_string()))?;
        let value = json::strict(text).map_err(BundleError::Malformed)?;
        let bundle: Bundle =
            serde_json::from_value(value).map_err(|error| BundleError::Malformed(error.to_string()))?;
        if bundle.media_type != MEDIA_TYPE {
            return Err(BundleError::MediaType { found: bundle.media_type });
        }
        let keyid = &bundle.dsse_envelope.signature()?.keyid;
        let hint = &bundle.verification_material.public_key.hint;
        if hint != keyid {
            return Err(BundleError::Hint { hint: hint.clone(), keyid: keyid.clone() });
        }
        Ok(bundle)
    }

    /// The JSON of the bundle, with a newline at the end.
    ///
    /// # Errors
    /// [`BundleError::Malformed`] if it cannot be written as JSON.
    pub fn to_bytes(&self) -> Result<Vec<u8>, BundleError> {
        let mut bytes =
            serde_json::to_vec(self).map_err(|error| BundleError::Malformed(error.to_string()))?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}
