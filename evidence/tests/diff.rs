//! What changed between two records, and how a record is found.

use modelbench_contract::Cap;
use modelbench_evidence::diff::{Diff, RatioChange, diff};
use modelbench_evidence::keys::PrivateKey;
use modelbench_evidence::load::{self, LoadError};
use modelbench_evidence::outcome::{Outcome, Verdict};
use modelbench_evidence::publish::{BUNDLE_FILE, ROW_FILE, write_run};
use modelbench_evidence::record::{CaseRecord, Header};
use modelbench_evidence::results::{RESULTS_FILE, Results};

mod sample;

const MATMUL: &str = "r1/matmul/bound/f32/out33-in193";
const NORM: &str = "r1/rms_norm/bound/f32/n4097";

fn results(change: impl FnOnce(&mut Header, &mut Vec<CaseRecord>)) -> Results {
    let mut cases = sample::cases();
    let mut header = sample::header(&cases);
    change(&mut header, &mut cases);
    Results::parse(&sample::bytes(&header, &cases)).expect("a record")
}

fn against_honest(change: impl FnOnce(&mut Header, &mut Vec<CaseRecord>)) -> Diff {
    diff(&results(|_, _| {}), &results(change)).expect("a diff")
}

fn case<'a>(cases: &'a mut [CaseRecord], id: &str) -> &'a mut CaseRecord {
    cases.iter_mut().find(|case| case.id == id).expect("the case")
}

fn paths(found: &Diff) -> Vec<&str> {
    let mut paths: Vec<&str> = found.header.iter().map(|change| change.path.as_str()).collect();
    paths.sort_unstable();
    paths
}

#[test]
fn runs_that_differ_in_time_alone_do_not_differ() {
    let found = against_honest(|header, cases| {
        header.started = "2026-11-30T10:12:45Z".into();
        cases.iter_mut().for_each(|case| case.ms += 7);
    });
    let nothing = Diff {
        same_inputs: true,
        claims: vec![],
        caps_added: vec![],
        caps_removed: vec![],
        header: vec![],
        only_first: vec![],
        only_second: vec![],
        outcomes: vec![],
        bits: vec![],
        ratios: vec![],
    };
    assert_eq!(found, nothing);
    assert!(found.same_outcomes());
}

#[test]
fn a_case_that_broke_changes_outcome_and_label() {
    let found = against_honest(|_, cases| {
        let norm = case(cases, NORM);
        *norm = sample::with_outcome(norm.clone(), Outcome::Mismatch { detail: "element 3".into() });
    });
    assert!(!found.same_outcomes());
    let [change] = found.outcomes.as_slice() else { panic!("{:?}", found.outcomes) };
    assert_eq!((change.id.as_str(), &change.before), (NORM, &Outcome::Pass));
    assert_eq!((change.before_verdict, change.after_verdict), (Verdict::Ok, Verdict::Regression));
    let claims: Vec<(&str, &str, &str)> =
        found.claims.iter().map(|c| (c.path.as_str(), c.before.as_str(), c.after.as_str())).collect();
    assert_eq!(claims[0], ("label", "Approx", "PARTIAL"));
    assert!(claims.iter().any(|claim| claim.0 == "highestRung"), "{claims:?}");
}

#[test]
fn cases_of_one_side_are_named() {
    let found = against_honest(|_, cases| {
        cases.retain(|case| case.id != NORM);
        cases.push(sample::case("r1/rms_norm/bound/f32/n2", "rms_norm"));
    });
    assert_eq!(
        (found.only_first.as_slice(), found.only_second.as_slice()),
        ([NORM.to_owned()].as_slice(), ["r1/rms_norm/bound/f32/n2".to_owned()].as_slice())
    );
    assert!(!found.same_outcomes());
}

#[test]
fn bits_and_errors_are_told_apart_from_outcomes_and_sorted_by_factor() {
    let found = against_honest(|_, cases| {
        case(cases, MATMUL).output_sha256 = "f".repeat(64);
        case(cases, MATMUL).quality.worst = Some(0.8125);
        (case(cases, NORM).quality.worst, case(cases, NORM).quality.p99) = (Some(0.101_562_5), None);
        let forward = case(cases, "r2/forward/prefill/kjv");
        (forward.quality.worst, forward.quality.p99) = (None, None);
    });
    assert!(found.same_outcomes());
    assert_eq!(found.bits, [MATMUL]);
    let change = |id: &str, before, after, factor| RatioChange { id: id.into(), before, after, factor };
    let expected = [
        change("r2/forward/prefill/kjv", Some(0.75), None, None),
        change(NORM, Some(0.406_25), Some(0.101_562_5), Some(4.0)),
        change(MATMUL, Some(0.406_25), Some(0.8125), Some(2.0)),
    ];
    assert_eq!(found.ratios, expected);
}

#[test]
fn what_the_headers_say_is_compared_field_by_field() {
    let found = against_honest(|header, _| {
        sample::answer(header, "1");
        header.backend.tier = "x300".into();
        header.backend.device.driver = "vx 6".into();
        header.backend.numerics.flush_to_zero = true;
        header.environment.insert("os".into(), "freebsd".into());
        header.environment.insert("new".into(), "1".into());
        header.backend.caps.insert(Cap::Async);
        header.backend.caps.remove(&Cap::UploadDtype);
    });
    assert_eq!(
        paths(&found),
        [
            "backend.device.driver",
            "backend.numerics.flush_to_zero",
            "backend.tier",
            "challenge.nonce",
            "environment.new",
            "environment.os",
            "seed"
        ]
    );
    let driver = found.header.iter().find(|c| c.path == "backend.device.driver").expect("it");
    assert_eq!((driver.before.as_str(), driver.after.as_str()), ("\"vx 5.2\"", "\"vx 6\""));
    assert_eq!((found.caps_added, found.caps_removed), (vec![Cap::Async], vec![Cap::UploadDtype]));
    assert!(!found.same_inputs);
}

#[test]
fn a_record_is_found_by_any_name_of_its_run() {
    let dir = tempfile::tempdir().expect("a folder");
    let cases = sample::cases();
    let bytes = sample::bytes(&sample::header(&cases), &cases);
    write_run(dir.path(), &bytes, &PrivateKey::generate().expect("a key")).expect("written");
    let expected = Results::parse(&bytes).expect("a record");
    for name in ["", RESULTS_FILE, ROW_FILE, BUNDLE_FILE] {
        assert_eq!(load::results(&dir.path().join(name)).expect("a record"), expected, "{name}");
    }
    let error = load::results(&dir.path().join("absent")).expect_err("nothing there");
    assert!(matches!(error, LoadError::Read { .. }), "{error}");
    // A row beside another record, which is whole in itself.
    let mut header = sample::header(&cases);
    sample::answer(&mut header, "2");
    std::fs::write(dir.path().join(RESULTS_FILE), sample::bytes(&header, &cases)).expect("written");
    assert!(load::results(dir.path()).is_ok());
    for name in [ROW_FILE, BUNDLE_FILE] {
        let error = load::results(&dir.path().join(name)).expect_err("another record");
        assert!(matches!(error, LoadError::OtherRecord { .. }), "{error}");
    }
    std::fs::write(dir.path().join(RESULTS_FILE), &bytes[..bytes.len() - 2]).expect("written");
    let error = load::results(dir.path()).expect_err("cut");
    assert!(matches!(error, LoadError::Results { .. }), "{error}");
}
