//! What a run says it was answered, computed again: for a verifier who posed the challenge that its inputs derive from.

use std::collections::{BTreeMap, HashMap};

use modelbench_contract::{Class, Op};
use modelbench_evidence::measured::{Reading, TierCase};
use modelbench_evidence::outcome::Outcome;
use modelbench_evidence::record::CaseRecord;
use modelbench_evidence::results::Results;
use modelbench_evidence::tier;

use super::finding::{CheckError, Finding};
use super::ops::{self, Kept, Known};
use crate::compare::{bits_differ, judge};
use crate::suite::{Case, Suites, Tolerance};

/// Telling elements of an op below which two arithmetics may agree by chance.
const LEAST: usize = 64;

/// How much of a record was computed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recomputed {
    /// Cases whose only right answer has the digest in the record.
    pub digests: usize,
    /// Cases of the tier whose values in the record hold within their bounds.
    pub values: usize,
    /// Cases that passed, all of the record.
    pub passed: usize,
}

/// Why a record is refused.
#[derive(Debug, thiserror::Error)]
pub enum RecomputeError {
    /// The inputs cannot be made again here.
    #[error(
        "the run used suites with digest {found}, this kit has {kit}: verify with the kit that made the row"
    )]
    OtherSuites {
        /// Digest in the record.
        found: String,
        /// Digest of this kit.
        kit: String,
    },
    /// The run has no tier, so that there is nothing to compute again.
    #[error("the record holds no challenge tier: {0}")]
    NoTier(String),
    /// The case is not one of the kit's.
    #[error("{case} is in the record and is no case of this kit")]
    Unknown {
        /// Its id.
        case: String,
    },
    /// The record says something else than the answer.
    #[error(
        "{case}: {field} is {found}, but the answer to this challenge gives {expected}: the record was not made by running this case"
    )]
    Differs {
        /// The case.
        case: String,
        /// The field.
        field: &'static str,
        /// Value in the record.
        found: String,
        /// Value computed again.
        expected: String,
    },
    /// A defect of the kit.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// A seed in the record is no number.
    #[error("seed {0:?} is no number")]
    Seed(String),
}

/// Computes again what can be: the digest of every case with one right answer (with class `Reference`, of every case of
/// an op), and all values of the tier.
///
/// # Errors
/// [`RecomputeError`] for the first difference.
pub fn recompute(results: &Results, suites: &Suites) -> Result<Recomputed, RecomputeError> {
    let header = &results.header;
    if header.suite.digest != suites.digest {
        let (found, kit) = (header.suite.digest.clone(), suites.digest.clone());
        return Err(RecomputeError::OtherSuites { found, kit });
    }
    let tier = match results.measured.as_ref().map(|measured| &measured.tier) {
        Some(Reading::Measured(tier)) => tier,
        Some(Reading::NotMeasured(why)) => return Err(RecomputeError::NoTier(why.clone())),
        None => return Err(RecomputeError::NoTier("nothing was measured beside the cases".to_owned())),
    };
    let cases: HashMap<&str, &Case> = suites.cases.iter().map(|case| (case.id.as_str(), case)).collect();
    let find =
        |id: &str| cases.get(id).copied().ok_or_else(|| RecomputeError::Unknown { case: id.to_owned() });
    let mut kept = Kept::with_room(0);
    let mut known = |case: &Case, seed: u64| kept.of(&case.drawn(seed), seed, &header.backend.numerics);
    let mut done = Recomputed { digests: 0, values: 0, passed: 0 };
    let seed = parse(&header.seed)?;
    for record in results.cases.iter().filter(|record| record.outcome == Outcome::Pass) {
        done.passed += 1;
        let case = find(&record.id)?;
        if ops::axes(&case.group.check).is_none() {
            continue;
        }
        let known = known(case, seed)?;
        // The number of elements decides which cases the tier may ask.
        let (found, expected) = (record.quality.elements, known.reference.values.len() as u64);
        if found != expected {
            let (case, found, expected) = (record.id.clone(), found.to_string(), expected.to_string());
            return Err(RecomputeError::Differs { case, field: "quality.elements", found, expected });
        }
        if is_exact(case) || header.backend.class == Class::Reference {
            digest(record, case, &known)?;
            done.digests += 1;
        }
    }
    let mut bits = BTreeMap::<&str, (usize, u64)>::new();
    let seed = parse(&tier.seed)?;
    for asked in tier.cases.iter().filter(|asked| asked.outcome == Outcome::Pass) {
        let case = find(&asked.id)?;
        let known = known(case, seed)?;
        let found = values(asked, &known)?;
        if !is_exact(case) {
            let (compared, differ) = bits.entry(&case.group.check).or_default();
            let (telling, others) = telling(&found, &known.reference.values, &known.want.values());
            *compared += telling;
            *differ += others;
        }
        done.values += 1;
    }
    for (op, (compared, differ)) in bits {
        let hot = Op::ALL.iter().any(|known| known.as_str() == op && known.is_hot());
        if hot && header.backend.class == Class::Approx && compared >= LEAST && differ == 0 {
            let found = format!(
                "cpu-ref's to the bit in all {compared} elements of the tier that it does not round right"
            );
            let expected = "the values of an arithmetic of its own".to_owned();
            return Err(RecomputeError::Differs { case: op.to_owned(), field: "values", found, expected });
        }
    }
    Ok(done)
}

/// Elements that cpu-ref does not round right, and how many of them `found` has otherwise. Where cpu-ref is right to the
/// last bit (one term, one position that counts), every good arithmetic has its bits.
fn telling(found: &[f32], reference: &[f32], right: &[f32]) -> (usize, u64) {
    let other = |(one, another): (&f32, &f32)| bits_differ(&[*one], &[*another]) > 0;
    let telling = reference.iter().zip(right).map(other);
    let (found, reference): (Vec<f32>, Vec<f32>) = found
        .iter()
        .zip(reference)
        .zip(telling)
        .filter(|(_, telling)| *telling)
        .map(|(pair, _)| pair)
        .unzip();
    (found.len(), bits_differ(&found, &reference))
}

/// True if the case has one right answer, whoever gives it.
fn is_exact(case: &Case) -> bool {
    matches!(case.group.tolerance, Tolerance::Exact { .. })
}

fn digest(record: &CaseRecord, case: &Case, known: &Known) -> Result<(), RecomputeError> {
    let expected = ops::digest_of(is_exact(case), &known.reference.values);
    if record.output_sha256 == expected {
        return Ok(());
    }
    let (case, found) = (record.id.clone(), record.output_sha256.clone());
    Err(RecomputeError::Differs { case, field: "output_sha256", found, expected })
}

/// Judges the values in the record as the run judged them.
fn values(asked: &TierCase, known: &Known) -> Result<Vec<f32>, RecomputeError> {
    let differs = |field, found: String, expected: String| {
        Err(RecomputeError::Differs { case: asked.id.clone(), field, found, expected })
    };
    let Some(text) = &asked.values else {
        return differs("values", "absent".to_owned(), "the outputs of the case".to_owned());
    };
    let Some(found) = tier::decode(text) else {
        return differs("values", "no f32 values".to_owned(), "f32 little-endian in base64".to_owned());
    };
    let mut finding = Finding::default();
    finding.output(&found);
    let digest = finding.output_sha256();
    if digest != asked.output_sha256 {
        return differs(
            "output_sha256",
            asked.output_sha256.clone(),
            format!("{digest} for the values beside it"),
        );
    }
    match judge(&known.want, &found, known.slack).wrong {
        None => Ok(found),
        Some(wrong) => differs("values", wrong, "values within the bounds of the case".to_owned()),
    }
}

fn parse(seed: &str) -> Result<u64, RecomputeError> {
    let digits = seed.strip_prefix("0x").unwrap_or(seed);
    u64::from_str_radix(digits, 16).map_err(|_| RecomputeError::Seed(seed.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::telling;

    #[test]
    fn elements_that_everybody_has_right_tell_nothing() {
        let (reference, right) = ([1.0, 2.0, 3.5, f32::NAN], [1.0, 2.5, 3.0, f32::NAN]);
        assert_eq!(telling(&reference, &reference, &right), (2, 0));
        assert_eq!(telling(&right, &reference, &right), (2, 2));
        assert_eq!(telling(&[1.0, 2.0, 3.0, 0.0], &reference, &right), (2, 1));
        // A value is chosen, not summed: all of them are cpu-ref's, and that says nothing.
        assert_eq!(telling(&right, &right, &right), (0, 0));
    }
}
