//! The label: what a record of a run earns. Derived, never an input.

use std::collections::BTreeMap;

use modelbench_contract::{Cap, Class, Op};
use serde::{Deserialize, Serialize};

use crate::gaps::{self, Gap};
use crate::gate::{Gate, GateVerdict};
use crate::mode::Mode;
use crate::outcome::{Outcome, Verdict};
use crate::record::{CaseRecord, Header, Rung};
use crate::record_checks::op_named;

/// What a backend has earned on a set, a model and a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Label {
    /// Declared `Reference`, every applicable case bit-equal, no gap.
    Reference,
    /// Declared `Approx`, every applicable case ok, no op delegated, every advertised cap proven.
    Approx,
    /// Everything inside a fence declared beforehand is ok, everything outside is refused cleanly. Never derived in
    /// this version, because a record cannot carry a fence yet.
    #[serde(rename = "FENCED")]
    Fenced,
    /// At least one op proven natively; the gaps are listed.
    #[serde(rename = "PARTIAL")]
    Partial,
    /// Nothing is proven.
    #[serde(rename = "not-yet")]
    NotYet,
}

impl Label {
    /// Every label, the strongest first.
    pub const ALL: [Label; 5] =
        [Label::Reference, Label::Approx, Label::Fenced, Label::Partial, Label::NotYet];

    /// True for the labels that a router counts as passed.
    pub fn is_more_than_partial(self) -> bool {
        matches!(self, Label::Reference | Label::Approx | Label::Fenced)
    }

    /// The name used in rows and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Label::Reference => "Reference",
            Label::Approx => "Approx",
            Label::Fenced => "FENCED",
            Label::Partial => "PARTIAL",
            Label::NotYet => "not-yet",
        }
    }
}

/// Counts of a rung. `passed + failed + unsupported + delegated + not_run + expected + waived = applicable`.
#[derive(Debug, Clone, PartialEq)]
pub struct RungCount {
    /// The rung.
    pub rung: Rung,
    /// What it shows, in one word.
    pub title: &'static str,
    /// Cases recorded.
    pub total: u64,
    /// Cases that count: all but those that prove a cap that is not advertised.
    pub applicable: u64,
    /// Verdict ok.
    pub passed: u64,
    /// Mismatch, error, crash, timeout or mistrusted; or a pass against the list of known failures.
    pub failed: u64,
    /// The backend lacks what the case needs.
    pub unsupported: u64,
    /// The host helped.
    pub delegated: u64,
    /// Did not run.
    pub not_run: u64,
    /// Failed as the list of known failures says.
    pub expected: u64,
    /// Failed and are waived.
    pub waived: u64,
    /// Largest error divided by its bound, with the case, over all cases that have a bound.
    pub worst: Option<(f64, String)>,
}

/// All that follows from a record and its gate.
#[derive(Debug, Clone, PartialEq)]
pub struct Derived {
    /// The label of the row: what was earned, but not more than the mode of the run allows.
    pub label: Label,
    /// What the run earned, whatever its mode.
    pub earned: Label,
    /// What the run is worth to the pipeline that made it: in mode `ci` what it would have earned without the failures
    /// it was told of beforehand, in mode `certify` the label. Decides the exit code and nothing else.
    pub accepted: Label,
    /// Everything that keeps the label down; empty for `Reference` and `Approx`.
    pub gaps: Vec<Gap>,
    /// One entry per rung, lowest first.
    pub rungs: Vec<RungCount>,
    /// The highest rung reached without a break: every rung up to it has cases, and every applicable one is ok. A rung
    /// whose cases are all not applicable neither breaks nor is reached.
    pub highest_rung: Option<Rung>,
    /// Advertised caps with at least one proof, all of them ok.
    pub caps_proven: Vec<Cap>,
    /// The other advertised caps.
    pub caps_unproven: Vec<Cap>,
    /// Ops with at least one applicable R1 case, all of them ok and run by the backend itself.
    pub ops_proven: Vec<Op>,
}

impl Derived {
    /// Number of applicable cases that are neither ok nor excused beforehand.
    pub fn failed_cases(&self) -> u64 {
        self.rungs.iter().map(|rung| rung.applicable - rung.passed - rung.expected - rung.waived).sum()
    }
}

/// Derives label, counts and gaps. The label rests on the gaps alone: without a gap it is that of the declared class,
/// with one it is `PARTIAL` if at least one op is proven; a filter, or a required gate that failed, makes it `not-yet`.
/// In mode `ci` it is `PARTIAL` at most.
pub fn derive(header: &Header, cases: &[CaseRecord], gate: &Gate) -> Derived {
    let rungs: Vec<RungCount> = Rung::ALL.iter().map(|rung| count(*rung, cases)).collect();
    let (caps_proven, caps_unproven, cap_gaps) = gaps::of_caps(header, cases);
    let ops_proven = ops_proven(cases);
    let mut gaps = gaps::of_run(header, cases, gate);
    gaps.extend(gaps::of_certify(header, gate));
    gaps.extend(gaps::of_bits(header, cases));
    gaps.extend(cap_gaps);
    gaps.extend(gaps::of_delegation(cases));
    gaps.extend(gaps::of_cases(cases));
    let refused = header.filter.is_some() || (gate.required && gate.verdict == GateVerdict::Failed);
    let nothing = refused || ops_proven.is_empty();
    let label_of = |whole: bool| match (nothing, whole, header.backend.class) {
        (true, _, _) => Label::NotYet,
        (false, false, _) => Label::Partial,
        (false, true, Class::Reference) => Label::Reference,
        (false, true, Class::Approx) => Label::Approx,
    };
    let earned = label_of(gaps.is_empty());
    let excused = label_of(gaps.iter().all(|gap| gap.kind.is_excused()));
    let (label, accepted) = match header.mode {
        Mode::Certify => (earned, earned),
        Mode::Ci if earned.is_more_than_partial() => {
            gaps.push(gaps::of_mode(earned.as_str()));
            (Label::Partial, excused)
        }
        Mode::Ci => (earned, excused),
    };
    let highest_rung = highest(&rungs);
    Derived { label, earned, accepted, gaps, rungs, highest_rung, caps_proven, caps_unproven, ops_proven }
}

fn count(rung: Rung, cases: &[CaseRecord]) -> RungCount {
    let mut sum = RungCount {
        rung,
        title: rung.title(),
        total: 0,
        applicable: 0,
        passed: 0,
        failed: 0,
        unsupported: 0,
        delegated: 0,
        not_run: 0,
        expected: 0,
        waived: 0,
        worst: None,
    };
    for case in cases.iter().filter(|case| case.rung == rung) {
        sum.total += 1;
        if let Some(worst) = case.quality.worst
            && sum.worst.as_ref().is_none_or(|(largest, _)| worst > *largest)
        {
            sum.worst = Some((worst, case.id.clone()));
        }
        if case.verdict == Verdict::NotApplicable {
            continue;
        }
        sum.applicable += 1;
        let counter = match (&case.verdict, &case.outcome) {
            (Verdict::Ok, _) => &mut sum.passed,
            (Verdict::ExpectedFailure, _) => &mut sum.expected,
            (Verdict::Waived, _) => &mut sum.waived,
            (_, Outcome::Unsupported { .. }) => &mut sum.unsupported,
            (_, Outcome::Delegated { .. }) => &mut sum.delegated,
            (_, Outcome::NotRun { .. }) => &mut sum.not_run,
            _ => &mut sum.failed,
        };
        *counter += 1;
    }
    sum
}

fn highest(rungs: &[RungCount]) -> Option<Rung> {
    let unbroken = rungs.iter().take_while(|rung| rung.total > 0 && rung.passed == rung.applicable);
    unbroken.filter(|rung| rung.applicable > 0).last().map(|rung| rung.rung)
}

fn ops_proven(cases: &[CaseRecord]) -> Vec<Op> {
    let mut subjects = BTreeMap::<Op, bool>::new();
    for case in cases.iter().filter(|case| case.rung == Rung::R1 && case.verdict != Verdict::NotApplicable) {
        if let Some(op) = op_named(&case.subject) {
            let native = case.native.get(op.as_str()).is_some_and(|count| *count > 0);
            let proven = case.verdict == Verdict::Ok && native && case.delegated.is_empty();
            *subjects.entry(op).or_insert(true) &= proven;
        }
    }
    subjects.into_iter().filter(|(_, proven)| *proven).map(|(op, _)| op).collect()
}

/// True if a label is what exit 0 needs.
///
/// `require` is the value of `-require`; without it the set decides: `smoke` needs `PARTIAL` and no failed case,
/// everything else `Approx` or better. `Approx` and `FENCED` are met by `Reference`, `Approx` and `FENCED` (passed
/// within the fence), `PARTIAL` by everything but `not-yet`, `not-yet` by everything.
pub fn meets(label: Label, require: Option<Label>, set: &str, failed_cases: u64) -> bool {
    match require {
        Some(Label::Reference) => label == Label::Reference,
        Some(Label::Approx | Label::Fenced) => label.is_more_than_partial(),
        Some(Label::Partial) => label != Label::NotYet,
        Some(Label::NotYet) => true,
        None if set == "smoke" => label != Label::NotYet && failed_cases == 0,
        None => meets(label, Some(Label::Approx), set, failed_cases),
    }
}
