//! What must hold within the line of measurements, for the reader and the writer alike.

use crate::measured::{Measured, Reading, Tier, Watermark};
use crate::record::{CaseRecord, Header};
use crate::record_checks::{FieldError, op_named, require, wrong};
use crate::{record_checks, tier, tree};

/// Most terms of a probed sum: what the kit asks for, and what can be named in no time.
const MOST_TERMS: u64 = 256;
/// Most results of an ordinary product that is compared with its order.
const MOST_RESULTS: u64 = 1024;

/// The line, given the header and the cases before it.
pub(crate) fn check(all: &Measured, header: &Header, cases: &[CaseRecord]) -> Result<(), FieldError> {
    if let Reading::Measured(orders) = &all.order {
        check_orders(orders)?;
    }
    if let Reading::Measured(watermark) = &all.watermark {
        check_watermark(watermark)?;
    }
    match &all.tier {
        Reading::Measured(tier) => check_tier(tier, header, cases),
        Reading::NotMeasured(_) => Ok(()),
    }
}

fn check_orders(orders: &[tree::Measured]) -> Result<(), FieldError> {
    for found in orders {
        require(found.k() <= MOST_TERMS, || {
            wrong("order.k", found.k().to_string(), format!("at most {MOST_TERMS} terms"))
        })?;
    }
    for found in tree::Measured::trees(orders) {
        if let Some(foretold) = found.foretold {
            require(
                (1..=MOST_RESULTS).contains(&foretold.results) && foretold.explained() <= foretold.results,
                || {
                    let counts = format!("{} of {} results", foretold.explained(), foretold.results);
                    wrong("order.foretold", counts, format!("a part of 1 to {MOST_RESULTS} results"))
                },
            )?;
        }
    }
    let trees = tree::summary(&tree::Measured::trees(orders)).map(drop);
    trees.map_err(|e| wrong("order", e.to_string(), "one tree over all terms for each product and length"))
}

fn check_watermark(watermark: &Watermark) -> Result<(), FieldError> {
    let Watermark { asked, served, found } = watermark;
    for (field, ops) in [("asked", asked), ("served", served), ("found", found)] {
        for name in ops.keys() {
            require(op_named(name).is_some(), || {
                wrong(format!("watermark.{field}"), format!("{name:?}"), "the name of an op of the contract")
            })?;
        }
    }
    Ok(())
}

fn check_tier(tier: &Tier, header: &Header, cases: &[CaseRecord]) -> Result<(), FieldError> {
    record_checks::digest("tier.nonce", &tier.nonce)?;
    if let Some(challenge) = &header.challenge {
        require(tier.nonce == challenge.nonce, || {
            wrong(
                "tier.nonce",
                tier.nonce.clone(),
                format!("{}, the nonce of the challenge", challenge.nonce),
            )
        })?;
    }
    let seed = tier::seed(&tier.nonce, header)
        .map_err(|e| wrong("tier.nonce", tier.nonce.clone(), format!("a nonce that gives a seed: {e}")))?;
    require(tier.seed == seed, || {
        wrong(
            "tier.seed",
            tier.seed.clone(),
            format!("{seed}, which the nonce, the backend and the suites give"),
        )
    })?;
    let chosen = tier::select(&tier.nonce, cases);
    let asked: Vec<&str> = tier.cases.iter().map(|case| case.id.as_str()).collect();
    require(asked == chosen, || {
        let at = asked.iter().zip(&chosen).take_while(|(a, b)| a == b).count();
        let name = |ids: &[&str]| ids.get(at).map_or("nothing".to_owned(), |id| format!("{id:?}"));
        wrong(
            format!("tier.cases[{at}].id"),
            name(&asked),
            format!("{}, as the nonce chooses", name(&chosen)),
        )
    })?;
    for (i, case) in tier.cases.iter().enumerate() {
        record_checks::digest(&format!("tier.cases[{i}].output_sha256"), &case.output_sha256)?;
    }
    Ok(())
}
