//! Waivers: who may sign them, what they excuse, and when they do not count.

use std::time::SystemTime;

use modelbench_evidence::document::DocumentError;
use modelbench_evidence::dsse::DsseError;
use modelbench_evidence::keys::{PrivateKey, PublicKey};
use modelbench_evidence::period::PeriodError;
use modelbench_evidence::waiver::{Asked, LONGEST, Terms, Waiver, WaiverError};
use modelbench_evidence::{time, ttl};

const VENDOR: &str = "SHA256:the-vendors-key";

fn at(text: &str) -> SystemTime {
    time::parse(text).expect("a time")
}

fn now() -> SystemTime {
    at("2026-11-30T10:00:00Z")
}

fn terms() -> Terms {
    Terms {
        cases: "r1/matmul/*/f16/**".into(),
        backend: "vendor-x".into(),
        device: "Vendor X2*".into(),
        issue: "https://example.org/issues/7".into(),
        reason: "the f16 unit rounds towards zero until firmware 9".into(),
    }
}

fn signed(key: &PrivateKey) -> Vec<u8> {
    Waiver::sign(terms(), ttl::days(90), key, now()).expect("signed").1
}

fn asked(maintainers: &[PublicKey]) -> Asked<'_> {
    Asked { maintainers, row_keyid: VENDOR, backend: "vendor-x", device: "Vendor X200 / rev b" }
}

#[test]
fn a_maintainers_waiver_counts_for_its_cases_only() {
    let key = PrivateKey::generate().expect("a key");
    let trusted = [PrivateKey::generate().expect("a key").public_key(), key.public_key()];
    let waiver = Waiver::open(&signed(&key), &asked(&trusted), now()).expect("it counts");
    assert_eq!((waiver.terms.clone(), waiver.maintainer.clone()), (terms(), key.public_key().keyid()));
    assert_eq!(waiver.expires, "2027-02-28T10:00:00Z");
    let ids =
        ["r1/matmul/bound/f16/out33", "r1/matmul/bound/f16/a/b", "r1/matmul/a/b/f16/c", "r1/add/x/f16/y"];
    assert_eq!(ids.map(|id| waiver.matches(id)), [true, true, false, false]);
    assert_eq!(waiver.matched(ids).expect("some"), 2);
    let error = waiver.matched(["r1/add/x/f16/y"]).expect_err("none");
    assert!(matches!(error, WaiverError::Unused { total: 1, .. }), "{error}");
}

#[test]
fn a_vendors_own_key_cannot_waive() {
    let vendor = PrivateKey::generate().expect("a key");
    let (keyid, trusted) = (vendor.public_key().keyid(), [vendor.public_key()]);
    let asked = Asked { row_keyid: &keyid, ..asked(&trusted) };
    let error = Waiver::open(&signed(&vendor), &asked, now()).expect_err("its own");
    assert!(error.to_string().ends_with("a vendor's own key cannot waive"), "{error}");
}

#[test]
fn a_waiver_does_not_count_elsewhere_or_later() {
    let key = PrivateKey::generate().expect("a key");
    let (envelope, trusted) = (signed(&key), [key.public_key()]);
    let refusal = |asked: &Asked<'_>, now| Waiver::open(&envelope, asked, now).expect_err("a refusal");
    let error = refusal(&asked(&trusted), at("2027-02-28T10:00:01Z"));
    assert!(matches!(error, WaiverError::Period(PeriodError::Expired { .. })), "{error}");
    let error = refusal(&asked(&trusted), at("2026-11-29T10:00:00Z"));
    assert!(matches!(error, WaiverError::Period(PeriodError::NotYet { .. })), "{error}");
    let error = refusal(&Asked { backend: "vendor-y", ..asked(&trusted) }, now());
    assert!(matches!(error, WaiverError::ForeignBackend { .. }), "{error}");
    let error = refusal(&Asked { device: "Vendor X300", ..asked(&trusted) }, now());
    assert!(matches!(error, WaiverError::ForeignDevice { .. }), "{error}");
    let error = refusal(&asked(&[]), now());
    assert!(matches!(&error, WaiverError::Untrusted { trusted, .. } if trusted == "none"), "{error}");
    let error = refusal(&asked(&[PrivateKey::generate().expect("a key").public_key()]), now());
    assert!(matches!(error, WaiverError::Untrusted { .. }), "{error}");
}

#[test]
fn every_changed_byte_is_refused() {
    let key = PrivateKey::generate().expect("a key");
    let (envelope, trusted) = (signed(&key), [key.public_key()]);
    for i in 0..envelope.len() - 1 {
        let mut changed = envelope.clone();
        changed[i] ^= 1;
        assert!(Waiver::open(&changed, &asked(&trusted), now()).is_err(), "byte {i}");
    }
    let text = String::from_utf8(envelope).expect("text");
    let other = PrivateKey::generate().expect("a key").public_key();
    let stolen = text.replace(&key.public_key().keyid(), &other.keyid());
    let error = Waiver::open(stolen.as_bytes(), &asked(&[other]), now()).expect_err("not its signature");
    assert!(
        matches!(error, WaiverError::Document(DocumentError::Dsse(DsseError::Signature { .. }))),
        "{error}"
    );
}

#[test]
fn terms_that_excuse_nothing_nameable_are_refused() {
    let key = PrivateKey::generate().expect("a key");
    type Change = fn(&mut Terms);
    let changes: [(&str, Change); 9] = [
        ("cases", |t| t.cases.clear()),
        ("cases", |t| t.cases = "r1/[".into()),
        ("backend", |t| t.backend = "*".into()),
        ("device", |t| t.device.clear()),
        ("issue", |t| t.issue = "http://example.org/7".into()),
        ("issue", |t| t.issue = "https://".into()),
        ("issue", |t| t.issue.push_str(" x")),
        ("reason", |t| t.reason = " ".into()),
        ("reason", |t| t.reason = "two\nlines".into()),
    ];
    for (name, change) in changes {
        let mut terms = terms();
        change(&mut terms);
        match Waiver::sign(terms, ttl::days(1), &key, now()) {
            Err(WaiverError::Field { field, .. }) => assert_eq!(field, name),
            other => panic!("{name}: {other:?}"),
        }
    }
    let error = Waiver::sign(terms(), LONGEST + ttl::days(1), &key, now()).expect_err("too long");
    assert!(matches!(error, WaiverError::Period(PeriodError::Ttl(_))), "{error}");
}
