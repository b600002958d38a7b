//! DSSE: a signature over a type and bytes, in a JSON envelope.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::json;
use crate::keys::{KeyError, PrivateKey, PublicKey};

/// `payloadType` of an in-toto statement. Verifiers compare it as a string.
pub const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";

/// Why an envelope is refused.
#[derive(Debug, thiserror::Error)]
pub enum DsseError {
    /// Not the JSON of an envelope.
    #[error("not a DSSE envelope: {0}")]
    Malformed(String),
    /// Another type of payload.
    #[error("payloadType is {found:?}, expected {expected:?}")]
    PayloadType {
        /// What was found.
        found: String,
        /// The type that the caller reads.
        expected: &'static str,
    },
    /// Not standard base64 with padding.
    #[error("{field} is not standard base64 with padding: {reason}")]
    Base64 {
        /// `payload` or `sig`.
        field: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// None or several.
    #[error(
        "the envelope has {0} signatures, expected exactly one; give every signer an envelope of its own"
    )]
    Signatures(usize),
    /// The hint does not name the key.
    #[error("it is signed by key {signed}, the key given is {given}: use the signer's public key")]
    OtherKey {
        /// `keyid` of the envelope.
        signed: String,
        /// Fingerprint of the key.
        given: String,
    },
    /// The signature does not hold.
    #[error(
        "the signature by {keyid} does not fit the payload, or is not spelled as modelbench spells it (DER, low s): the \
         row was changed after it was signed"
    )]
    Signature {
        /// `keyid` of the envelope.
        keyid: String,
    },
    /// Signing failed.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// The bytes that are signed: `DSSEv1 LEN(type) type LEN(body) body`, lengths in bytes as decimal.
pub fn pae(payload_type: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), body.len()).into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// A signature within an envelope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    /// Fingerprint of the key, `SHA256:…`.
    pub keyid: String,
    /// DER of an ECDSA signature, standard base64 with padding.
    pub sig: String,
}

/// An envelope. Unknown keys are ignored, as the specification demands; they are not signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    /// The payload, standard base64 with padding.
    pub payload: String,
    /// [`PAYLOAD_TYPE`], or the type of a document of the kit's own.
    pub payload_type: String,
    /// Exactly one.
    pub signatures: Vec<Signature>,
}

impl Envelope {
    /// Signs a payload of type [`PAYLOAD_TYPE`]. The same key and payload give the same bytes.
    ///
    /// # Errors
    /// [`DsseError::Key`].
    pub fn sign(payload: &[u8], key: &PrivateKey) -> Result<Envelope, DsseError> {
        Envelope::sign_as(PAYLOAD_TYPE, payload, key)
    }

    /// Signs a payload of another type.
    ///
    /// # Errors
    /// [`DsseError::Key`].
    pub fn sign_as(payload_type: &str, payload: &[u8], key: &PrivateKey) -> Result<Envelope, DsseError> {
        let sig = STANDARD.encode(key.sign(&pae(payload_type, payload))?);
        Ok(Envelope {
            payload: STANDARD.encode(payload),
            payload_type: payload_type.to_owned(),
            signatures: vec![Signature { keyid: key.public_key().keyid(), sig }],
        })
    }

    /// Reads the JSON of an envelope. No signature is checked yet.
    ///
    /// # Errors
    /// [`DsseError::Malformed`].
    pub fn parse(bytes: &[u8]) -> Result<Envelope, DsseError> {
        let text = std::str::from_utf8(bytes).map_err(|error| DsseError::Malformed(error.to_string()))?;
        let value = json::strict(text).map_err(DsseError::Malformed)?;
        serde_json::from_value(value).map_err(|error| DsseError::Malformed(error.to_string()))
    }

    /// The JSON of the envelope, with a newline at the end.
    ///
    /// # Errors
    /// [`DsseError::Malformed`] if it cannot be written as JSON.
    pub fn to_bytes(&self) -> Result<Vec<u8>, DsseError> {
        let mut bytes = serde_json::to_vec(self).map_err(|error| DsseError::Malformed(error.to_string()))?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// The only signature.
    ///
    /// # Errors
    /// [`DsseError::Signatures`] if there is none or more than one.
    pub fn signature(&self) -> Result<&Signature, DsseError> {
        match self.signatures.as_slice() {
            [signature] => Ok(signature),
            other => Err(DsseError::Signatures(other.len())),
        }
    }

    /// Checks the type, the key and the signature, and gives the signed payload. Nothing else of the envelope may be
    /// believed.
    ///
    /// # Errors
    /// [`DsseError`].
    pub fn verify(&self, key: &PublicKey) -> Result<Vec<u8>, DsseError> {
        self.verify_as(PAYLOAD_TYPE, key)
    }

    /// As [`Envelope::verify`], for a payload of another type.
    ///
    /// # Errors
    /// [`DsseError`].
    pub fn verify_as(&self, payload_type: &'static str, key: &PublicKey) -> Result<Vec<u8>, DsseError> {
        let payload = self.unverified(payload_type)?;
        let signature = self.signature()?;
        let given = key.keyid();
        if signature.keyid != given {
            return Err(DsseError::OtherKey { signed: signature.keyid.clone(), given });
        }
        if key.verifies(&pae(&self.payload_type, &payload), &decode("sig", &signature.sig)?) {
            Ok(payload)
        } else {
            Err(DsseError::Signature { keyid: signature.keyid.clone() })
        }
    }

    /// The payload of an envelope whose signature nobody checked: to be shown, never to be believed.
    ///
    /// # Errors
    /// [`DsseError::PayloadType`], [`DsseError::Signatures`], [`DsseError::Base64`].
    pub fn unverified(&self, payload_type: &'static str) -> Result<Vec<u8>, DsseError> {
        if self.payload_type != payload_type {
            return Err(DsseError::PayloadType { found: self.payload_type.clone(), expected: payload_type });
        }
        self.signature()?;
        decode("payload", &self.payload)
    }
}

fn decode(field: &'static str, text: &str) -> Result<Vec<u8>, DsseError> {
    STANDARD.decode(text).map_err(|error| DsseError::Base64 { field, reason: error.to_string() })
}
