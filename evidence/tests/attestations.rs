//! Statements beside the row: the test result, the verification summary, the countersignature.

use std::path::Path;
use std::time::{Duration, SystemTime};

use modelbench_evidence::countersign::{self, CountersignError, Reproduction, countersign, file_name};
use modelbench_evidence::document::{self, Document};
use modelbench_evidence::intoto::{AttestationError, InToto};
use modelbench_evidence::keys::PrivateKey;
use modelbench_evidence::label::Label;
use modelbench_evidence::outcome::{Outcome, Verdict};
use modelbench_evidence::publish::{ROW_FILE, write_run};
use modelbench_evidence::record::{CaseRecord, Header};
use modelbench_evidence::results::Results;
use modelbench_evidence::row::Predicate;
use modelbench_evidence::testresult::{self, TestOutcome};
use modelbench_evidence::verify::{Verified, verify_at};
use modelbench_evidence::{time, vsa};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

mod sample;

type Change = fn(&mut Header, &mut Vec<CaseRecord>);

fn bytes(change: impl FnOnce(&mut Header, &mut Vec<CaseRecord>)) -> Vec<u8> {
    let mut cases = sample::cases();
    let mut header = sample::header(&cases);
    change(&mut header, &mut cases);
    sample::bytes(&header, &cases)
}

fn derived(change: impl FnOnce(&mut Header, &mut Vec<CaseRecord>)) -> (Results, Predicate) {
    let results = Results::parse(&bytes(change)).expect("a record");
    let row = Predicate::of(&results).expect("a row");
    (results, row)
}

fn break_norm(cases: &mut [CaseRecord]) {
    let norm = cases.iter_mut().find(|case| case.subject == "rms_norm").expect("the case");
    *norm = sample::with_outcome(norm.clone(), Outcome::Mismatch { detail: "element 3".into() });
}

#[test]
fn a_test_result_names_groups_that_passed_and_cases_that_did_not() {
    let (results, row) = derived(|_, _| {});
    let statement = testresult::of(&results, &row);
    let value = serde_json::to_value(&statement).expect("JSON");
    assert_eq!(value["_type"], "https://in-toto.io/Statement/v1");
    assert_eq!(value["predicateType"], "https://in-toto.io/attestation/test-result/v0.1");
    assert_eq!(value["subject"].as_array().expect("subjects").len(), 1, "the kit was not tested");
    assert_eq!(value["subject"][0]["digest"]["sha256"], "b".repeat(64));
    let predicate = &value["predicate"];
    assert_eq!(predicate["result"], "PASSED");
    assert_eq!(predicate["configuration"][0]["digest"]["sha256"], "c".repeat(64));
    assert_eq!(predicate["configuration"][0]["annotations"]["seed"], results.header.seed);
    assert_eq!(predicate["configuration"][1]["digest"]["sha256"], "d".repeat(64));
    // The collective case does not apply, so its group neither passed nor failed.
    assert_eq!(
        predicate["passedTests"],
        serde_json::json!([
            "r0/identity/stable",
            "r1/matmul/bound",
            "r1/matmul/exact",
            "r1/rms_norm/bound",
            "r2/forward/prefill",
            "r3/upload/narrow"
        ])
    );
    assert_eq!(
        (&predicate["warnedTests"], &predicate["failedTests"]),
        (&serde_json::json!([]), &serde_json::json!([]))
    );

    let (results, row) = derived(|_, cases| break_norm(cases));
    let failed = testresult::of(&results, &row).predicate;
    assert_eq!(failed.result, TestOutcome::Failed);
    assert_eq!(failed.failed_tests, ["r1/rms_norm/bound/f32/n4097"]);
    assert!(!failed.passed_tests.contains(&"r1/rms_norm/bound".to_owned()));
    assert_eq!(failed.passed_tests.len(), 5);
}

#[test]
fn the_result_is_no_better_than_the_label() {
    let outcome = |change: Change| {
        let (results, row) = derived(change);
        (row.label, testresult::of(&results, &row).predicate.result)
    };
    assert_eq!(outcome(|_, _| {}), (Label::Approx, TestOutcome::Passed));
    let smaller: Change = |header, _| {
        header.suite.set = "smoke".into();
        header.suite.full_cases += 1;
    };
    assert_eq!(outcome(smaller), (Label::Partial, TestOutcome::Warned));
    let missing: Change = |_, cases| cases.truncate(cases.len() - 2);
    assert_eq!(outcome(missing).1, TestOutcome::Failed, "cases are missing");
    let unproven: Change = |_, cases| {
        for case in cases {
            (case.quality.worst, case.quality.p99) = (None, None);
        }
    };
    assert_eq!(outcome(unproven), (Label::NotYet, TestOutcome::Failed), "the gate has no witness");
}

#[test]
fn excused_cases_warn() {
    let (mut results, row) = derived(|_, _| {});
    // A record of this version cannot hold these verdicts; the statement must be right about them all the same.
    for (verdict, warned, result) in [
        (Verdict::Waived, 1, TestOutcome::Warned),
        (Verdict::ExpectedFailure, 1, TestOutcome::Warned),
        (Verdict::UnexpectedPass, 0, TestOutcome::Failed),
        (Verdict::Regression, 0, TestOutcome::Failed),
    ] {
        results.cases[1].verdict = verdict;
        let predicate = testresult::of(&results, &row).predicate;
        assert_eq!((predicate.warned_tests.len(), predicate.result), (warned, result));
        assert_eq!(predicate.failed_tests.len(), 1 - warned);
        assert!(!predicate.passed_tests.contains(&"r1/matmul/exact".to_owned()));
    }
}

#[test]
fn only_rows_that_passed_have_a_verification_summary() {
    let digest = "9".repeat(64);
    let (results, row) = derived(|_, _| {});
    let value = serde_json::to_value(vsa::of(&results, &row, &digest).expect("a summary")).expect("JSON");
    assert_eq!(value["predicateType"], "https://slsa.dev/verification_summary/v1");
    assert_eq!(value["subject"].as_array().expect("subjects").len(), 1);
    assert_eq!(
        value["predicate"],
        serde_json::json!({
            "verifier": {"id": "urn:modelbench:verify"},
            "timeVerified": sample::FINISHED,
            "resourceUri": "urn:modelbench:backend:vendor-x",
            "policy": {"uri": "urn:modelbench:suite:full", "digest": {"sha256": "c".repeat(64)}},
            "inputAttestations": [{"uri": "row.dsse.json", "digest": {"sha256": digest}}],
            "verificationResult": "PASSED",
            "verifiedLevels": ["MODELBENCH_APPROX"],
            "slsaVersion": "1.1",
        })
    );
    let levels = |label| {
        let row = Predicate { label, ..row.clone() };
        vsa::of(&results, &row, &digest).map(|statement| statement.predicate.verified_levels)
    };
    assert_eq!(levels(Label::Reference), Some(vec!["MODELBENCH_REFERENCE".to_owned()]));
    for label in [Label::Fenced, Label::Partial, Label::NotYet] {
        assert_eq!(levels(label), None, "{label:?}");
    }
}

#[test]
fn a_signed_statement_must_be_the_derived_one() {
    let key = PrivateKey::generate().expect("a key");
    let (results, row) = derived(|_, cases| break_norm(cases));
    let honest = testresult::of(&results, &row);
    let envelope = document::sign(&honest, &key).expect("signed");
    honest.check(&envelope, &key.public_key()).expect("it holds");
    let mut forged = honest.clone();
    forged.predicate.result = TestOutcome::Passed;
    let envelope = document::sign(&forged, &key).expect("signed");
    let error = honest.check(&envelope, &key.public_key()).expect_err("a forgery");
    assert!(matches!(&error, AttestationError::Differs { path, .. } if path == "statement.predicate.result"));
    assert!(error.to_string().contains("\"PASSED\"") && error.to_string().contains("\"FAILED\""), "{error}");
    // A statement with another predicate is named as such.
    let (results, row) = derived(|_, _| {});
    let summary = vsa::of(&results, &row, &"9".repeat(64)).expect("a summary");
    let envelope = document::sign(&summary, &key).expect("signed");
    let error = honest.check(&envelope, &key.public_key()).expect_err("another predicate");
    assert!(error.to_string().contains("predicateType"), "{error}");
    assert_eq!(<InToto<vsa::Summary> as Document>::WHAT, "a verification summary");
}

struct Run {
    dir: TempDir,
    key: PrivateKey,
}

impl Run {
    fn new(change: impl FnOnce(&mut Header, &mut Vec<CaseRecord>)) -> Run {
        let dir = tempfile::tempdir().expect("a folder");
        let key = PrivateKey::generate().expect("a key");
        write_run(dir.path(), &bytes(change), &key).expect("written");
        Run { dir, key }
    }

    fn verified(&self, given: bool) -> Verified {
        let key = self.key.public_key();
        verify_at(self.dir.path(), given.then_some(&key), None, now()).expect("it holds")
    }

    fn row_file(&self) -> Vec<u8> {
        std::fs::read(self.dir.path().join(ROW_FILE)).expect("the row")
    }
}

fn now() -> SystemTime {
    time::parse(sample::FINISHED).expect("a time") + Duration::from_secs(60)
}

/// The same outcomes with other inputs, as an honest second run has them.
fn again(header: &mut Header, cases: &mut [CaseRecord]) {
    sample::answer(header, "7");
    let ran = |case: &&mut CaseRecord| !matches!(case.outcome, Outcome::NotRun { .. });
    cases.iter_mut().filter(ran).for_each(|case| case.output_sha256 = "7".repeat(64));
}

fn attempt(row: &Run, rerun: &Run) -> Result<Vec<u8>, CountersignError> {
    countersign(&row.verified(true), &row.row_file(), &rerun.verified(false), &rerun.key)
}

#[test]
fn who_ran_the_subject_again_can_say_so() {
    let (row, rerun) = (Run::new(|_, _| {}), Run::new(|header, cases| again(header, cases)));
    let envelope = attempt(&row, &rerun).expect("countersigned");
    assert_eq!(envelope, attempt(&row, &rerun).expect("countersigned"), "no time of its own inside");
    let key = rerun.key.public_key();
    let signed = countersign::open(&envelope, &key, &row.verified(true), &row.row_file()).expect("it holds");
    let value = serde_json::to_value(&signed).expect("JSON");
    let digest = hex::encode(Sha256::digest(row.row_file()));
    assert_eq!(value["predicateType"], "urn:modelbench:countersignature:v1");
    assert_eq!(value["subject"][0]["name"], ROW_FILE);
    assert_eq!(value["subject"][0]["digest"]["sha256"], digest.as_str());
    assert_eq!(value["subject"][1]["digest"]["sha256"], "b".repeat(64));
    assert_eq!(
        value["predicate"],
        serde_json::json!({
            "assurance": "reproduced",
            "row": {"sha256": digest, "label": "Approx"},
            "run": {"resultsSha256": rerun.verified(false).results.sha256, "label": "Approx", "caseCount": 7,
                    "agreeing": 7, "differing": []},
            "verifier": key.keyid(),
            "timeVerified": sample::FINISHED,
        })
    );
    let name = file_name(&key.keyid());
    assert!(name.starts_with("countersignature-") && name.ends_with(".dsse.json"), "{name}");
    assert_eq!(Path::new(&name).file_name().expect("a name"), name.as_str(), "no separator");
    assert_eq!(file_name("SHA256:ab/+cdefghijklmnop"), "countersignature-ab_-cdefghijklmn.dsse.json");
}

#[test]
fn nobody_countersigns_ones_own_row_or_anothers_run() {
    let (row, rerun) = (Run::new(|_, _| {}), Run::new(|header, cases| again(header, cases)));
    let file = row.row_file();
    let refusal = |row: &Verified, rerun: &Verified, key: &PrivateKey| {
        countersign(row, &file, rerun, key).expect_err("a refusal")
    };
    let error = refusal(&row.verified(true), &row.verified(true), &row.key);
    assert!(matches!(error, CountersignError::OwnRow { .. }), "{error}");
    let error = refusal(&row.verified(false), &rerun.verified(false), &rerun.key);
    assert!(matches!(error, CountersignError::UnknownSigner), "{error}");
    let third = PrivateKey::generate().expect("a key");
    let error = refusal(&row.verified(true), &rerun.verified(false), &third);
    assert!(matches!(error, CountersignError::OthersRun { .. }), "{error}");
    // The very same record, signed anew: that is no second run.
    let copy = Run::new(|_, _| {});
    let error = refusal(&row.verified(true), &copy.verified(false), &copy.key);
    assert!(matches!(error, CountersignError::SameRun { .. }), "{error}");
    let error = countersign(&row.verified(true), &rerun.row_file(), &rerun.verified(false), &rerun.key)
        .expect_err("another file");
    assert!(matches!(error, CountersignError::RowFile { .. }), "{error}");
}

#[test]
fn a_second_run_about_something_else_does_not_count() {
    let row = Run::new(|_, _| {});
    let changes: [(&str, Change); 7] = [
        ("the label", |_, cases| break_norm(cases)),
        ("the backend", |h, _| h.backend.name = "vendor-y".into()),
        ("the list of subjects' digests", |h, _| h.backend_files[0].sha256 = "9".repeat(64)),
        ("the list of subjects' digests", |h, _| h.kit.sha256 = "9".repeat(64)),
        ("the device", |h, _| h.backend.device.hardware = "Vendor X100".into()),
        ("the digest of the suites", |h, _| h.suite.digest = "9".repeat(64)),
        ("the digest of the model", |h, _| h.model.sha256 = "9".repeat(64)),
    ];
    for (name, change) in changes {
        let error = attempt(&row, &Run::new(change)).expect_err(name);
        assert!(matches!(&error, CountersignError::Differs { what, .. } if *what == name), "{name}: {error}");
    }
}

#[test]
fn cases_that_ended_differently_are_named() {
    // Both are PARTIAL, by different cases.
    let row = Run::new(|_, cases| break_norm(cases));
    let rerun = Run::new(|_, cases| {
        let matmul = cases.iter_mut().find(|case| case.subject == "matmul").expect("the case");
        let crash = Outcome::Crash { cause: "SIGSEGV".into(), op: None, stderr: String::new() };
        *matmul = sample::with_outcome(matmul.clone(), crash);
    });
    let error = attempt(&row, &rerun).expect_err("other outcomes");
    assert!(matches!(error, CountersignError::Outcomes { count: 2, .. }), "{error}");
    for text in [
        "r1/rms_norm/bound/f32/n4097: mismatch (regression) in the row, pass (ok) in the second run",
        "r1/matmul/exact/f32/out257-in192: pass (ok) in the row, crash (regression) in the second run",
    ] {
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn a_countersignature_counts_for_its_row_and_key_only() {
    let (row, rerun) = (Run::new(|_, _| {}), Run::new(|header, cases| again(header, cases)));
    let envelope = attempt(&row, &rerun).expect("countersigned");
    let key = rerun.key.public_key();
    let open =
        |envelope: &[u8], row: &Run| countersign::open(envelope, &key, &row.verified(true), &row.row_file());
    let other = Run::new(|header, _| sample::answer(header, "8"));
    let error = open(&envelope, &other).expect_err("another row");
    assert!(matches!(error, CountersignError::Attestation(AttestationError::Differs { .. })), "{error}");
    let stranger = PrivateKey::generate().expect("a key").public_key();
    let error = countersign::open(&envelope, &stranger, &row.verified(true), &row.row_file());
    assert!(matches!(error, Err(CountersignError::Document(_))));
    let error = countersign::open(&envelope, &row.key.public_key(), &row.verified(true), &row.row_file());
    assert!(matches!(error, Err(CountersignError::OwnRow { .. })));
    // The holder of the key may sign what no tool would.
    let honest = open(&envelope, &row).expect("it holds");
    let changes: [fn(&mut InToto<Reproduction>); 6] = [
        |s| s.predicate.assurance = "hardware-attested".into(),
        |s| s.predicate.row.label = Label::Reference,
        |s| s.predicate.run.agreeing -= 1,
        |s| s.predicate.run.differing.push("r1/x".into()),
        |s| s.predicate.run.results_sha256 = "none".into(),
        |s| s.subject.truncate(1),
    ];
    for (i, change) in changes.into_iter().enumerate() {
        let mut forged = honest.clone();
        change(&mut forged);
        let envelope = document::sign(&forged, &rerun.key).expect("signed");
        assert!(open(&envelope, &row).is_err(), "change {i}");
    }
}
