//! What changed between two records of runs: a pure function of both.

use std::collections::BTreeMap;

use modelbench_contract::Cap;
use serde::Serialize;
use serde_json::Value;

use crate::json::{self, Difference};
use crate::outcome::{Outcome, Verdict};
use crate::record::{CaseRecord, Header};
use crate::results::Results;
use crate::row::Predicate;
use crate::time::TimeError;

/// A value that changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Its path, such as `backend.tier` or `label`.
    pub path: String,
    /// The first record's value as JSON, or `absent`.
    pub before: String,
    /// The second record's value as JSON, or `absent`.
    pub after: String,
}

/// A case with another outcome or verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OutcomeChange {
    /// The case.
    pub id: String,
    /// What happened in the first run.
    pub before: Outcome,
    /// What it meant there.
    pub before_verdict: Verdict,
    /// What happened in the second run.
    pub after: Outcome,
    /// What it meant there.
    pub after_verdict: Verdict,
}

/// A case whose worst error is another share of its bound.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RatioChange {
    /// The case.
    pub id: String,
    /// Largest error divided by its bound in the first run; absent where the case had none.
    pub before: Option<f64>,
    /// The same in the second run.
    pub after: Option<f64>,
    /// The larger of the two divided by the smaller; absent if one of them is absent or zero.
    pub factor: Option<f64>,
}

/// All that changed from a first record to a second.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Diff {
    /// True if both runs asked the same questions: same seed, suites and model. Otherwise other bits and other errors
    /// are to be expected.
    pub same_inputs: bool,
    /// What follows from the records: label, gate, highest rung.
    pub claims: Vec<Change>,
    /// Caps that only the second backend advertises.
    pub caps_added: Vec<Cap>,
    /// Caps that only the first backend advertises.
    pub caps_removed: Vec<Cap>,
    /// Everything else that the headers say: backend, numerics, device, suites, seed, model, kit, environment, sandbox.
    /// The start of the run is left out, for it always differs.
    pub header: Vec<Change>,
    /// Cases that only the first record has.
    pub only_first: Vec<String>,
    /// Cases that only the second record has.
    pub only_second: Vec<String>,
    /// Cases with another outcome or verdict, by id.
    pub outcomes: Vec<OutcomeChange>,
    /// Cases whose outputs have other bits, by id.
    pub bits: Vec<String>,
    /// Cases whose worst error changed: first those without a factor, then by falling factor.
    pub ratios: Vec<RatioChange>,
}

impl Diff {
    /// True if both records have the same cases with the same outcomes and verdicts.
    pub fn same_outcomes(&self) -> bool {
        self.only_first.is_empty() && self.only_second.is_empty() && self.outcomes.is_empty()
    }
}

/// Compares two records.
///
/// # Errors
/// [`TimeError`] if the end of a run is no time; a record from [`Results::parse`] never has that.
pub fn diff(first: &Results, second: &Results) -> Result<Diff, TimeError> {
    let by_id = |results: &'_ Results| -> BTreeMap<String, CaseRecord> {
        results.cases.iter().map(|case| (case.id.clone(), case.clone())).collect()
    };
    let (before, after) = (by_id(first), by_id(second));
    let missing = |from: &BTreeMap<String, CaseRecord>, other: &BTreeMap<String, CaseRecord>| {
        from.keys().filter(|id| !other.contains_key(*id)).cloned().collect()
    };
    let (mut outcomes, mut bits, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for (id, (a, b)) in before.iter().filter_map(|(id, a)| Some((id, (a, after.get(id)?)))) {
        if a.outcome.as_str() != b.outcome.as_str() || a.verdict != b.verdict {
            outcomes.push(OutcomeChange {
                id: id.clone(),
                before: a.outcome.clone(),
                before_verdict: a.verdict,
                after: b.outcome.clone(),
                after_verdict: b.verdict,
            });
        }
        if a.output_sha256 != b.output_sha256 {
            bits.push(id.clone());
        }
        ratios.extend(ratio(id, a.quality.worst, b.quality.worst));
    }
    ratios.sort_by(|a, b| {
        let falling = |factor: Option<f64>| factor.unwrap_or(f64::INFINITY);
        falling(b.factor).total_cmp(&falling(a.factor)).then_with(|| a.id.cmp(&b.id))
    });
    let (a, b) = (&first.header, &second.header);
    Ok(Diff {
        same_inputs: a.seed == b.seed && a.suite.digest == b.suite.digest && a.model.sha256 == b.model.sha256,
        claims: claims(&Predicate::of(first)?, &Predicate::of(second)?),
        caps_added: b.backend.caps.difference(&a.backend.caps).copied().collect(),
        caps_removed: a.backend.caps.difference(&b.backend.caps).copied().collect(),
        header: header(a, b),
        only_first: missing(&before, &after),
        only_second: missing(&after, &before),
        outcomes,
        bits,
        ratios,
    })
}

fn ratio(id: &str, before: Option<f64>, after: Option<f64>) -> Option<RatioChange> {
    if before == after {
        return None;
    }
    let factor = match (before, after) {
        (Some(a), Some(b)) if a > 0.0 && b > 0.0 => Some(a.max(b) / a.min(b)),
        _ => None,
    };
    // A quotient of the largest and the smallest double is no number that JSON can hold.
    let factor = factor.filter(|factor| factor.is_finite());
    Some(RatioChange { id: id.to_owned(), before, after, factor })
}

fn claims(before: &Predicate, after: &Predicate) -> Vec<Change> {
    let values = |row: &Predicate| {
        [
            ("label", row.label.as_str().to_owned()),
            ("gate", row.gate.verdict.as_str().to_owned()),
            ("highestRung", row.highest_rung.map_or("none", |rung| rung.as_str()).to_owned()),
        ]
    };
    let changed = values(before).into_iter().zip(values(after)).filter(|(a, b)| a != b);
    let change = |((path, before), (_, after)): ((&str, String), (_, String))| Change {
        path: path.to_owned(),
        before,
        after,
    };
    changed.map(change).collect()
}

/// The differences of two headers, in their order. Caps are compared as sets elsewhere.
fn header(before: &Header, after: &Header) -> Vec<Change> {
    let value = |header: &Header| {
        let mut header = header.clone();
        header.started.clear();
        header.backend.caps.clear();
        // A header that was read from JSON can be written as JSON; were it not so, the difference would show.
        serde_json::to_value(header).unwrap_or_else(|error| Value::String(error.to_string()))
    };
    let found = json::differences("", &value(before), &value(after));
    let change = |Difference { path, first, second }| Change {
        path: path.trim_start_matches('.').to_owned(),
        before: first,
        after: second,
    };
    found.into_iter().map(change).collect()
}
