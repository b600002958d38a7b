//! The non-reference gate: did the device do the work, or did cpu-ref?
//!
//! A pure function of the record. It passes with at least one positive witness and no contradiction; what was not
//! measured never counts as passed.

use std::collections::BTreeMap;

use modelbench_contract::{Class, DeviceKind};
use serde::{Deserialize, Serialize};

use crate::outcome::Outcome;
use crate::record::{CaseRecord, Header};
use crate::record_checks::op_named;

/// What a witness speaks about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WitnessKind {
    /// How the backend was chosen, and what it declares.
    Selection,
    /// Who ran the ops.
    Attribution,
    /// The summation tree of matmul.
    Order,
    /// Bits of outputs against cpu-ref's.
    Bits,
    /// CPU seconds of the worker.
    CpuTime,
    /// Engine time of the device.
    Counters,
    /// Inputs that nobody could know beforehand.
    Challenge,
}

impl WitnessKind {
    /// The name used in rows and summaries.
    pub fn as_str(self) -> &'static str {
        match self {
            WitnessKind::Selection => "selection",
            WitnessKind::Attribution => "attribution",
            WitnessKind::Order => "order",
            WitnessKind::Bits => "bits",
            WitnessKind::CpuTime => "cpu-time",
            WitnessKind::Counters => "counters",
            WitnessKind::Challenge => "challenge",
        }
    }
}

/// What a witness says about the claim that the backend did the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WitnessVerdict {
    /// Supports it.
    Positive,
    /// Fits it, and would fit the opposite.
    Neutral,
    /// Refutes it.
    Contradiction,
    /// Nobody looked, or there was nothing to look at.
    NotMeasured,
    /// The question has no meaning for this device.
    NotApplicable,
}

impl WitnessVerdict {
    /// The name used in rows and summaries.
    pub fn as_str(self) -> &'static str {
        match self {
            WitnessVerdict::Positive => "positive",
            WitnessVerdict::Neutral => "neutral",
            WitnessVerdict::Contradiction => "contradiction",
            WitnessVerdict::NotMeasured => "not-measured",
            WitnessVerdict::NotApplicable => "not-applicable",
        }
    }
}

/// One measured fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Witness {
    /// What it speaks about.
    pub kind: WitnessKind,
    /// What it says.
    pub verdict: WitnessVerdict,
    /// The figures, for people.
    pub detail: String,
}

/// The gate's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GateVerdict {
    /// At least one positive witness, no contradiction.
    Passed,
    /// Anything else.
    Failed,
}

impl GateVerdict {
    /// The name used in rows and summaries.
    pub fn as_str(self) -> &'static str {
        match self {
            GateVerdict::Passed => "passed",
            GateVerdict::Failed => "failed",
        }
    }
}

/// The gate with all its witnesses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gate {
    /// True if the run demands that it passes.
    pub required: bool,
    /// Passed or failed, required or not.
    pub verdict: GateVerdict,
    /// Every witness, in the order of the kinds.
    pub witnesses: Vec<Witness>,
    /// Why it failed; empty if it passed.
    pub reasons: Vec<String>,
}

/// Decides the gate from the record of a run.
pub fn decide(header: &Header, cases: &[CaseRecord]) -> Gate {
    let unmeasured = |kind| Witness {
        kind,
        verdict: WitnessVerdict::NotMeasured,
        detail: "not measured in this version".to_owned(),
    };
    let witnesses = vec![
        selection(header),
        attribution(cases),
        unmeasured(WitnessKind::Order),
        bits(header.backend.class, cases),
        cpu_time(header),
        unmeasured(WitnessKind::Counters),
        unmeasured(WitnessKind::Challenge),
    ];
    let mut reasons: Vec<String> = witnesses
        .iter()
        .filter(|w| w.verdict == WitnessVerdict::Contradiction)
        .map(|w| format!("{}: {}", w.kind.as_str(), w.detail))
        .collect();
    if !witnesses.iter().any(|w| w.verdict == WitnessVerdict::Positive) {
        reasons.push("no positive witness: nothing measured shows that the backend did the work".to_owned());
    }
    let verdict = if reasons.is_empty() { GateVerdict::Passed } else { GateVerdict::Failed };
    Gate { required: header.require_non_reference, verdict, witnesses, reasons }
}

/// The command line has no default backend and matches names exactly, so that a record exists at all says that the
/// backend was named.
fn selection(header: &Header) -> Witness {
    let backend = &header.backend;
    let device = match backend.device.kind {
        DeviceKind::Software => {
            format!("; a software device: {}, tier {}", backend.device.hardware, backend.tier)
        }
        _ => String::new(),
    };
    let (verdict, class) = match backend.class {
        Class::Approx => (WitnessVerdict::Neutral, "class is Approx"),
        Class::Reference => (WitnessVerdict::Contradiction, "class is Reference"),
    };
    let detail = format!("{} was named; {class}{device}", backend.name);
    Witness { kind: WitnessKind::Selection, verdict, detail }
}

/// Sums per-op counts over cases. Counts are only shown and compared with zero, so saturation loses nothing.
pub fn total_ops<'a>(maps: impl IntoIterator<Item = &'a BTreeMap<String, u64>>) -> BTreeMap<String, u64> {
    let mut totals = BTreeMap::<String, u64>::new();
    for (op, count) in maps.into_iter().flatten() {
        let total = totals.entry(op.clone()).or_default();
        *total = total.saturating_add(*count);
    }
    totals
}

fn attribution(cases: &[CaseRecord]) -> Witness {
    let native = total_ops(cases.iter().map(|case| &case.native));
    let delegated = total_ops(cases.iter().map(|case| &case.delegated));
    let sum = |ops: &BTreeMap<String, u64>| ops.values().fold(0u64, |sum, n| sum.saturating_add(*n));
    let is_hot =
        |(name, count): &(&String, &u64)| **count > 0 && op_named(name).is_some_and(|op| op.is_hot());
    let hot_delegated: Vec<String> =
        delegated.iter().filter(is_hot).map(|(name, count)| format!("{name} ({count})")).collect();
    let mut detail = format!("{} ops native, {} delegated", sum(&native), sum(&delegated));
    if !delegated.is_empty() {
        let named: Vec<String> = delegated.iter().map(|(name, count)| format!("{name} {count}")).collect();
        detail += &format!(": {}", named.join(", "));
    }
    let verdict = if !hot_delegated.is_empty() {
        detail = format!("hot ops ran on cpu-ref: {}; {detail}", hot_delegated.join(", "));
        WitnessVerdict::Contradiction
    } else if !native.iter().any(|op| is_hot(&op)) {
        detail = format!("nothing ran natively: no matmul, batched_matmul or attention; {detail}");
        WitnessVerdict::Contradiction
    } else {
        WitnessVerdict::Neutral
    };
    Witness { kind: WitnessKind::Attribution, verdict, detail }
}

fn bits(class: Class, cases: &[CaseRecord]) -> Witness {
    let answered = |case: &&CaseRecord| {
        case.bits_probe
            && matches!(case.outcome, Outcome::Pass | Outcome::Mismatch { .. })
            && case.quality.bits_compared > 0
    };
    let (mut probes, mut differ, mut compared) = (0u64, 0u64, 0u64);
    for case in cases.iter().filter(answered) {
        probes += 1;
        differ = differ.saturating_add(case.quality.bits_differ);
        compared = compared.saturating_add(case.quality.bits_compared);
    }
    let figures =
        format!("{differ} of {compared} elements in {probes} probe cases differ from cpu-ref's bits");
    let (verdict, detail) = match (class, compared, differ) {
        (_, 0, _) => {
            (WitnessVerdict::NotMeasured, "no probe case was compared with cpu-ref bit by bit".to_owned())
        }
        (Class::Approx, _, 0) => (
            WitnessVerdict::Contradiction,
            format!("arithmetic is indistinguishable from cpu-ref: {figures}"),
        ),
        (Class::Approx, _, _) => (WitnessVerdict::Positive, figures),
        (Class::Reference, _, _) => (WitnessVerdict::Neutral, figures),
    };
    Witness { kind: WitnessKind::Bits, verdict, detail }
}

fn cpu_time(header: &Header) -> Witness {
    let (verdict, detail) = match header.backend.device.kind {
        DeviceKind::Cpu => (WitnessVerdict::NotApplicable, "the device is a CPU"),
        _ => (WitnessVerdict::NotMeasured, "not measured in this version"),
    };
    Witness { kind: WitnessKind::CpuTime, verdict, detail: detail.to_owned() }
}
