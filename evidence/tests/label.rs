//! Each rule of the label.

use std::collections::BTreeMap;

use modelbench_contract::{Cap, Class, Op};
use modelbench_evidence::gaps::GapKind;
use modelbench_evidence::gate;
use modelbench_evidence::label::{self, Derived, Label, meets};
use modelbench_evidence::measured::Reading;
use modelbench_evidence::mode::Mode;
use modelbench_evidence::outcome::{NotRun, Outcome, Verdict};
use modelbench_evidence::record::{CaseRecord, Header, Rung};

mod sample;

/// Derives the label of the sample run after a change to header and cases. Pins follow the cases' number and ids unless
/// the change is made in `after`.
fn derived(
    change: impl FnOnce(&mut Header, &mut Vec<CaseRecord>),
    after: impl FnOnce(&mut Header, &mut Vec<CaseRecord>),
) -> Derived {
    let mut cases = sample::cases();
    let mut header = sample::header(&cases);
    change(&mut header, &mut cases);
    header.suite = sample::header(&cases).suite;
    after(&mut header, &mut cases);
    let measured = sample::measured(&header, &cases);
    label::derive(&header, &cases, &gate::decide(&header, &cases, Some(&measured)))
}

fn same(_: &mut Header, _: &mut Vec<CaseRecord>) {}

/// The only gap.
#[track_caller]
fn only_gap(derived: &Derived, kind: GapKind, id: &str, detail: &str) {
    let [gap] = derived.gaps.as_slice() else { panic!("one gap: {:?}", derived.gaps) };
    assert_eq!((gap.kind, gap.id.as_str()), (kind, id));
    assert!(gap.detail.contains(detail), "{detail:?} is not in {:?}", gap.detail);
}

fn reference(header: &mut Header, cases: &mut Vec<CaseRecord>) {
    header.backend.class = Class::Reference;
    header.require_non_reference = false;
    for case in cases {
        case.quality.bits_differ = 0;
    }
}

fn mismatch() -> Outcome {
    Outcome::Mismatch { detail: "wrong".into() }
}

#[test]
fn an_honest_run_is_approx_without_a_gap() {
    let derived = derived(same, same);
    assert_eq!((derived.label, derived.gaps.len()), (Label::Approx, 0));
    assert_eq!(derived.caps_proven, [Cap::UploadDtype]);
    assert_eq!(derived.ops_proven, [Op::Matmul, Op::RmsNorm]);
    assert_eq!(derived.failed_cases(), 0);
    let r1 = &derived.rungs[1];
    assert_eq!((r1.rung, r1.title, r1.total, r1.applicable, r1.passed), (Rung::R1, "ops", 3, 3, 3));
    assert_eq!(r1.worst, Some((0.406_25, "r1/matmul/bound/f32/out33-in193".into())));
    let r4 = &derived.rungs[4];
    assert_eq!((r4.total, r4.applicable), (1, 0));
    // R4 does not apply, R5 has no case at all: what is reached ends at R3.
    assert_eq!(derived.highest_rung, Some(Rung::R3));
}

#[test]
fn equal_bits_of_a_reference_backend_are_reference() {
    let honest = derived(reference, same);
    assert_eq!((honest.label, honest.gaps.len()), (Label::Reference, 0));
    let differs = derived(reference, |_, cases| cases[1].quality.bits_differ = 1);
    assert_eq!(differs.label, Label::Partial);
    only_gap(
        &differs,
        GapKind::Bits,
        "cpu-ref",
        "bits differ from cpu-ref in 1 cases, first r1/matmul/exact",
    );
    let silent =
        derived(reference, |_, cases| cases.iter_mut().for_each(|case| case.quality.bits_compared = 0));
    assert_eq!(silent.label, Label::Partial);
    only_gap(&silent, GapKind::Bits, "cpu-ref", "no element was compared");
}

#[test]
fn a_filter_is_not_yet() {
    let derived = derived(same, |header, _| header.filter = Some("r1/".into()));
    assert_eq!(derived.label, Label::NotYet);
    only_gap(&derived, GapKind::Filter, "r1/", "no row");
}

#[test]
fn a_required_gate_that_failed_is_not_yet() {
    let equal_bits = |_: &mut Header, cases: &mut Vec<CaseRecord>| {
        cases.iter_mut().for_each(|case| case.quality.bits_differ = 0);
    };
    let required = derived(same, equal_bits);
    assert_eq!(required.label, Label::NotYet);
    assert!(required.gaps.iter().all(|gap| gap.kind == GapKind::Gate) && !required.gaps.is_empty());
    let in_ci = |header: &mut Header, _: &mut Vec<CaseRecord>| {
        (header.mode, header.require_non_reference) = (Mode::Ci, false);
    };
    let free = derived(in_ci, equal_bits);
    assert_eq!(free.label, Label::Partial);
    only_gap(&free, GapKind::Gate, "bits", "indistinguishable");
    // A Reference backend fails the gate where it is asked for, and only there.
    let asked = derived(reference, |header, _| header.require_non_reference = true);
    assert_eq!(asked.label, Label::NotYet);
}

#[test]
fn missing_extra_and_exchanged_cases_are_incomplete() {
    let missing = derived(same, |_, cases| drop(cases.remove(3)));
    assert_eq!(missing.label, Label::Partial);
    only_gap(&missing, GapKind::Incomplete, "full", "6 of 7 pinned cases");
    let extra = derived(same, |_, cases| cases.push(sample::case("r1/rope/bound/n1", "rope")));
    only_gap(&extra, GapKind::Incomplete, "full", "8 of 7 pinned cases");
    let exchanged = derived(same, |_, cases| cases[3].id = "r1/rms_norm/bound/f32/n4098".into());
    only_gap(&exchanged, GapKind::Incomplete, "full", "ids differ");
    assert_eq!(exchanged.label, Label::Partial);
    let reordered = derived(same, |_, cases| cases.reverse());
    assert_eq!(reordered.label, Label::Approx, "the order of lines means nothing");
}

#[test]
fn foreign_suites_and_small_sets_are_partial() {
    let foreign = derived(same, |header, _| header.suite.is_kit = false);
    assert_eq!(foreign.label, Label::Partial);
    only_gap(&foreign, GapKind::Suite, &"c".repeat(64), "not the ones compiled into the kit");
    let smoke = derived(same, |header, _| {
        header.suite.set = "smoke".into();
        header.suite.full_cases = 4312;
    });
    assert_eq!(smoke.label, Label::Partial);
    only_gap(&smoke, GapKind::Set, "smoke", "smoke covers 7 of 4312 mandatory cases");
}

#[test]
fn a_failed_case_is_a_gap_by_group() {
    let outcomes = [
        (mismatch(), GapKind::Mismatch),
        (Outcome::Error { detail: String::new() }, GapKind::Error),
        (Outcome::Unsupported { detail: String::new() }, GapKind::Unsupported),
        (Outcome::Delegated { ops: vec![] }, GapKind::Delegated),
        (Outcome::Crash { cause: "SIGSEGV".into(), op: None, stderr: String::new() }, GapKind::Crash),
        (Outcome::Timeout { op: None, after: "1 s".into(), stderr: String::new() }, GapKind::Timeout),
        (Outcome::Mistrusted { detail: String::new() }, GapKind::Mistrusted),
        (Outcome::NotRun { why: NotRun::Kit { reason: String::new() } }, GapKind::NotRun),
    ];
    for (outcome, kind) in outcomes {
        let name = outcome.as_str();
        let failed = derived(same, |_, cases| cases[3] = sample::with_outcome(cases[3].clone(), outcome));
        assert_eq!(failed.label, Label::Partial, "{name}");
        only_gap(
            &failed,
            kind,
            "r1/rms_norm/bound",
            "rms_norm: 1 of 1 cases, first r1/rms_norm/bound/f32/n4097",
        );
        assert_eq!(failed.ops_proven, [Op::Matmul], "{name}");
        assert_eq!((failed.failed_cases(), failed.highest_rung), (1, Some(Rung::R0)), "{name}");
        let r1 = &failed.rungs[1];
        let parts = [r1.passed, r1.failed, r1.unsupported, r1.delegated, r1.not_run, r1.expected, r1.waived];
        assert_eq!(parts.iter().sum::<u64>(), r1.applicable, "{name}");
    }
}

#[test]
fn five_hundred_failures_of_a_group_are_one_gap() {
    let derived = derived(
        |_, cases| {
            for n in 0..500 {
                let id = format!("r1/swiglu/bound/n{n}");
                cases.push(sample::with_outcome(sample::case(&id, "swiglu"), mismatch()));
            }
            cases.push(sample::case("r1/swiglu/bound/n500", "swiglu"));
        },
        same,
    );
    only_gap(
        &derived,
        GapKind::Mismatch,
        "r1/swiglu/bound",
        "swiglu: 500 of 501 cases, first r1/swiglu/bound/n0",
    );
}

#[test]
fn any_delegated_op_is_partial_even_in_a_passed_case() {
    let derived = derived(same, |_, cases| {
        cases[4].delegated = BTreeMap::from([("rope".to_owned(), 3), ("add_bias".into(), 1)])
    });
    assert_eq!(derived.label, Label::Partial);
    let ids: Vec<&str> = derived.gaps.iter().map(|gap| gap.id.as_str()).collect();
    assert_eq!(ids, ["add_bias", "rope"]);
    assert!(derived.gaps[1].detail.contains("3 calls in 1 cases on cpu-ref, first r2/forward/prefill/kjv"));
}

#[test]
fn an_advertised_cap_needs_a_proof() {
    let unproven = derived(|header, _| header.backend.caps.extend([Cap::Async]), same);
    assert_eq!(unproven.label, Label::Partial);
    only_gap(&unproven, GapKind::Cap, "Async", "advertised, not proven");
    assert_eq!(unproven.caps_unproven, [Cap::Async]);
    let lie = derived(same, |_, cases| cases[5] = sample::with_outcome(cases[5].clone(), mismatch()));
    assert_eq!((lie.label, lie.caps_proven.len()), (Label::Partial, 0));
    assert!(
        lie.gaps.iter().any(|gap| gap.kind == GapKind::Cap && gap.detail.contains("1 of 1 proofs failed"))
    );
}

#[test]
fn partial_needs_an_op_proven_natively() {
    let fail_all = |_: &mut Header, cases: &mut Vec<CaseRecord>| {
        for case in cases.iter_mut().filter(|case| case.rung == Rung::R1) {
            *case = sample::with_outcome(case.clone(), mismatch());
        }
    };
    assert_eq!(derived(same, fail_all).label, Label::NotYet);
    let one = |_: &mut Header, cases: &mut Vec<CaseRecord>| {
        cases[1] = sample::with_outcome(cases[1].clone(), mismatch())
    };
    assert_eq!(
        derived(same, one).ops_proven,
        [Op::RmsNorm],
        "one failed case disproves matmul, not rms_norm"
    );
    let idle = derived(same, |_, cases| cases[3].native.clear());
    assert_eq!(idle.ops_proven, [Op::Matmul], "a pass without a call of the op proves nothing about it");
    let about_no_op = |_: &mut Header, cases: &mut Vec<CaseRecord>| {
        cases.push(sample::case("r1/metamorphic/repeats/n1", "repeats"));
    };
    assert_eq!(derived(about_no_op, same).ops_proven, [Op::Matmul, Op::RmsNorm]);
    let empty = derived(|_, cases| cases.clear(), same);
    assert_eq!(empty.label, Label::NotYet);
}

#[test]
fn a_label_meets_what_is_required() {
    use Label::{Approx, Fenced, NotYet, Partial, Reference};
    // Columns: the labels in the order of `Label::ALL`.
    let table = [
        (Some(Reference), [true, false, false, false, false]),
        (Some(Approx), [true, true, true, false, false]),
        (Some(Fenced), [true, true, true, false, false]),
        (Some(Partial), [true, true, true, true, false]),
        (Some(NotYet), [true, true, true, true, true]),
        (None, [true, true, true, false, false]),
    ];
    for (require, expected) in table {
        assert_eq!(Label::ALL.map(|label| meets(label, require, "full", 3)), expected, "{require:?}");
    }
    assert!(meets(Partial, None, "smoke", 0));
    assert!(!meets(Partial, None, "smoke", 1));
    assert!(!meets(NotYet, None, "smoke", 0));
    assert!(meets(Partial, Some(Partial), "smoke", 1), "asked for on the first day");
}

fn ci(header: &mut Header, _: &mut Vec<CaseRecord>) {
    header.mode = Mode::Ci;
    header.challenge = None;
}

#[test]
fn a_row_of_mode_ci_says_partial_at_most() {
    let run = derived(ci, same);
    assert_eq!((run.label, run.earned, run.accepted), (Label::Partial, Label::Approx, Label::Approx));
    only_gap(&run, GapKind::Mode, "ci", "the run is worth Approx");
    let reference = derived(
        |header, cases| {
            ci(header, cases);
            reference(header, cases);
        },
        same,
    );
    assert_eq!((reference.label, reference.earned), (Label::Partial, Label::Reference));
    // A label that is no more than PARTIAL anyway needs no excuse.
    let failed = derived(ci, |_, cases| cases[3] = sample::with_outcome(cases[3].clone(), mismatch()));
    assert_eq!(
        (failed.label, failed.earned, failed.accepted),
        (Label::Partial, Label::Partial, Label::Partial)
    );
    assert!(failed.gaps.iter().all(|gap| gap.kind != GapKind::Mode));
}

#[test]
fn a_certificate_needs_a_challenge_a_clean_environment_and_the_gate() {
    let unchallenged = derived(|header, _| header.challenge = None, same);
    assert_eq!(unchallenged.label, Label::Partial);
    only_gap(&unchallenged, GapKind::Certify, "challenge", "no challenge");
    let preloaded = |header: &mut Header, _: &mut Vec<CaseRecord>| {
        header.interference = BTreeMap::from([("LD_PRELOAD".to_owned(), "libx.so".to_owned())]);
    };
    only_gap(&derived(preloaded, same), GapKind::Certify, "LD_PRELOAD", "libx.so");
    let in_ci = derived(
        |header, cases| {
            ci(header, cases);
            preloaded(header, cases);
        },
        same,
    );
    assert_eq!(
        (in_ci.earned, in_ci.label),
        (Label::Approx, Label::Partial),
        "recorded, and refuses certify only"
    );
    let mut cases = sample::cases();
    cases.iter_mut().for_each(|case| case.quality.bits_compared = 0);
    cases.iter_mut().for_each(|case| case.quality.bits_differ = 0);
    let mut header = sample::header(&cases);
    header.require_non_reference = false;
    let gate = gate::decide(&header, &cases, Some(&sample::measured(&header, &cases)));
    let ungated = label::derive(&header, &cases, &gate);
    assert_eq!(ungated.label, Label::Partial);
    only_gap(&ungated, GapKind::Certify, "non-reference", "bits was not measured");
    // An accelerator of class Reference cannot pass the gate, but it must have been seen to work.
    let mut cases = sample::cases();
    let mut header = sample::header(&cases);
    reference(&mut header, &mut cases);
    let mut measured = sample::measured(&header, &cases);
    measured.load = Reading::NotMeasured("no clock".into());
    measured.counters = Reading::NotMeasured("no driver".into());
    let unseen = label::derive(&header, &cases, &gate::decide(&header, &cases, Some(&measured)));
    assert_eq!(unseen.label, Label::Partial);
    only_gap(&unseen, GapKind::Certify, "place", "nothing measured shows that it worked");
    // A gate that nobody required and that passed is as good.
    assert_eq!(derived(|header, _| header.require_non_reference = false, same).label, Label::Approx);
}

/// A case with the verdict that a list gives it.
fn judged(case: &CaseRecord, outcome: Outcome, verdict: Verdict) -> CaseRecord {
    CaseRecord { outcome, verdict, ..case.clone() }
}

#[test]
fn known_failures_excuse_the_pipeline_and_not_the_label() {
    for (verdict, kind) in
        [(Verdict::ExpectedFailure, GapKind::ExpectedFailure), (Verdict::Waived, GapKind::Waived)]
    {
        let change =
            |_: &mut Header, cases: &mut Vec<CaseRecord>| cases[3] = judged(&cases[3], mismatch(), verdict);
        let run = derived(ci, change);
        assert_eq!((run.label, run.earned, run.accepted), (Label::Partial, Label::Partial, Label::Approx));
        only_gap(&run, kind, "r1/rms_norm/bound", "rms_norm: 1 of 1 cases");
        assert_eq!((run.failed_cases(), run.rungs[1].expected + run.rungs[1].waived), (0, 1));
        assert_eq!(run.ops_proven, [Op::Matmul], "an excuse proves nothing");
        assert_eq!(run.highest_rung, Some(Rung::R0));
        let certified = derived(same, change);
        assert_eq!((certified.label, certified.accepted), (Label::Partial, Label::Partial));
    }
    let stale = derived(ci, |_, cases| cases[3] = judged(&cases[3], Outcome::Pass, Verdict::UnexpectedPass));
    assert_eq!((stale.accepted, stale.failed_cases()), (Label::Partial, 1));
    only_gap(&stale, GapKind::UnexpectedPass, "r1/rms_norm/bound", "1 of 1 cases");
}

#[test]
fn a_pass_on_a_second_try_is_shown_and_is_no_clean_pass() {
    let run = derived(ci, |_, cases| cases[3].tries = vec!["timeout".into()]);
    assert_eq!((run.earned, run.accepted, run.failed_cases()), (Label::Partial, Label::Approx, 0));
    only_gap(&run, GapKind::Retried, "r1/rms_norm/bound", "rms_norm: 1 of 1 cases");
}

#[test]
fn every_label_has_its_name_and_its_worth() {
    let names = Label::ALL.map(Label::as_str);
    assert_eq!(names, ["Reference", "Approx", "FENCED", "PARTIAL", "not-yet"]);
    assert_eq!(Label::ALL.map(Label::is_more_than_partial), [true, true, true, false, false]);
}
