//! Gaps: named things that do not work, or that keep a label down. Grouped, so that people can read them.

use std::collections::BTreeMap;

use modelbench_contract::{Cap, Class};
use serde::{Deserialize, Serialize};

use crate::gate::{self, Gate, GateVerdict, Witness, WitnessKind, WitnessVerdict};
use crate::mode::Mode;
use crate::outcome::{Outcome, Verdict};
use crate::record::{CaseRecord, Header};
use crate::results::ids_digest;

/// What kind of gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GapKind {
    /// The run had a case filter.
    Filter,
    /// The non-reference gate speaks against the claim.
    Gate,
    /// The cases seen are not the cases that the set pins.
    Incomplete,
    /// The suites are not the kit's own.
    Suite,
    /// The set is less than `full`.
    Set,
    /// A backend of class `Reference` does not have cpu-ref's bits, or nothing was compared.
    Bits,
    /// A cap is advertised and not proven.
    Cap,
    /// The host ran an op on cpu-ref.
    DelegatedOp,
    /// Cases with wrong answers.
    Mismatch,
    /// Cases that ended with an unexpected error.
    Error,
    /// Cases that the backend does not implement.
    Unsupported,
    /// Cases that held only with the host's help.
    Delegated,
    /// Cases in which the worker died.
    Crash,
    /// Cases that hit a deadline.
    Timeout,
    /// Cases whose answers say too little.
    Mistrusted,
    /// Cases that did not run.
    NotRun,
    /// Cases that pass although the list of known failures says otherwise.
    UnexpectedPass,
    /// Cases that fail as the list of known failures says.
    ExpectedFailure,
    /// Cases that fail and are waived.
    Waived,
    /// Cases that passed only when they were tried again.
    Retried,
    /// A run of mode `certify` lacks what a certificate needs.
    Certify,
    /// The mode of the run allows no stronger label.
    Mode,
}

impl GapKind {
    /// The name used in rows and summaries.
    pub fn as_str(self) -> &'static str {
        match self {
            GapKind::Filter => "filter",
            GapKind::Gate => "gate",
            GapKind::Incomplete => "incomplete",
            GapKind::Suite => "suite",
            GapKind::Set => "set",
            GapKind::Bits => "bits",
            GapKind::Cap => "cap",
            GapKind::DelegatedOp => "delegated-op",
            GapKind::Mismatch => "mismatch",
            GapKind::Error => "error",
            GapKind::Unsupported => "unsupported",
            GapKind::Delegated => "delegated",
            GapKind::Crash => "crash",
            GapKind::Timeout => "timeout",
            GapKind::Mistrusted => "mistrusted",
            GapKind::NotRun => "not-run",
            GapKind::UnexpectedPass => "unexpected-pass",
            GapKind::ExpectedFailure => "expected-failure",
            GapKind::Waived => "waived",
            GapKind::Retried => "retried",
            GapKind::Certify => "certify",
            GapKind::Mode => "mode",
        }
    }

    /// True if the run was told of it beforehand: its own pipeline may go on, the label stays down.
    pub fn is_excused(self) -> bool {
        matches!(self, GapKind::ExpectedFailure | GapKind::Waived | GapKind::Retried)
    }

    /// The gap that a case leaves, if it leaves one.
    fn of(case: &CaseRecord) -> Option<GapKind> {
        Some(match (case.verdict, &case.outcome) {
            (Verdict::NotApplicable, _) => return None,
            (Verdict::Ok, _) if case.tries.is_empty() => return None,
            (Verdict::Ok, _) => GapKind::Retried,
            (Verdict::ExpectedFailure, _) => GapKind::ExpectedFailure,
            (Verdict::Waived, _) => GapKind::Waived,
            (Verdict::UnexpectedPass, _) | (Verdict::Regression, Outcome::Pass) => GapKind::UnexpectedPass,
            (Verdict::Regression, Outcome::Mismatch { .. }) => GapKind::Mismatch,
            (Verdict::Regression, Outcome::Error { .. }) => GapKind::Error,
            (Verdict::Regression, Outcome::Unsupported { .. }) => GapKind::Unsupported,
            (Verdict::Regression, Outcome::Delegated { .. }) => GapKind::Delegated,
            (Verdict::Regression, Outcome::Crash { .. }) => GapKind::Crash,
            (Verdict::Regression, Outcome::Timeout { .. }) => GapKind::Timeout,
            (Verdict::Regression, Outcome::Mistrusted { .. }) => GapKind::Mistrusted,
            (Verdict::Regression, Outcome::NotRun { .. }) => GapKind::NotRun,
        })
    }
}

/// A named thing that does not work, or that keeps the label down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gap {
    /// What kind.
    pub kind: GapKind,
    /// What it is about: an op, a cap, a set, or `rung/family/group` of cases.
    pub id: String,
    /// Counts and the first case, for people.
    pub detail: String,
}

impl Gap {
    fn new(kind: GapKind, id: impl Into<String>, detail: impl Into<String>) -> Gap {
        Gap { kind, id: id.into(), detail: detail.into() }
    }
}

/// Gaps of the run as a whole: filter, gate, completeness, suites, set.
pub(crate) fn of_run(header: &Header, cases: &[CaseRecord], gate: &Gate) -> Vec<Gap> {
    let suite = &header.suite;
    let mut gaps = Vec::new();
    if let Some(filter) = &header.filter {
        let detail = format!("the run was filtered by {filter:?}; results only, no row");
        gaps.push(Gap::new(GapKind::Filter, filter.clone(), detail));
    } else {
        gaps.extend(incomplete(header, cases));
    }
    if gate.required && gate.verdict == GateVerdict::Failed {
        gaps.extend(
            gate.reasons.iter().map(|reason| Gap::new(GapKind::Gate, "non-reference", reason.clone())),
        );
    } else {
        // A backend that openly declares the class Reference is no contradiction where nobody asked for the gate.
        let declared = |kind| kind == WitnessKind::Selection && header.backend.class == Class::Reference;
        let against =
            gate.witnesses.iter().filter(|w| w.verdict == WitnessVerdict::Contradiction && !declared(w.kind));
        gaps.extend(against.map(|w| Gap::new(GapKind::Gate, w.kind.as_str(), w.detail.clone())));
    }
    if !suite.is_kit {
        let detail = "the suites, goldens or fixtures are not the ones compiled into the kit";
        gaps.push(Gap::new(GapKind::Suite, suite.digest.clone(), detail));
    }
    if suite.set != "full" {
        let detail = format!("{} covers {} of {} mandatory cases", suite.set, suite.cases, suite.full_cases);
        gaps.push(Gap::new(GapKind::Set, suite.set.clone(), detail));
    }
    gaps
}

/// What a certificate needs beyond what every run needs.
pub(crate) fn of_certify(header: &Header, gate: &Gate) -> Vec<Gap> {
    let mut gaps = Vec::new();
    if header.mode != Mode::Certify {
        return gaps;
    }
    if header.challenge.is_none() {
        let detail = "no challenge: whoever made the run chose its inputs";
        gaps.push(Gap::new(GapKind::Certify, "challenge", detail));
    }
    for (name, value) in &header.interference {
        let detail = format!("stands between the backend and its device: {value}");
        gaps.push(Gap::new(GapKind::Certify, name.clone(), detail));
    }
    let placed = |w: &Witness| w.kind.shows_the_place() && w.verdict == WitnessVerdict::Positive;
    if gate::is_accelerator(header.backend.device.kind) && !gate.witnesses.iter().any(placed) {
        let detail = "the device is said to be an accelerator, and nothing measured shows that it worked";
        gaps.push(Gap::new(GapKind::Certify, "place", detail));
    }
    if header.backend.class == Class::Approx && !gate.required && gate.verdict == GateVerdict::Failed {
        gaps.extend(
            gate.reasons.iter().map(|reason| Gap::new(GapKind::Certify, "non-reference", reason.clone())),
        );
    }
    gaps
}

/// The gap that keeps a row of mode `ci` at `PARTIAL`.
pub(crate) fn of_mode(earned: &str) -> Gap {
    let detail = format!("the run is worth {earned}; only a row of mode certify says more than PARTIAL");
    Gap::new(GapKind::Mode, Mode::Ci.as_str(), detail)
}

fn incomplete(header: &Header, cases: &[CaseRecord]) -> Option<Gap> {
    let (seen, pinned) = (cases.len() as u64, header.suite.cases);
    let detail = if seen != pinned {
        format!("{seen} of {pinned} pinned cases were recorded")
    } else if ids_digest(cases.iter().map(|case| case.id.as_str())) != header.suite.cases_digest {
        format!("{seen} cases were recorded, but not the {pinned} that the set pins: their ids differ")
    } else {
        return None;
    };
    Some(Gap::new(GapKind::Incomplete, header.suite.set.clone(), detail))
}

/// Gaps of a backend of class `Reference`: its bits must be cpu-ref's.
pub(crate) fn of_bits(header: &Header, cases: &[CaseRecord]) -> Option<Gap> {
    if header.backend.class != Class::Reference {
        return None;
    }
    let differing: Vec<&CaseRecord> = cases.iter().filter(|case| case.quality.bits_differ > 0).collect();
    let detail = match differing.first() {
        Some(first) => format!("bits differ from cpu-ref in {} cases, first {}", differing.len(), first.id),
        None if cases.iter().all(|case| case.quality.bits_compared == 0) => {
            "no element was compared with cpu-ref bit by bit".to_owned()
        }
        None => return None,
    };
    Some(Gap::new(GapKind::Bits, "cpu-ref", detail))
}

/// Splits the advertised caps into proven and unproven, with a gap for each of the latter. A cap is proven by at least
/// one case that names it, all of them ok.
pub(crate) fn of_caps(header: &Header, cases: &[CaseRecord]) -> (Vec<Cap>, Vec<Cap>, Vec<Gap>) {
    let (mut proven, mut unproven, mut gaps) = (Vec::new(), Vec::new(), Vec::new());
    for cap in &header.backend.caps {
        let proofs: Vec<&CaseRecord> = cases.iter().filter(|case| case.proves == Some(*cap)).collect();
        let failed: Vec<&&CaseRecord> = proofs.iter().filter(|case| case.verdict != Verdict::Ok).collect();
        let detail = match failed.first() {
            Some(first) => {
                format!(
                    "advertised, not honoured: {} of {} proofs failed, first {}",
                    failed.len(),
                    proofs.len(),
                    first.id
                )
            }
            None if proofs.is_empty() => "advertised, not proven: no case proves it".to_owned(),
            None => {
                proven.push(*cap);
                continue;
            }
        };
        unproven.push(*cap);
        gaps.push(Gap::new(GapKind::Cap, cap.as_str(), detail));
    }
    (proven, unproven, gaps)
}

/// Gaps of ops that the host ran, by op.
pub(crate) fn of_delegation(cases: &[CaseRecord]) -> Vec<Gap> {
    let mut ops = BTreeMap::<&str, (u64, u64, &str)>::new();
    for case in cases {
        for (op, count) in &case.delegated {
            let entry = ops.entry(op).or_insert((0, 0, &case.id));
            entry.0 = entry.0.saturating_add(*count);
            entry.1 += 1;
        }
    }
    let gap = |(op, (calls, cases, first)): (&str, (u64, u64, &str))| {
        let detail = format!("the host ran {calls} calls in {cases} cases on cpu-ref, first {first}");
        Gap::new(GapKind::DelegatedOp, op, detail)
    };
    ops.into_iter().map(gap).collect()
}

/// Gaps of cases that do not support the claim, grouped by `rung/family/group`, subject and outcome.
pub(crate) fn of_cases(cases: &[CaseRecord]) -> Vec<Gap> {
    let mut groups = BTreeMap::<(&str, &str, GapKind), (usize, &str)>::new();
    let mut totals = BTreeMap::<(&str, &str), usize>::new();
    for case in cases.iter().filter(|case| case.verdict != Verdict::NotApplicable) {
        let prefix = group_of(&case.id);
        *totals.entry((prefix, &case.subject)).or_default() += 1;
        if let Some(kind) = GapKind::of(case) {
            groups.entry((prefix, &case.subject, kind)).or_insert((0, &case.id)).0 += 1;
        }
    }
    let gap = |((prefix, subject, kind), (count, first)): ((&str, &str, GapKind), (usize, &str))| {
        let total = totals.get(&(prefix, subject)).copied().unwrap_or(count);
        Gap::new(kind, prefix, format!("{subject}: {count} of {total} cases, first {first}"))
    };
    groups.into_iter().map(gap).collect()
}

/// The first three segments of a case id: rung, family and group.
pub(crate) fn group_of(id: &str) -> &str {
    id.match_indices('/').nth(2).map_or(id, |(end, _)| &id[..end])
}
