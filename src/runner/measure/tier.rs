//! The challenge tier: cases of the run once more, on a fresh worker, with inputs that follow from a nonce.

use std::collections::HashMap;

use modelbench_evidence::measured::{Reading, Tier, TierCase};
use modelbench_evidence::record::CaseRecord;
use modelbench_evidence::tier;

use super::super::post::Post;
use super::super::registry::Bench;
use super::super::run::RunError;
use crate::suite::Case;

/// Asks the cases that the nonce chooses. `seed` is the text that the nonce gives.
pub(super) fn measure(
    nonce: String,
    seed: String,
    records: &[CaseRecord],
    cases: &[Case],
    post: &mut Post,
    bench: &mut Bench<'_>,
) -> Result<Reading<Tier>, RunError> {
    let chosen = tier::select(&nonce, records);
    if chosen.is_empty() {
        return Ok(Reading::NotMeasured("no case of a single op passed".to_owned()));
    }
    let by_id: HashMap<&str, &Case> = cases.iter().map(|case| (case.id.as_str(), case)).collect();
    let usual = bench.seed;
    bench.seed = parse(&seed)?;
    let mut asked = Vec::with_capacity(chosen.len());
    for id in chosen {
        let case = by_id.get(id).ok_or_else(|| RunError::Kit(format!("{id} was recorded and is no case")))?;
        let answer = post.run(case, bench, 0)?;
        let values = answer.values.map(|values| tier::encode(&values));
        let CaseRecord { id, outcome, output_sha256, .. } = answer.record;
        asked.push(TierCase { id, outcome, output_sha256, values });
    }
    bench.seed = usual;
    Ok(Reading::Measured(Tier { nonce, seed, cases: asked }))
}

fn parse(seed: &str) -> Result<u64, RunError> {
    let digits = seed.strip_prefix("0x").unwrap_or(seed);
    u64::from_str_radix(digits, 16).map_err(|e| RunError::Kit(format!("seed {seed:?} is no number: {e}")))
}
