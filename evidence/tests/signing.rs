//! Keys, fingerprints, envelopes and bundles against published vectors and against damage.

use modelbench_evidence::bundle::{Bundle, BundleError, MEDIA_TYPE};
use modelbench_evidence::dsse::{DsseError, Envelope, PAYLOAD_TYPE, pae};
use modelbench_evidence::keys::{KeyError, PrivateKey, PublicKey, keygen, per_user_key, public_path};

/// The P-256 key of RFC 6979, appendix A.2.5: public, and good for nothing but tests.
const RFC_PRIVATE: &str = "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgya+p2EW6dRZrXCFX
Z7HWk05Qw9s26JsSe4piKxIPZyGhRANCAARg/tS6JVqdMclh63TGNW1owEm4kjth
+mzmaWIuYPKftnkD/hAIuLyZpBrp6VYovGTy8bIMLX6fUXejwpTURiKZ
-----END PRIVATE KEY-----
";
const RFC_PUBLIC: &str = "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEYP7UuiVanTHJYet0xjVtaMBJuJI7
Yfps5mliLmDyn7Z5A/4QCLi8maQa6elWKLxk8vGyDC1+n1F3o8KU1EYimQ==
-----END PUBLIC KEY-----
";
/// What `ssh-keygen -l` prints for that key.
const RFC_KEYID: &str = "SHA256:hfuNWmjIYvsBGZ6dpCLTTAEa5LxbZABRHHVoynAxFlo";
const P384_PUBLIC: &str = "-----BEGIN PUBLIC KEY-----
MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAEEd4kosJRx3dXPKxeoCXkZ/II5R2/+Y/F
T2Zhy+Vlg7A3iC9KHKKX5gq828ODbYS8j6aWx3RA+S0PWDfpCgDnxShLRHdU1d7o
jJhlM7aQGusxd2htCuj7MxhEFKvmwXE6
-----END PUBLIC KEY-----
";
const ED25519_PRIVATE: &str = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIOmEMEdUY0+uqyUn6OFmDWuh+beK8pEmy2dUrKNfwyUV
-----END PRIVATE KEY-----
";

fn rfc_key() -> PrivateKey {
    PrivateKey::from_pem(RFC_PRIVATE, "the RFC's key").expect("a good key")
}

#[test]
fn pae_is_that_of_the_specification() {
    let bytes = pae("http://example.com/HelloWorld", b"hello world");
    assert_eq!(bytes, b"DSSEv1 29 http://example.com/HelloWorld 11 hello world");
    assert_eq!(pae("", "ä\0".as_bytes()), b"DSSEv1 0  3 \xc3\xa4\0", "lengths are in bytes");
}

#[test]
fn signatures_are_those_of_rfc_6979_as_der_with_the_smaller_s() {
    let signature = rfc_key().sign(b"sample").expect("a signature");
    let expected = "3045\
        022100efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716\
        02200834e36ad29a83bf2bc9385e491d6099c8fdf9d1ed67aa7ea5f51f93782857a9";
    assert_eq!(hex::encode(&signature), expected);
    // The RFC prints n - s in the place of s. It fits as well, and anybody can write one for the other.
    let printed = "3046\
        022100efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716\
        022100f7cb1c942d657c41d436c7a1b6e29f65f3e900dbb9aff4064dc4ab2f843acda8";
    let printed = hex::decode(printed).expect("hex");
    assert!(!rfc_key().public_key().verifies(b"sample", &printed), "one signature has one spelling");
    assert!(rfc_key().public_key().verifies(b"sample", &signature));
    assert!(!rfc_key().public_key().verifies(b"Sample", &signature));
    let raw = &hex::decode(&expected[10..]).expect("hex")[..];
    assert!(!rfc_key().public_key().verifies(b"sample", raw), "DER alone");
}

#[test]
fn the_fingerprint_is_that_of_ssh_keygen() {
    let public = PublicKey::from_pem(RFC_PUBLIC, "the RFC's key").expect("a good key");
    assert_eq!(public, rfc_key().public_key());
    assert_eq!(public.keyid(), RFC_KEYID);
    assert_eq!(public.to_pem().expect("PEM"), RFC_PUBLIC);
}

#[test]
fn keys_of_another_kind_are_named() {
    let private = |text: &str| PrivateKey::from_pem(text, "k.pem").expect_err("a refusal");
    let public = |text: &str| PublicKey::from_pem(text, "k.pem").expect_err("a refusal");
    assert!(matches!(private(RFC_PUBLIC), KeyError::Kind { .. }));
    assert!(matches!(public(RFC_PRIVATE), KeyError::Kind { .. }));
    assert!(matches!(private(ED25519_PRIVATE), KeyError::Curve { .. }));
    assert!(matches!(public(P384_PUBLIC), KeyError::Curve { .. }));
    let sec1 = RFC_PRIVATE.replace("PRIVATE", "EC PRIVATE");
    assert!(
        private(&sec1)
            .to_string()
            .contains("k.pem holds PEM \"EC PRIVATE KEY\", expected PEM \"PRIVATE KEY\"")
    );
    assert!(private("hello").to_string().contains("no PEM block"));
    assert!(public(P384_PUBLIC).to_string().contains("expected ECDSA P-256"));
    let cut = RFC_PRIVATE.replace("Z7HWk05Q", "");
    assert!(matches!(private(&cut), KeyError::Malformed { .. }));
}

#[test]
fn keygen_never_overwrites_and_keeps_the_private_half_private() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("signing.pem");
    let public = keygen(&path).expect("a new pair");
    assert_eq!(public_path(&path), dir.path().join("signing.pub.pem"));
    assert_eq!(PrivateKey::load(&path).expect("it loads").public_key(), public);
    assert_eq!(PublicKey::load(&public_path(&path)).expect("it loads"), public);
    let before = std::fs::read(&path).expect("text");
    assert!(matches!(keygen(&path), Err(KeyError::Exists { .. })));
    // With one half gone, the other is still not overwritten, and no new half appears.
    std::fs::remove_file(public_path(&path)).expect("removed");
    assert!(matches!(keygen(&path), Err(KeyError::Exists { .. })));
    assert_eq!(std::fs::read(&path).expect("text"), before);
    assert!(!public_path(&path).exists());
    let half = dir.path().join("half.pem");
    std::fs::write(public_path(&half), "mine").expect("written");
    assert!(matches!(keygen(&half), Err(KeyError::Exists { .. })));
    assert!(!half.exists());
}

#[cfg(unix)]
#[test]
fn a_private_key_that_others_may_use_is_refused() {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("key.pem");
    keygen(&path).expect("a new pair");
    let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    for (mode, good) in
        [(0o600, true), (0o400, true), (0o440, true), (0o644, false), (0o660, false), (0o602, false)]
    {
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("mine");
        match PrivateKey::load(&path) {
            Ok(_) => assert!(good, "{mode:o}"),
            Err(error) => {
                assert!(!good && error.to_string().contains(&format!("mode {mode:04o}")), "{error}")
            }
        }
    }
}

#[test]
fn the_key_of_a_user_is_made_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let config = dir.path().join("config").join("modelbench");
    let first = per_user_key(&config).expect("made");
    let again = per_user_key(&config).expect("found");
    assert_eq!(first.public_key(), again.public_key());
    std::fs::write(config.join("key.pem"), "damaged").expect("written");
    assert!(matches!(per_user_key(&config), Err(KeyError::Kind { .. })), "a damaged key is not replaced");
}

#[test]
fn two_users_of_one_folder_agree_on_the_key() {
    let dir = tempfile::tempdir().expect("a folder");
    let keys: Vec<PublicKey> = std::thread::scope(|scope| {
        let make = || per_user_key(dir.path()).expect("a key").public_key();
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    assert!(keys.iter().all(|key| *key == keys[0]));
}

#[test]
fn an_envelope_is_the_same_bytes_each_time_and_names_its_key() {
    let sign = || Envelope::sign(b"{}", &rfc_key()).expect("signed");
    assert_eq!(sign().to_bytes().expect("JSON"), sign().to_bytes().expect("JSON"));
    let envelope = sign();
    assert_eq!((envelope.payload.as_str(), envelope.payload_type.as_str()), ("e30=", PAYLOAD_TYPE));
    assert_eq!(envelope.signature().expect("one").keyid, RFC_KEYID);
    assert_eq!(envelope.verify(&rfc_key().public_key()).expect("it holds"), b"{}");
}

#[test]
fn a_damaged_envelope_is_refused_by_what_is_wrong() {
    let key = rfc_key().public_key();
    let good = Envelope::sign(b"{}", &rfc_key()).expect("signed");
    let damaged = |change: fn(&mut Envelope)| {
        let mut envelope = good.clone();
        change(&mut envelope);
        envelope.verify(&key).expect_err("a refusal")
    };
    assert!(matches!(damaged(|e| e.payload_type.push('x')), DsseError::PayloadType { .. }));
    assert!(matches!(damaged(|e| e.signatures.clear()), DsseError::Signatures(0)));
    assert!(matches!(damaged(|e| e.signatures.push(e.signatures[0].clone())), DsseError::Signatures(2)));
    assert!(matches!(damaged(|e| e.signatures[0].keyid.clear()), DsseError::OtherKey { .. }));
    assert!(matches!(damaged(|e| e.payload = "e30".into()), DsseError::Base64 { field: "payload", .. }));
    assert!(matches!(damaged(|e| e.payload = "e31=".into()), DsseError::Base64 { field: "payload", .. }));
    assert!(matches!(damaged(|e| e.payload = "e3-=".into()), DsseError::Base64 { field: "payload", .. }));
    assert!(matches!(damaged(|e| e.signatures[0].sig.push('=')), DsseError::Base64 { field: "sig", .. }));
    assert!(matches!(damaged(|e| e.payload = "e30K".into()), DsseError::Signature { .. }));
    let other = PrivateKey::generate().expect("a key").public_key();
    assert!(matches!(good.verify(&other), Err(DsseError::OtherKey { .. })));
    let mut stolen = good.clone();
    stolen.signatures[0].keyid = other.keyid();
    assert!(matches!(stolen.verify(&other), Err(DsseError::Signature { .. })));
}

#[test]
fn unknown_envelope_keys_are_ignored_and_repeated_ones_refused() {
    let text =
        String::from_utf8(Envelope::sign(b"{}", &rfc_key()).expect("signed").to_bytes().expect("JSON"));
    let text = text.expect("text");
    let extra = text.replacen('{', "{\"note\":[1],", 1);
    assert!(Envelope::parse(extra.as_bytes()).expect("parsed").verify(&rfc_key().public_key()).is_ok());
    let twice = text.replacen('{', "{\"payload\":\"e30=\",", 1);
    assert!(matches!(Envelope::parse(twice.as_bytes()), Err(DsseError::Malformed(_))));
}

#[test]
fn a_bundle_holds_the_envelope_and_names_its_key() {
    let envelope = Envelope::sign(b"{}", &rfc_key()).expect("signed");
    let bundle = Bundle::of(envelope.clone()).expect("bundled");
    let text = String::from_utf8(bundle.to_bytes().expect("JSON")).expect("text");
    assert!(text.starts_with(&format!("{{\"mediaType\":\"{MEDIA_TYPE}\"")));
    assert_eq!(Bundle::parse(text.as_bytes()).expect("parsed").dsse_envelope, envelope);
    let hint = text.replacen(RFC_KEYID, "SHA256:other", 1);
    assert!(matches!(Bundle::parse(hint.as_bytes()), Err(BundleError::Hint { .. })));
    let version = text.replace("bundle.v0.3", "bundle.v0.1");
    assert!(matches!(Bundle::parse(version.as_bytes()), Err(BundleError::MediaType { .. })));
    assert!(matches!(Bundle::parse(b"{}"), Err(BundleError::Malformed(_))));
}
