//! Challenges and the ledger of nonces: expired, early, foreign, used, damaged.

use std::time::{Duration, SystemTime};

use modelbench_evidence::challenge::{
    Challenge, ChallengeError, LONGEST, PAYLOAD_TYPE, SCHEMA, backend_digest, seed,
};
use modelbench_evidence::document::{self, DocumentError};
use modelbench_evidence::dsse::{DsseError, Envelope};
use modelbench_evidence::keys::PrivateKey;
use modelbench_evidence::ledger::{Claim, Ledger, LedgerError};
use modelbench_evidence::period::PeriodError;
use modelbench_evidence::record::FileDigest;
use modelbench_evidence::{time, ttl};
use sha2::{Digest, Sha256};

mod sample;

fn at(text: &str) -> SystemTime {
    time::parse(text).expect("a time")
}

fn now() -> SystemTime {
    at("2026-11-30T10:00:00Z")
}

fn issued() -> (Challenge, Vec<u8>, PrivateKey) {
    let key = PrivateKey::generate().expect("a key");
    let subject = sample::file("libvendor_x.so", 'b');
    let (challenge, envelope) = Challenge::issue(subject, ttl::days(1), &key, now()).expect("issued");
    (challenge, envelope, key)
}

/// Signs whatever payload, as the holder of the key could.
fn forged(payload: &[u8], key: &PrivateKey) -> Vec<u8> {
    Envelope::sign_as(PAYLOAD_TYPE, payload, key).expect("signed").to_bytes().expect("JSON")
}

#[test]
fn what_is_issued_can_be_opened_until_it_expires() {
    let (challenge, envelope, key) = issued();
    let public = key.public_key();
    for time in ["2026-11-30T10:00:00Z", "2026-12-01T10:00:00Z"] {
        assert_eq!(Challenge::open(&envelope, &public, at(time)).expect("open"), challenge);
    }
    let error = Challenge::open(&envelope, &public, at("2026-12-01T10:00:01Z")).expect_err("expired");
    assert_eq!(
        error.to_string(),
        "the challenge expired at 2026-12-01T10:00:00Z, now it is 2026-12-01T10:00:01Z: ask for a new one"
    );
    let error = Challenge::open(&envelope, &public, at("2026-11-30T09:00:00Z")).expect_err("not yet");
    assert!(matches!(error, ChallengeError::Period(PeriodError::NotYet { .. })), "{error}");
    assert_eq!(Challenge::read(&envelope, &public).expect("at any time"), challenge);
    let (other, ..) = issued();
    assert_ne!(other.nonce, challenge.nonce);
    assert_eq!(challenge.nonce.len(), 64);
}

#[test]
fn a_time_to_live_has_ends() {
    let key = PrivateKey::generate().expect("a key");
    for ttl in [Duration::from_secs(59), LONGEST + Duration::from_secs(1)] {
        let error = Challenge::issue(sample::file("x.so", 'b'), ttl, &key, now()).expect_err("a refusal");
        assert!(matches!(error, ChallengeError::Period(PeriodError::Ttl(_))), "{error}");
    }
    let error = Challenge::issue(sample::file("lib/x.so", 'b'), LONGEST, &key, now()).expect_err("a path");
    assert!(matches!(error, ChallengeError::Field { .. }), "{error}");
}

#[test]
fn another_key_another_type_and_a_damaged_payload_are_refused() {
    let (challenge, envelope, key) = issued();
    let other = PrivateKey::generate().expect("a key");
    let refusal = |bytes: &[u8], key: &PrivateKey| {
        Challenge::open(bytes, &key.public_key(), now()).expect_err("a refusal")
    };
    let error = refusal(&envelope, &other);
    assert!(
        matches!(error, ChallengeError::Document(DocumentError::Dsse(DsseError::OtherKey { .. }))),
        "{error}"
    );
    let payload = document::payload(&challenge).expect("JSON");
    let row_type = Envelope::sign(&payload, &key).expect("signed").to_bytes().expect("JSON");
    let error = refusal(&row_type, &key);
    assert!(
        matches!(error, ChallengeError::Document(DocumentError::Dsse(DsseError::PayloadType { .. }))),
        "{error}"
    );
    // Another signer's words about the verifier are not the verifier's.
    let error = refusal(&forged(&payload, &other), &other);
    assert!(matches!(&error, ChallengeError::Field { field, .. } if field == "verifier"), "{error}");
}

#[test]
fn only_the_bytes_that_the_kit_writes_are_read() {
    let (challenge, _, key) = issued();
    let text = String::from_utf8(document::payload(&challenge).expect("JSON")).expect("text");
    let refusal = |text: String| {
        Challenge::open(&forged(text.as_bytes(), &key), &key.public_key(), now()).expect_err("a refusal")
    };
    let document = |error| match error {
        ChallengeError::Document(error) => error,
        error => panic!("{error}"),
    };
    let spaced = document(refusal(text.replacen(':', ": ", 1)));
    assert!(matches!(spaced, DocumentError::NotCanonical { byte: 11, .. }), "{spaced}");
    let unknown = document(refusal(text.replacen('{', "{\"note\":1,", 1)));
    assert!(matches!(unknown, DocumentError::Malformed { .. }), "{unknown}");
    let twice = document(refusal(text.replacen('{', &format!("{{\"nonce\":\"{}\",", challenge.nonce), 1)));
    assert!(twice.to_string().contains("appears twice"), "{twice}");
    let version = document(refusal(text.replace(SCHEMA, "urn:modelbench:challenge:v2")));
    assert!(matches!(version, DocumentError::Constant { field: "schema", .. }), "{version}");
    let later = refusal(text.replace("2026-12-01", "2027-12-01"));
    assert!(matches!(later, ChallengeError::Period(PeriodError::Ttl(_))), "{later}");
    let short = refusal(text.replace(&challenge.nonce, &challenge.nonce[2..]));
    assert!(matches!(&short, ChallengeError::Field { field, .. } if field == "nonce"), "{short}");
}

#[test]
fn every_changed_byte_of_an_envelope_is_refused() {
    let (challenge, envelope, key) = issued();
    for i in 0..envelope.len() {
        let mut changed = envelope.clone();
        changed[i] ^= 1;
        // What still opens must be the same challenge: white space around the JSON has no meaning.
        if let Ok(opened) = Challenge::open(&changed, &key.public_key(), now()) {
            assert_eq!(opened, challenge);
            assert_eq!(i, envelope.len() - 1, "byte {i}");
        }
    }
}

#[test]
fn a_challenge_counts_for_its_subject_its_time_and_not_for_its_own_signer() {
    let (challenge, _, key) = issued();
    let files = [sample::file("helper.so", 'a'), sample::file("renamed.so", 'b')];
    challenge.check_subject(&files).expect("its subject");
    let error = challenge.check_subject(&files[..1]).expect_err("foreign").to_string();
    for text in [&"a".repeat(64), &"b".repeat(64), "libvendor_x.so", "helper.so"] {
        assert!(error.contains(text), "{error}");
    }
    challenge.check_run("2026-11-30T10:00:10Z", "2026-11-30T10:05:00Z").expect("in time");
    for (started, finished) in [
        ("2026-11-30T09:00:00Z", "2026-11-30T10:05:00Z"),
        ("2026-12-01T09:00:00Z", "2026-12-01T11:00:00Z"),
        ("2026-11-30T10:05:00Z", "2026-11-30T10:04:00Z"),
    ] {
        let error = challenge.check_run(started, finished).expect_err("outside");
        assert!(matches!(error, ChallengeError::Outside { .. }), "{error}");
    }
    challenge.check_signer("SHA256:vendor").expect("another signer");
    let error = challenge.check_signer(&key.public_key().keyid()).expect_err("its own");
    assert!(matches!(error, ChallengeError::OwnNonce { .. }), "{error}");
}

/// HKDF-SHA256 by its definition in RFC 5869, written again from HMAC's in RFC 2104.
fn hkdf(salt: &[u8], material: &[u8], info: &[u8]) -> Vec<u8> {
    let hmac = |key: &[u8], message: &[u8]| -> Vec<u8> {
        assert!(key.len() <= 64);
        let pad = |byte: u8| {
            let mut block = [byte; 64];
            block.iter_mut().zip(key).for_each(|(b, k)| *b ^= k);
            block
        };
        let inner = Sha256::new().chain_update(pad(0x36)).chain_update(message).finalize();
        Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().to_vec()
    };
    let key = hmac(salt, material);
    hmac(&key, &[info, &[1]].concat())
}

#[test]
fn the_seed_is_that_of_rfc_5869_and_depends_on_all_three() {
    // Test case 1 of the RFC shows that the function above is HKDF.
    let okm = hkdf(
        &hex::decode("000102030405060708090a0b0c").expect("hex"),
        &[0x0b; 22],
        &hex::decode("f0f1f2f3f4f5f6f7f8f9").expect("hex"),
    );
    assert_eq!(hex::encode(okm), "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf");
    let (nonce, backend, suite) = ("1".repeat(64), "2".repeat(64), "3".repeat(64));
    let info = [b"seed".as_slice(), &[0x22; 32], &[0x33; 32]].concat();
    let expected = hkdf(SCHEMA.as_bytes(), &[0x11; 32], &info);
    let expected = u64::from_be_bytes(expected[..8].try_into().expect("8 bytes"));
    assert_eq!(seed(&nonce, &backend, &suite).expect("a seed"), expected);
    let other = "4".repeat(64);
    for (n, b, s) in [(&other, &backend, &suite), (&nonce, &other, &suite), (&nonce, &backend, &other)] {
        assert_ne!(seed(n, b, s).expect("a seed"), expected);
    }
    for wrong in ["", "zz", &"A".repeat(64), &"1".repeat(63)] {
        let error = seed(&nonce, wrong, &suite).expect_err("no digest");
        assert!(
            matches!(&error, ChallengeError::Field { field, .. } if field == "backend digest"),
            "{error}"
        );
    }
}

#[test]
fn a_backends_digest_is_that_of_its_files_in_any_order_and_by_any_name() {
    let files = [sample::file("a.so", 'c'), sample::file("b.so", 'd')];
    let swapped = [sample::file("x.so", 'd'), sample::file("y.so", 'c')];
    let lines = format!("backend acme\n{}\n{}\n", "c".repeat(64), "d".repeat(64));
    assert_eq!(backend_digest("acme", &files), hex::encode(Sha256::digest(lines)));
    assert_eq!(backend_digest("acme", &files), backend_digest("acme", &swapped));
    let (challenge, ..) = issued();
    let suite = "c".repeat(64);
    let seed_of = |files: &[FileDigest]| challenge.seed("acme", files, &suite).expect("a seed");
    assert_eq!(
        seed_of(&files),
        seed(&challenge.nonce, &backend_digest("acme", &files), &suite).expect("a seed")
    );
    assert_ne!(seed_of(&files), seed_of(&files[..1]));
    // Two backends in one file do not share a challenge's inputs.
    assert_ne!(seed_of(&files), challenge.seed("other", &files, &suite).expect("a seed"));
}

#[test]
fn a_nonce_counts_for_one_row() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("nonces");
    let ledger = Ledger::new(&path);
    let (challenge, ..) = issued();
    let (mine, other) = ("5".repeat(64), "6".repeat(64));
    assert_eq!(ledger.claim(&challenge, &mine, now()).expect("free"), Claim::First);
    // The same row may be verified again, even after the end of the challenge.
    let later = at("2027-03-01T00:00:00Z");
    let again = ledger.claim(&challenge, &mine, later).expect("the same row");
    assert_eq!(again, Claim::Again { at: "2026-11-30T10:00:00Z".into() });
    let error = ledger.claim(&challenge, &other, now()).expect_err("used");
    assert!(matches!(error, LedgerError::Used { .. }), "{error}");
    for text in [&mine, &other, &challenge.nonce] {
        assert!(error.to_string().contains(text.as_str()), "{error}");
    }
    // Another challenge, first used after its end: refused, and not noted down.
    let (second, ..) = issued();
    let error = ledger.claim(&second, &other, later).expect_err("expired");
    assert!(matches!(error, LedgerError::Challenge(_)), "{error}");
    assert_eq!(ledger.claim(&second, &other, now()).expect("free still"), Claim::First);
    assert_eq!(
        std::fs::read_to_string(&path).expect("text"),
        format!(
            "{} {mine} 2026-11-30T10:00:00Z\n{} {other} 2026-11-30T10:00:00Z\n",
            challenge.nonce, second.nonce
        )
    );
    let error = ledger.claim_nonce("short", &mine, now()).expect_err("no nonce");
    assert!(matches!(error, LedgerError::Field { .. }), "{error}");
}

#[test]
fn a_damaged_ledger_is_an_error() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("nonces");
    let (a, b, fresh) = ("a".repeat(64), "b".repeat(64), "c".repeat(64));
    let good = format!("{a} {b} 2026-11-30T10:00:00Z\n");
    for (damaged, line) in [
        (good.trim_end().to_owned(), 1),
        (format!("{good}\n"), 2),
        (format!("{good}{good}"), 2),
        (good.replace('a', "g"), 1),
        (good.replace(' ', "  "), 1),
        (good.replace("11-30", "13-30"), 1),
        (format!("{good}{fresh} {b}\n"), 2),
        (format!("{good}{fresh}"), 2),
        ("\u{0}".to_owned(), 1),
    ] {
        std::fs::write(&path, &damaged).expect("written");
        let error = Ledger::new(&path).claim_nonce(&fresh, &b, now()).expect_err("damaged");
        assert!(matches!(error, LedgerError::Corrupt { line: found, .. } if found == line), "{error}");
        assert_eq!(std::fs::read_to_string(&path).expect("text"), damaged, "nothing was written");
    }
    let folder = Ledger::new(dir.path()).claim_nonce(&fresh, &b, now()).expect_err("a folder");
    assert!(matches!(folder, LedgerError::File { .. }), "{folder}");
}

#[test]
fn of_many_rows_that_claim_at_once_one_gets_the_nonce() {
    let dir = tempfile::tempdir().expect("a folder");
    let ledger = Ledger::new(&dir.path().join("nonces"));
    let nonce = "a".repeat(64);
    let claims: Vec<bool> = std::thread::scope(|scope| {
        let claim = |digit: char| {
            let (ledger, nonce) = (&ledger, &nonce);
            scope.spawn(move || ledger.claim_nonce(nonce, &digit.to_string().repeat(64), now()).is_ok())
        };
        let threads: Vec<_> = "01234567".chars().map(claim).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    assert_eq!(claims.iter().filter(|claimed| **claimed).count(), 1);
}
