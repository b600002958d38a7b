//! Keys: ECDSA P-256, private as PKCS#8 PEM, public as SPKI PEM, named by the OpenSSH fingerprint.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use p256::ecdsa::signature::{Signer, Verifier};
use p256::ecdsa::{Signature, SigningKey, VerifyingKey};
use p256::elliptic_curve::Generate;
use p256::pkcs8::spki::SubjectPublicKeyInfoRef;
use p256::pkcs8::{
    AssociatedOid, DecodePrivateKey, DecodePublicKey, Document, EncodePrivateKey, EncodePublicKey,
    LineEnding, ObjectIdentifier, PrivateKeyInfoRef, SecretDocument,
};
use p256::{NistP256, elliptic_curve};
use sha2::{Digest, Sha256};

use crate::files::{self, Access};

/// The PEM text of a P-256 key is about 250 bytes; what is larger is something else.
const MAX_KEY_BYTES: u64 = 64 * 1024;

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("cannot read the key {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write the key {}: {source}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The file is there already.
    #[error("{} exists; keys are never overwritten: choose another name or move it away", .path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Others may read or change a private key.
    #[error("the private key {} has mode {mode:04o}: others may use it; run `chmod 600` on it", .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Another kind of file.
    #[error("{origin} holds {found}, expected PEM {expected:?}; `modelbench keygen` makes such a pair")]
    Kind {
        /// The file, or where the text came from.
        origin: String,
        /// What it is.
        found: String,
        /// The PEM label that was expected.
        expected: &'static str,
    },
    /// A key of another algorithm or curve.
    #[error("{origin} is a key of another algorithm or curve ({found}), expected ECDSA P-256 (prime256v1)")]
    Curve {
        /// The file, or where the text came from.
        origin: String,
        /// Object identifiers found.
        found: String,
    },
    /// Right label, wrong content.
    #[error("{origin} is not a valid P-256 key: {reason}")]
    Malformed {
        /// The file, or where the text came from.
        origin: String,
        /// What is wrong.
        reason: String,
    },
    /// The operating system gives no random numbers.
    #[error("no random numbers for a key: {0}")]
    Random(String),
    /// The key cannot be encoded or cannot sign; a defect.
    #[error("the key cannot be used: {0}")]
    Unusable(String),
}

/// A private key. Its text appears in no debug output.
#[derive(Debug)]
pub struct PrivateKey(SigningKey);

/// A public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl PrivateKey {
    /// A new random key.
    ///
    /// # Errors
    /// [`KeyError::Random`].
    pub fn generate() -> Result<PrivateKey, KeyError> {
        SigningKey::try_generate().map(PrivateKey).map_err(|error| KeyError::Random(error.to_string()))
    }

    /// Reads PKCS#8 PEM; `origin` names the text in errors.
    ///
    /// # Errors
    /// [`KeyError::Kind`], [`KeyError::Curve`], [`KeyError::Malformed`].
    pub fn from_pem(text: &str, origin: &str) -> Result<PrivateKey, KeyError> {
        let malformed = |reason: String| KeyError::Malformed { origin: origin.to_owned(), reason };
        expect_label(text, "PRIVATE KEY", origin)?;
        let (_, document) = SecretDocument::from_pem(text).map_err(|error| malformed(error.to_string()))?;
        let info =
            PrivateKeyInfoRef::try_from(document.as_bytes()).map_err(|error| malformed(error.to_string()))?;
        expect_curve(info.algorithm.oids().ok(), origin)?;
        SigningKey::from_pkcs8_pem(text).map(PrivateKey).map_err(|error| malformed(error.to_string()))
    }

    /// Reads a PKCS#8 PEM file that nobody but its owner can change and that the world cannot read. (Its group may
    /// read it: secret stores mount keys that way.)
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn load(path: &Path) -> Result<PrivateKey, KeyError> {
        refuse_open(path)?;
        PrivateKey::from_pem(&read_text(path)?, &path.display().to_string())
    }

    /// The key as PKCS#8 PEM.
    ///
    /// # Errors
    /// [`KeyError::Unusable`].
    fn to_pem(&self) -> Result<impl AsRef<[u8]>, KeyError> {
        let pem =
            self.0.to_pkcs8_pem(LineEnding::LF).map_err(|error| KeyError::Unusable(error.to_string()))?;
        Ok(PemText(pem))
    }

    /// Signs bytes: ECDSA with SHA-256, deterministic (RFC 6979), as DER, with the smaller of the two `s` that fit.
    ///
    /// # Errors
    /// [`KeyError::Unusable`].
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        let signature: Signature =
            self.0.try_sign(message).map_err(|error| KeyError::Unusable(error.to_string()))?;
        Ok(signature.normalize_s().to_der().as_bytes().to_vec())
    }

    /// The public half.
    pub fn public_key(&self) -> PublicKey {
        PublicKey(*self.0.verifying_key())
    }
}

/// Text that is wiped from memory when dropped, as bytes.
struct PemText<T>(T);

impl<T: std::ops::Deref<Target = String>> AsRef<[u8]> for PemText<T> {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl PublicKey {
    /// Reads SPKI PEM; `origin` names the text in errors.
    ///
    /// # Errors
    /// [`KeyError::Kind`], [`KeyError::Curve`], [`KeyError::Malformed`].
    pub fn from_pem(text: &str, origin: &str) -> Result<PublicKey, KeyError> {
        let malformed = |reason: String| KeyError::Malformed { origin: origin.to_owned(), reason };
        expect_label(text, "PUBLIC KEY", origin)?;
        let (_, document) = Document::from_pem(text).map_err(|error| malformed(error.to_string()))?;
        let info = SubjectPublicKeyInfoRef::try_from(document.as_bytes())
            .map_err(|error| malformed(error.to_string()))?;
        expect_curve(info.algorithm.oids().ok(), origin)?;
        VerifyingKey::from_public_key_pem(text).map(PublicKey).map_err(|error| malformed(error.to_string()))
    }

    /// Reads an SPKI PEM file.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn load(path: &Path) -> Result<PublicKey, KeyError> {
        PublicKey::from_pem(&read_text(path)?, &path.display().to_string())
    }

    /// The key as SPKI PEM.
    ///
    /// # Errors
    /// [`KeyError::Unusable`].
    pub fn to_pem(&self) -> Result<String, KeyError> {
        self.0.to_public_key_pem(LineEnding::LF).map_err(|error| KeyError::Unusable(error.to_string()))
    }

    /// The fingerprint that `ssh-keygen -l` prints: `SHA256:` and the unpadded base64 of the sha256 of the OpenSSH
    /// encoding. Verifiers that know no other name of a key use this one, and skip a signature that has another.
    pub fn keyid(&self) -> String {
        format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(self.openssh_bytes())))
    }

    /// The OpenSSH encoding (RFC 5656): algorithm, curve and uncompressed point, each after its length.
    pub fn openssh_bytes(&self) -> Vec<u8> {
        let point = self.0.to_sec1_point(false);
        let mut bytes = Vec::new();
        for part in [b"ecdsa-sha2-nistp256".as_slice(), b"nistp256", point.as_bytes()] {
            // All three parts are shorter than 100 bytes.
            bytes.extend_from_slice(&(part.len() as u32).to_be_bytes());
            bytes.extend_from_slice(part);
        }
        bytes
    }

    /// True if `signature` is this key's signature over `message`, as [`PrivateKey::sign`] writes it.
    ///
    /// Without the key, anybody can turn a signature (r, s) into (r, n - s), which fits as well: only the smaller `s` in
    /// canonical DER is accepted, so that a signed file has one spelling.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let Ok(parsed) = Signature::from_der(signature) else { return false };
        let canonical = parsed.normalize_s().to_der();
        canonical.as_bytes() == signature && self.0.verify(message, &parsed).is_ok()
    }
}

fn read_text(path: &Path) -> Result<String, KeyError> {
    let failed = |source| KeyError::Read { path: path.to_owned(), source };
    let bytes = files::read_capped(path, MAX_KEY_BYTES).map_err(failed)?;
    String::from_utf8(bytes).map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidData, error)))
}

/// The label of a PEM text tells what is wrong better than the parser of the wrong format would.
fn expect_label(text: &str, expected: &'static str, origin: &str) -> Result<(), KeyError> {
    let label = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("-----BEGIN ").and_then(|rest| rest.strip_suffix("-----")));
    if label == Some(expected) {
        return Ok(());
    }
    let found = label.map_or_else(|| "no PEM block".to_owned(), |label| format!("PEM {label:?}"));
    Err(KeyError::Kind { origin: origin.to_owned(), found, expected })
}

fn expect_curve(
    oids: Option<(ObjectIdentifier, Option<ObjectIdentifier>)>,
    origin: &str,
) -> Result<(), KeyError> {
    match oids {
        Some((elliptic_curve::ALGORITHM_OID, Some(NistP256::OID))) => Ok(()),
        Some((algorithm, curve)) => {
            let found = curve.map_or_else(|| algorithm.to_string(), |curve| format!("{algorithm}, {curve}"));
            Err(KeyError::Curve { origin: origin.to_owned(), found })
        }
        None => Err(KeyError::Curve { origin: origin.to_owned(), found: "explicit parameters".to_owned() }),
    }
}

#[cfg(unix)]
fn refuse_open(path: &Path) -> Result<(), KeyError> {
    use std::os::unix::fs::PermissionsExt;
    let metadata = File::open(path)
        .and_then(|file| file.metadata())
        .map_err(|source| KeyError::Read { path: path.to_owned(), source })?;
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & 0o027 == 0 { Ok(()) } else { Err(KeyError::Open { path: path.to_owned(), mode }) }
}

#[cfg(not(unix))]
fn refuse_open(_: &Path) -> Result<(), KeyError> {
    Ok(())
}

/// Where the public half of a private key file lies: `key.pem` has `key.pub.pem`.
pub fn public_path(private: &Path) -> PathBuf {
    private.with_extension("pub.pem")
}

/// Makes a key pair: the private half at `private` (PKCS#8 PEM, mode 0600), the public half at [`public_path`] (SPKI
/// PEM). Both appear complete or not at all, and neither overwrites anything.
///
/// # Errors
/// [`KeyError::Exists`] if one of the two files exists (nothing is written then), [`KeyError::Write`],
/// [`KeyError::Random`].
pub fn keygen(private: &Path) -> Result<PublicKey, KeyError> {
    let public = public_path(private);
    // The public half is written second; looking first keeps a private key from appearing alone.
    if public.symlink_metadata().is_ok() {
        return Err(KeyError::Exists { path: public });
    }
    let key = PrivateKey::generate()?;
    write(private, key.to_pem()?.as_ref(), Access::Owner)?;
    write(&public, key.public_key().to_pem()?.as_bytes(), Access::Everybody)?;
    Ok(key.public_key())
}

fn write(path: &Path, bytes: &[u8], access: Access) -> Result<(), KeyError> {
    files::write_new(path, bytes, access).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => KeyError::Exists { path: path.to_owned() },
        _ => KeyError::Write { path: path.to_owned(), source },
    })
}

/// The key of a user who gave none: `key.pem` in the given configuration folder, made on first use. Two processes that
/// both come first end up with the same key.
///
/// # Errors
/// [`KeyError`].
pub fn per_user_key(config_dir: &Path) -> Result<PrivateKey, KeyError> {
    let path = config_dir.join("key.pem");
    match PrivateKey::load(&path) {
        Err(KeyError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
        loaded => return loaded,
    }
    create_private_folder(config_dir)
        .map_err(|source| KeyError::Write { path: config_dir.to_owned(), source })?;
    match write(&path, PrivateKey::generate()?.to_pem()?.as_ref(), Access::Owner) {
        Ok(()) | Err(KeyError::Exists { .. }) => PrivateKey::load(&path),
        Err(error) => Err(error),
    }
}

fn create_private_folder(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}
