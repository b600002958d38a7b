//! The non-reference gate: did the device do the work, or did cpu-ref?
//!
//! A pure function of the record. Each witness is a pure function too, and says what it says alone; [`conclude`] weighs
//! them: the gate passes with at least one positive witness and no contradiction, an accelerator needs a positive one
//! that speaks about the place of the work, and what must be measured and was not fails the gate.

mod attribution;
mod bits;
mod order;
mod place;
mod selection;
mod surprise;

pub use attribution::total_ops;

use modelbench_contract::DeviceKind;
use serde::{Deserialize, Serialize};

use crate::measured::{Measured, Reading};
use crate::record::{CaseRecord, Header};

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
    /// Poisoned answers that must not come back as the backend's own.
    Watermark,
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
            WitnessKind::Watermark => "watermark",
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

impl WitnessKind {
    /// Every kind, in the order in which they are shown.
    pub const ALL: [WitnessKind; 8] = [
        WitnessKind::Selection,
        WitnessKind::Attribution,
        WitnessKind::Order,
        WitnessKind::Bits,
        WitnessKind::CpuTime,
        WitnessKind::Counters,
        WitnessKind::Watermark,
        WitnessKind::Challenge,
    ];

    /// True if the gate fails where this was not measured. The others may be out of reach of an honest backend: an
    /// arithmetic that cannot hold the probes, a driver without counters. They then support nothing.
    fn is_indispensable(self) -> bool {
        matches!(self, WitnessKind::Bits | WitnessKind::Watermark | WitnessKind::Challenge)
    }

    /// True if it can show where the work was done, and not only that cpu-ref's arithmetic did not do it.
    pub(crate) fn shows_the_place(self) -> bool {
        matches!(self, WitnessKind::CpuTime | WitnessKind::Counters)
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
pub fn decide(header: &Header, cases: &[CaseRecord], measured: Option<&Measured>) -> Gate {
    let kind = header.backend.device.kind;
    let cpu_time = place::cpu_time(kind, measured);
    let counters = place::counters(kind, measured);
    let shown = [&cpu_time, &counters].iter().any(|w| w.verdict == WitnessVerdict::Positive);
    let witnesses = vec![
        selection::witness(header),
        attribution::witness(cases),
        order::witness(header.backend.class, shown, cases, measured),
        bits::witness(header, cases),
        cpu_time,
        counters,
        surprise::watermark(measured),
        surprise::challenge(header, cases, measured),
    ];
    // Hardware that did not do the work is no hardware: who asks for it asks for the gate.
    conclude(header.requires_gate(), is_accelerator(kind), witnesses)
}

/// Weighs the witnesses. `accelerator` is true for a device that claims to be something else than a CPU or a program
/// that runs on one.
pub fn conclude(required: bool, accelerator: bool, witnesses: Vec<Witness>) -> Gate {
    let mut reasons = Vec::new();
    let mut positive = false;
    let mut place = false;
    for witness in &witnesses {
        match witness.verdict {
            WitnessVerdict::Contradiction => {
                reasons.push(format!("{}: {}", witness.kind.as_str(), witness.detail));
            }
            WitnessVerdict::NotMeasured if witness.kind.is_indispensable() => {
                reasons.push(format!("{} was not measured: {}", witness.kind.as_str(), witness.detail));
            }
            WitnessVerdict::Positive => {
                positive = true;
                place |= witness.kind.shows_the_place();
            }
            WitnessVerdict::Neutral | WitnessVerdict::NotMeasured | WitnessVerdict::NotApplicable => {}
        }
    }
    if !positive {
        reasons.push("no positive witness: nothing measured shows that the backend did the work".to_owned());
    } else if accelerator && !place {
        let text =
            "the device is said to be an accelerator, and neither CPU time nor counters show that it worked";
        reasons.push(text.to_owned());
    }
    let verdict = if reasons.is_empty() { GateVerdict::Passed } else { GateVerdict::Failed };
    Gate { required, verdict, witnesses, reasons }
}

/// Why the place of the work says nothing about a device: a CPU does it, whoever does it. `None` for an accelerator.
pub fn without_place(kind: DeviceKind) -> Option<&'static str> {
    match kind {
        DeviceKind::Cpu => Some("the device is a CPU"),
        DeviceKind::Software => Some("the device is a program that runs on the CPU"),
        DeviceKind::Integrated | DeviceKind::Discrete | DeviceKind::Virtual => None,
    }
}

/// True if the work is said to be done by something else than a CPU.
pub(crate) fn is_accelerator(kind: DeviceKind) -> bool {
    without_place(kind).is_none()
}

/// A part of the measurements, or the witness that says why there is none.
fn reading<'a, T>(
    kind: WitnessKind,
    measured: Option<&'a Measured>,
    part: impl FnOnce(&'a Measured) -> &'a Reading<T>,
) -> Result<&'a T, Witness> {
    match measured.map(part) {
        None => Err(not_measured(kind, "the run ended before it was measured")),
        Some(Reading::NotMeasured(why)) => Err(not_measured(kind, why)),
        Some(Reading::Measured(found)) => Ok(found),
    }
}

/// A witness of a figure that was not measured.
fn not_measured(kind: WitnessKind, why: &str) -> Witness {
    Witness { kind, verdict: WitnessVerdict::NotMeasured, detail: why.to_owned() }
}
