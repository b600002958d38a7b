//! Watermark and challenge: answers that cannot have been taken from somewhere else.

use std::collections::BTreeMap;

use super::attribution::{named, sum};
use super::{Witness, WitnessKind, WitnessVerdict, not_measured, reading};
use crate::measured::Measured;
use crate::outcome::Outcome;
use crate::record::{CaseRecord, Header};

pub(super) fn watermark(measured: Option<&Measured>) -> Witness {
    let kind = WitnessKind::Watermark;
    let watermark = match reading(kind, measured, |measured| &measured.watermark) {
        Ok(watermark) => watermark,
        Err(witness) => return witness,
    };
    let asked = format!("{} questions", sum(&watermark.asked));
    let served = if watermark.served.is_empty() {
        "no poisoned answer was needed".to_owned()
    } else {
        format!("poisoned answers served for {}", named(&watermark.served))
    };
    if watermark.asked.is_empty() {
        return not_measured(kind, "no op was asked");
    }
    if watermark.found.is_empty() {
        let detail = format!("{asked}; {served}; none came back as the backend's own");
        return Witness { kind, verdict: WitnessVerdict::Neutral, detail };
    }
    let detail = format!(
        "the host's poisoned answers came back as the backend's own in {}; {served}",
        named(&watermark.found)
    );
    Witness { kind, verdict: WitnessVerdict::Contradiction, detail }
}

/// Cases that passed with inputs known beforehand must pass with inputs that nobody knew.
pub(super) fn challenge(header: &Header, cases: &[CaseRecord], measured: Option<&Measured>) -> Witness {
    let kind = WitnessKind::Challenge;
    let tier = match reading(kind, measured, |measured| &measured.tier) {
        Ok(tier) => tier,
        Err(witness) => return witness,
    };
    let before: BTreeMap<&str, &Outcome> =
        cases.iter().map(|case| (case.id.as_str(), &case.outcome)).collect();
    let held = tier.cases.iter().filter(|case| case.outcome == Outcome::Pass).count();
    let only_before = tier.cases.iter().filter(|case| {
        case.outcome != Outcome::Pass && before.get(case.id.as_str()) == Some(&&Outcome::Pass)
    });
    let lost: Vec<&str> = only_before.map(|case| case.id.as_str()).collect();
    let whose =
        if header.challenge.is_some() { "a verifier's nonce" } else { "a nonce drawn after the start" };
    let figures = format!("{held} of {} cases hold with inputs from {whose}", tier.cases.len());
    let (verdict, detail) = match (lost.first(), held) {
        (Some(first), _) => {
            let text = format!("{} of them passed before and fail now, first {first}", lost.len());
            (WitnessVerdict::Contradiction, format!("{figures}; {text}"))
        }
        (None, 0) => (WitnessVerdict::NotMeasured, figures),
        (None, _) => (WitnessVerdict::Neutral, figures),
    };
    Witness { kind, verdict, detail }
}
