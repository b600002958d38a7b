//! A run folder: what is written, what verifies, and that nothing in it can be changed.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use modelbench_contract::Cap;
use modelbench_evidence::bundle::Bundle;
use modelbench_evidence::companions::CompanionError;
use modelbench_evidence::dsse::{DsseError, Envelope};
use modelbench_evidence::folder::FolderError;
use modelbench_evidence::keys::PrivateKey;
use modelbench_evidence::label::Label;
use modelbench_evidence::mode::Mode;
use modelbench_evidence::publish::{
    BUNDLE_FILE, PUBLIC_KEY_FILE, PublishError, Published, ROW_FILE, write_run,
};
use modelbench_evidence::record::CaseRecord;
use modelbench_evidence::results::{RESULTS_FILE, Results};
use modelbench_evidence::statement::Statement;
use modelbench_evidence::time;
use modelbench_evidence::verify::{CasePin, KitPins, Signer, SuiteCheck, VerifyError, verify_at};
use modelbench_evidence::{testresult, vsa};
use tempfile::TempDir;

mod sample;

fn now() -> SystemTime {
    time::parse(sample::FINISHED).expect("a time") + Duration::from_secs(60)
}

fn honest() -> Vec<u8> {
    let cases = sample::cases();
    sample::bytes(&sample::header(&cases), &cases)
}

fn published() -> (TempDir, PrivateKey) {
    let dir = tempfile::tempdir().expect("a folder");
    let key = PrivateKey::generate().expect("a key");
    assert!(matches!(write_run(dir.path(), &honest(), &key).expect("written"), Published::Row(_)));
    (dir, key)
}

fn refusal(path: &Path) -> VerifyError {
    verify_at(path, None, None, now()).expect_err("a refusal")
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Signs a statement that the record does not give, as the key's holder could.
fn forge(dir: &Path, key: &PrivateKey, change: impl FnOnce(&mut Statement)) {
    let results =
        Results::parse(&std::fs::read(dir.join(RESULTS_FILE)).expect("a record")).expect("a good record");
    let mut statement = Statement::of(&results).expect("a statement");
    change(&mut statement);
    let envelope = Envelope::sign(&statement.to_bytes().expect("JSON"), key).expect("signed");
    std::fs::write(dir.join(ROW_FILE), envelope.to_bytes().expect("JSON")).expect("written");
    let bundle = Bundle::of(envelope).expect("bundled").to_bytes().expect("JSON");
    std::fs::write(dir.join(BUNDLE_FILE), bundle).expect("written");
}

#[test]
fn a_run_folder_holds_the_row_and_all_that_it_needs() {
    let (dir, key) = published();
    let files = [PUBLIC_KEY_FILE, RESULTS_FILE, ROW_FILE, BUNDLE_FILE, testresult::FILE, vsa::FILE];
    assert_eq!(names(dir.path()), files);
    for path in [dir.path().to_owned(), dir.path().join(ROW_FILE), dir.path().join(BUNDLE_FILE)] {
        let verified = verify_at(&path, None, None, now()).expect("it holds");
        assert_eq!((verified.signer, verified.suite), (Signer::SelfContained, SuiteCheck::NotAsked));
        assert!(verified.both_encodings);
        assert_eq!(verified.keyid, key.public_key().keyid());
        assert_eq!(verified.statement.predicate.label, Label::Approx);
    }
    let given = verify_at(dir.path(), Some(&key.public_key()), None, now()).expect("it holds");
    assert_eq!(given.signer, Signer::Given);
    let other = PrivateKey::generate().expect("a key").public_key();
    let error = verify_at(dir.path(), Some(&other), None, now()).expect_err("another key");
    assert!(matches!(error, VerifyError::Dsse { source: DsseError::OtherKey { .. }, .. }), "{error}");
}

#[test]
fn the_statement_names_the_files_and_keeps_large_numbers_as_text() {
    let statement = Statement::of(&Results::parse(&honest()).expect("a record")).expect("a statement");
    let value: serde_json::Value =
        serde_json::from_slice(&statement.to_bytes().expect("JSON")).expect("a JSON object");
    assert_eq!(value["_type"], "https://in-toto.io/Statement/v1");
    assert_eq!(value["predicateType"], "urn:modelbench:support-row:v1");
    assert_eq!(value["subject"][0]["name"], "libvendor_x.so");
    assert_eq!(value["subject"][0]["digest"]["sha256"], "b".repeat(64));
    assert_eq!(value["subject"][1]["name"], "modelbench");
    let row = &value["predicate"];
    assert_eq!(row["model"]["parameters"], "9007199254740993");
    assert_eq!(row["capacity"]["device"]["state"], "unknown");
    assert_eq!(row["parity"]["worstErrorOverBound"], "0.75");
    assert_eq!(row["parity"]["worstCase"], "r2/forward/prefill/kjv");
    assert_eq!(row["parity"]["bitsDiffer"], "15");
    assert_eq!(row["rungs"][1]["worst"]["errorOverBound"], "0.40625");
    assert_eq!(row["validUntil"], "2027-02-28T10:13:01Z");
    assert_eq!(row["assurance"], "self-tested");
    assert!(row["fence"].is_null() && row.get("fence").is_some());
    assert_eq!(row["challenge"]["nonce"], sample::NONCE);
    only_small_numbers(&value);
}

/// A verification summary lies there exactly where the label has earned it.
#[test]
fn a_summary_is_earned() {
    let (approx, key) = published();
    let cases = sample::cases();
    let mut header = sample::header(&cases);
    header.mode = Mode::Ci;
    let partial = tempfile::tempdir().expect("a folder");
    write_run(partial.path(), &sample::bytes(&header, &cases), &key).expect("written");
    assert!(!partial.path().join(vsa::FILE).exists());
    verify_at(partial.path(), None, None, now()).expect("it holds");
    std::fs::copy(approx.path().join(vsa::FILE), partial.path().join(vsa::FILE)).expect("copied");
    let error = refusal(partial.path());
    assert!(
        matches!(error, VerifyError::Companion(CompanionError::Unearned { label: "PARTIAL", .. })),
        "{error}"
    );
    std::fs::remove_file(approx.path().join(vsa::FILE)).expect("removed");
    assert!(matches!(refusal(approx.path()), VerifyError::Companion(CompanionError::Read { .. })));
}

/// A nonce that the tester posed proves nothing, whoever verifies.
#[test]
fn nobody_answers_ones_own_challenge() {
    let key = PrivateKey::generate().expect("a key");
    let cases = sample::cases();
    let mut header = sample::header(&cases);
    header.challenge.as_mut().expect("a challenge").verifier = key.public_key().keyid();
    let dir = tempfile::tempdir().expect("a folder");
    write_run(dir.path(), &sample::bytes(&header, &cases), &key).expect("written");
    let error = refusal(dir.path());
    assert!(
        matches!(error, VerifyError::Claim(_)) && error.to_string().contains("the tester chose"),
        "{error}"
    );
}

fn only_small_numbers(value: &serde_json::Value) {
    match value {
        serde_json::Value::Number(n) => assert!(n.as_u64().is_some_and(|n| n < 1 << 32), "{n}"),
        serde_json::Value::Array(items) => items.iter().for_each(only_small_numbers),
        serde_json::Value::Object(map) => map.values().for_each(only_small_numbers),
        _ => {}
    }
}

#[test]
fn a_bundled_backend_is_one_subject() {
    let cases = sample::cases();
    let mut header = sample::header(&cases);
    header.backend_files = vec![header.kit.clone()];
    let results = Results::parse(&sample::bytes(&header, &cases)).expect("a record");
    assert_eq!(Statement::of(&results).expect("a statement").subject.len(), 1);
    header.backend_files = vec![header.kit.clone(), sample::file("libvendor_x.so", 'a')];
    let results = Results::parse(&sample::bytes(&header, &cases)).expect("a record");
    assert_eq!(Statement::of(&results).expect("a statement").subject.len(), 2, "one digest, two names");
}

#[test]
fn a_row_is_never_overwritten() {
    let (dir, key) = published();
    let before = std::fs::read(dir.path().join(ROW_FILE)).expect("a row");
    assert!(matches!(write_run(dir.path(), &honest(), &key), Err(PublishError::Exists { .. })));
    assert_eq!(std::fs::read(dir.path().join(ROW_FILE)).expect("a row"), before);
    // Another key or record is refused file by file, and no row appears then.
    for (name, text) in [(RESULTS_FILE, "other"), (PUBLIC_KEY_FILE, "other"), (BUNDLE_FILE, "{}")] {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join(name), text).expect("written");
        let error = write_run(dir.path(), &honest(), &key).expect_err("a refusal");
        assert!(matches!(&error, PublishError::Exists { path } if path.ends_with(name)), "{error}");
        assert_eq!(std::fs::read_to_string(dir.path().join(name)).expect("text"), text);
        assert!(!dir.path().join(ROW_FILE).exists());
    }
}

#[test]
fn writing_again_after_an_interruption_completes_the_folder() {
    let (dir, key) = published();
    std::fs::remove_file(dir.path().join(ROW_FILE)).expect("removed");
    assert!(matches!(write_run(dir.path(), &honest(), &key).expect("completed"), Published::Row(_)));
    verify_at(dir.path(), None, None, now()).expect("it holds");
}

#[test]
fn an_interrupted_or_filtered_run_leaves_no_row() {
    let key = PrivateKey::generate().expect("a key");
    let dir = tempfile::tempdir().expect("a folder");
    let bytes = honest();
    let footer = bytes[..bytes.len() - 1].iter().rposition(|b| *b == b'\n').expect("several lines") + 1;
    assert!(matches!(write_run(dir.path(), &bytes[..footer], &key), Err(PublishError::Results(_))));
    assert_eq!(names(dir.path()), Vec::<String>::new());
    let cases = sample::cases();
    let mut header = sample::header(&cases);
    (header.filter, header.mode) = (Some("r1/".into()), Mode::Ci);
    let filtered = write_run(dir.path(), &sample::bytes(&header, &cases), &key).expect("results");
    assert!(matches!(filtered, Published::ResultsOnly));
    assert_eq!(names(dir.path()), [RESULTS_FILE]);
    assert!(matches!(refusal(dir.path()), VerifyError::NoRow { .. }));
}

#[test]
fn every_changed_byte_is_refused() {
    // One encoding at a time: otherwise the comparison of the two would hide a signature that nobody checks.
    for (row, other) in [(ROW_FILE, BUNDLE_FILE), (BUNDLE_FILE, ROW_FILE)] {
        let (dir, _) = published();
        std::fs::remove_file(dir.path().join(other)).expect("removed");
        let verify = || verify_at(&dir.path().join(row), None, None, now());
        for (name, step) in [(row, 5), (PUBLIC_KEY_FILE, 1), (RESULTS_FILE, 11)] {
            let path = dir.path().join(name);
            let bytes = std::fs::read(&path).expect("a file");
            // The newline at the end of a JSON file is its only byte without a meaning.
            let meaningful = bytes.len() - usize::from(name == row);
            for at in (0..meaningful).step_by(step) {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << (at % 3);
                // Removed first: emptying a file and writing it again costs a write to the disk each time.
                std::fs::remove_file(&path).expect("removed");
                std::fs::write(&path, &changed).expect("written");
                assert!(verify().is_err(), "{name}: byte {at} ({:?})", char::from(bytes[at]));
            }
            std::fs::write(&path, &bytes).expect("restored");
        }
        verify().expect("it holds again");
    }
}

#[test]
fn a_row_file_may_hold_what_its_format_allows_and_a_folder_may_not() {
    let (dir, key) = published();
    let (row, public) = (dir.path().join(ROW_FILE), key.public_key());
    let text = std::fs::read_to_string(&row).expect("a row");
    // DSSE demands that unknown keys are ignored; they are not signed, so a folder as written has none.
    std::fs::write(&row, text.replacen('{', "{\"note\":\"not signed\",", 1)).expect("written");
    verify_at(&row, Some(&public), None, now()).expect("it holds");
    match refusal(dir.path()) {
        VerifyError::Folder(FolderError::NotCanonical { path, byte, found, expected }) => {
            assert_eq!((path, byte), (row, 3));
            assert!(found.starts_with("note\":") && expected.starts_with("payload\":"), "{found} {expected}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_key_that_is_not_the_signers_is_refused_although_the_right_one_is_given() {
    let (dir, key) = published();
    let (row, public) = (dir.path().join(ROW_FILE), key.public_key());
    let stranger = PrivateKey::generate().expect("a key").public_key();
    std::fs::write(dir.path().join(PUBLIC_KEY_FILE), stranger.to_pem().expect("PEM")).expect("written");
    match verify_at(dir.path(), Some(&public), None, now()).expect_err("a refusal") {
        VerifyError::Folder(FolderError::OtherKey { found, signed, .. }) => {
            assert_eq!((found, signed), (stranger.keyid(), public.keyid()));
        }
        other => panic!("{other}"),
    }
    verify_at(&row, Some(&public), None, now()).expect("of a file the given key alone counts");
}

#[test]
fn the_two_encodings_must_agree() {
    let (dir, key) = published();
    let (other, _) = published();
    std::fs::copy(other.path().join(BUNDLE_FILE), dir.path().join(BUNDLE_FILE)).expect("copied");
    let error = refusal(dir.path());
    match &error {
        VerifyError::TwoRows { field: "signatures", found, other, .. } => assert_ne!(found, other),
        other => panic!("{other}"),
    }
    assert!(error.to_string().contains(ROW_FILE) && error.to_string().contains(BUNDLE_FILE), "{error}");
    std::fs::remove_file(dir.path().join(BUNDLE_FILE)).expect("removed");
    let row = dir.path().join(ROW_FILE);
    let alone = verify_at(&row, Some(&key.public_key()), None, now()).expect("it holds");
    assert!(!alone.both_encodings);
}

#[test]
fn a_signed_lie_is_refused_by_the_field() {
    let (dir, key) = published();
    type Change = fn(&mut Statement);
    let changes: [(&str, Change); 8] = [
        ("statement.predicate.label", |s| s.predicate.label = Label::Reference),
        ("statement.predicate.rungs[1].passed", |s| s.predicate.rungs[1].passed = 4),
        ("statement.predicate.gate.verdict", |s| {
            s.predicate.gate.verdict = modelbench_evidence::gate::GateVerdict::Failed;
        }),
        ("statement.predicate.caps.proven[0]", |s| s.predicate.caps.proven.clear()),
        ("statement.predicate.validUntil", |s| s.predicate.valid_until = "2037-02-28T10:13:01Z".into()),
        ("statement.predicate.hardware.name", |s| s.predicate.hardware.name = "X300".into()),
        ("statement.subject[0].digest.sha256", |s| s.subject[0].digest.sha256 = "f".repeat(64)),
        ("statement.subject[1]", |s| drop(s.subject.pop())),
    ];
    for (field, change) in changes {
        forge(dir.path(), &key, change);
        match refusal(dir.path()) {
            VerifyError::Differs { path, signed, derived } => {
                assert_eq!(path, field);
                assert_ne!(signed, derived);
            }
            other => panic!("{field}: {other}"),
        }
    }
    forge(dir.path(), &key, |s| s.predicate.evidence[0].digest.sha256 = "f".repeat(64));
    assert!(matches!(refusal(dir.path()), VerifyError::ResultsDigest { .. }));
    forge(dir.path(), &key, |s| s.predicate_type.push('0'));
    assert!(matches!(refusal(dir.path()), VerifyError::Statement(_)));
    forge(dir.path(), &key, |s| s.subject.clear());
    assert!(matches!(refusal(dir.path()), VerifyError::Statement(_)));
    forge(dir.path(), &key, |_| {});
    verify_at(dir.path(), None, None, now()).expect("the truth holds");
}

#[test]
fn missing_files_are_named() {
    let (dir, key) = published();
    let row = dir.path().join(ROW_FILE);
    std::fs::remove_file(dir.path().join(PUBLIC_KEY_FILE)).expect("removed");
    assert!(refusal(dir.path()).to_string().contains(PUBLIC_KEY_FILE));
    let given = verify_at(dir.path(), Some(&key.public_key()), None, now()).expect_err("half a folder");
    assert!(
        matches!(given, VerifyError::Folder(FolderError::NotAFile { found: "not there", .. })),
        "{given}"
    );
    assert!(matches!(refusal(&row), VerifyError::Key(_)));
    verify_at(&row, Some(&key.public_key()), None, now()).expect("for a file the given key is enough");
    std::fs::remove_file(dir.path().join(RESULTS_FILE)).expect("removed");
    let error = verify_at(&row, Some(&key.public_key()), None, now()).expect_err("a refusal");
    assert!(matches!(error, VerifyError::Read { .. }) && error.to_string().contains(RESULTS_FILE));
    assert!(matches!(refusal(&dir.path().join("nowhere")), VerifyError::NoRow { .. }));
}

fn pin(case: CaseRecord) -> (String, CasePin) {
    let CaseRecord { id, subject, proves, .. } = case;
    (id, CasePin { subject, proves })
}

/// Changes what the kit pins about one case.
fn change(pins: &mut KitPins, change: fn(&mut CasePin)) {
    change(pins.cases.get_mut("r1/matmul/bound/f32/out33-in193").expect("the case"));
}

#[test]
fn pins_of_the_kit_are_compared() {
    let (dir, _) = published();
    let suite = sample::header(&sample::cases()).suite;
    let pins = KitPins {
        suite_digest: suite.digest.clone(),
        sets: BTreeMap::from([("full".to_owned(), (suite.cases, suite.cases_digest.clone()))]),
        cases: sample::cases().into_iter().map(pin).collect(),
    };
    let check =
        |pins: &KitPins| verify_at(dir.path(), None, Some(pins), now()).map(|verified| verified.suite);
    assert!(matches!(check(&pins), Ok(SuiteCheck::Pinned)));
    let refused = |change: fn(&mut KitPins), expected: &str| {
        let mut changed = pins.clone();
        change(&mut changed);
        match check(&changed) {
            Err(VerifyError::Pins(error)) => {
                assert_eq!(error.field, expected);
                assert_ne!(error.found, error.pinned);
            }
            other => panic!("{expected}: {other:?}"),
        }
    };
    refused(|pins| pins.sets.entry("full".into()).or_default().0 += 1, "suite.cases");
    refused(|pins| pins.sets.entry("full".into()).or_default().1 = "0".repeat(64), "suite.casesDigest");
    refused(|pins| pins.sets.clear(), "suite.set");
    refused(|pins| pins.cases.clear(), "subject of case r0/identity/stable/once");
    let probe = "r1/matmul/bound/f32/out33-in193";
    refused(|pins| change(pins, |pin| pin.subject.push('2')), &format!("subject of case {probe}"));
    refused(|pins| change(pins, |pin| pin.proves = Some(Cap::Async)), &format!("proves of case {probe}"));
    let other = KitPins { suite_digest: "0".repeat(64), ..pins.clone() };
    assert!(matches!(check(&other), Ok(SuiteCheck::OtherKit)));
}

#[test]
fn a_row_has_its_time() {
    let (dir, _) = published();
    let at = |text: &str| verify_at(dir.path(), None, None, time::parse(text).expect("a time"));
    assert!(at("2027-02-28T10:13:01Z").is_ok());
    assert!(matches!(at("2027-02-28T10:13:02Z"), Err(VerifyError::Expired { .. })));
    assert!(at("2026-11-29T10:13:02Z").is_ok(), "clocks differ a little");
    assert!(matches!(at("2026-11-29T10:12:00Z"), Err(VerifyError::Future { .. })));
}
