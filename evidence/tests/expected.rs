//! What a list of known failures makes of an outcome.

use std::collections::BTreeSet;

use modelbench_contract::Cap;
use modelbench_evidence::expected::{Expectation, Rules};
use modelbench_evidence::outcome::{NotRun, Outcome, Verdict};

fn entry(cases: &str, outcome: &str) -> Expectation {
    Expectation {
        cases: cases.into(),
        outcome: outcome.into(),
        reason: "the tail of K is not read".into(),
        issue: "https://example.org/issues/1".into(),
    }
}

fn mismatch() -> Outcome {
    Outcome::Mismatch { detail: String::new() }
}

#[test]
fn every_outcome_has_its_verdict() {
    let caps = BTreeSet::from([Cap::Async]);
    let listed = [entry("r1/matmul/**", "mismatch"), entry("r1/rope/*/n1", "error")];
    let rules = Rules::new(&caps, &listed, ["r6/**"]).expect("rules");
    let error = || Outcome::Error { detail: String::new() };
    let skipped = |cap| Outcome::NotRun { why: NotRun::CapNotAdvertised { cap } };
    let kit = || Outcome::NotRun { why: NotRun::Kit { reason: String::new() } };
    let table = [
        ("r1/swiglu/a", Outcome::Pass, Verdict::Ok),
        ("r1/swiglu/a", mismatch(), Verdict::Regression),
        ("r1/matmul/exact/f32", mismatch(), Verdict::ExpectedFailure),
        ("r1/matmul/exact/f32", error(), Verdict::Regression),
        ("r1/matmul/exact/f32", Outcome::Pass, Verdict::UnexpectedPass),
        ("r1/rope/any/n1", error(), Verdict::ExpectedFailure),
        ("r1/rope/any/more/n1", error(), Verdict::Regression),
        ("r6/leak/kv", mismatch(), Verdict::Waived),
        ("r6/leak/kv", Outcome::Pass, Verdict::Ok),
        ("r6/leak/kv", kit(), Verdict::Regression),
        ("r1/matmul/exact/f32", kit(), Verdict::Regression),
        ("r3/cap", skipped(Cap::Collective), Verdict::NotApplicable),
        ("r3/cap", skipped(Cap::Async), Verdict::Regression),
    ];
    for (id, outcome, verdict) in table {
        assert_eq!(rules.verdict(id, &outcome), verdict, "{id} {}", outcome.as_str());
    }
}

#[test]
fn a_list_needs_patterns_failures_reasons_and_issues() {
    let change = |change: fn(&mut Expectation)| {
        let mut entry = entry("r1/**", "crash");
        change(&mut entry);
        entry.check().expect_err("a refusal").to_string()
    };
    assert!(entry("r1/**", "crash").check().is_ok());
    assert!(change(|e| e.cases = "r1/{".into()).starts_with("cases is \"r1/{\""));
    for outcome in ["pass", "failed", ""] {
        let mut wrong = entry("r1/**", "crash");
        wrong.outcome = outcome.into();
        let error = wrong.check().expect_err("a refusal").to_string();
        assert!(error.contains("one of mismatch, error, unsupported"), "{error}");
    }
    assert!(change(|e| e.reason = " ".into()).contains("a sentence"));
    assert!(change(|e| e.issue = "http://example.org".into()).contains("https://"));
    assert!(change(|e| e.issue = "https://a b".into()).contains("https://"));
    let bad = [entry("r1/{", "crash")];
    assert!(Rules::new(&BTreeSet::new(), &bad, []).is_err());
    assert!(Rules::new(&BTreeSet::new(), &[], ["r1/{"]).is_err());
}
