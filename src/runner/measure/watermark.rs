//! Poisoned answers: what the host serves in a backend's place during this measurement is deliberately wrong in the
//! last digits, and must not come back as the backend's own.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use modelbench_contract::{Backend, DType, ErrorKind, HostTensor, Op};
use modelbench_evidence::measured::{Reading, Watermark};

use super::super::finding::CheckError;
use super::super::ops::{self, Known};
use super::super::registry::Bench;
use crate::suite::{Case, Recipe, Tolerance};
use crate::worker::{Remote, Worker};

/// Bits of the significand that the poison replaces: far above rounding in f32, far below what a bound notices at once.
const POISONED_BITS: u32 = 8;
/// Least number of elements of a result that carries poison: fewer could agree by chance.
const LEAST_ELEMENTS: usize = 32;
/// Most elements of a result: more would only take time.
const MOST_ELEMENTS: usize = 4096;
/// Questions for each op.
const QUESTIONS: usize = 3;

/// Asks each op a few questions. Where the backend lacks it, the host uploads a poisoned answer, as it uploads a right
/// one when it stands in for a backend, and asks again.
pub(super) fn measure(
    worker: &mut Worker,
    cases: &[Case],
    bench: &mut Bench<'_>,
) -> Result<Reading<Watermark>, CheckError> {
    let mut found = Watermark { asked: BTreeMap::new(), served: BTreeMap::new(), found: BTreeMap::new() };
    let mut poisons: BTreeSet<Vec<u32>> = BTreeSet::new();
    for (op, known) in questions(cases, bench)? {
        let poison = poisoned(&known.reference.values);
        let name = op.as_str().to_owned();
        *found.asked.entry(name.clone()).or_default() += 1;
        let remote = worker.remote();
        let mut own = ask(remote, &known)?;
        if own.is_none() {
            *found.served.entry(name.clone()).or_default() += 1;
            let served =
                remote.upload(&HostTensor::from_f32(&known.reference.shape, &poison)?, DType::F32)?;
            poisons.insert(bits(&poison));
            // The host reads what it served, as it does when it works with it further.
            remote.read(&served)?;
            own = ask(remote, &known)?;
            remote.free(served)?;
        }
        let Some(own) = own.map(|values| bits(&values)) else { continue };
        let equal = |poison: &Vec<u32>| own.iter().zip(poison).filter(|(a, b)| a == b).count();
        let most = poisons.iter().map(equal).max().unwrap_or(0);
        if most * 2 > own.len() {
            *found.found.entry(name).or_default() += most as u64;
        }
    }
    Ok(Reading::Measured(found))
}

/// The answer to a question, `None` if the backend lacks the op.
fn ask(remote: &mut Remote, known: &Known) -> Result<Option<Vec<f32>>, CheckError> {
    match known.plan.once(remote) {
        Ok(values) => Ok(Some(values)),
        Err(error) if error.kind == ErrorKind::Unimplemented => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A few cases of each op, real-valued, of a size that carries poison.
fn questions(cases: &[Case], bench: &mut Bench<'_>) -> Result<Vec<(Op, Rc<Known>)>, CheckError> {
    let mut chosen = Vec::new();
    let mut counts: BTreeMap<Op, usize> = BTreeMap::new();
    for case in cases {
        let real = matches!(case.group.tolerance, Tolerance::Bound { .. })
            && matches!(case.group.input, Recipe::Reals { .. });
        if !real || ops::axes(&case.group.check).is_none() || case.params().contains_key("plant") {
            continue;
        }
        let Some(op) = Op::ALL.iter().copied().find(|op| op.as_str() == case.group.check) else { continue };
        if counts.get(&op).copied().unwrap_or(0) >= QUESTIONS {
            continue;
        }
        let known = bench.kept.of(&case.drawn(bench.seed), bench.seed, &bench.profile)?;
        let elements = known.reference.values.len();
        if (LEAST_ELEMENTS..=MOST_ELEMENTS).contains(&elements) {
            *counts.entry(op).or_default() += 1;
            chosen.push((op, known));
        }
    }
    Ok(chosen)
}

/// The values with their last digits replaced. Zeros and what is not finite stay: nobody could tell them apart.
fn poisoned(values: &[f32]) -> Vec<f32> {
    let mask = (1u32 << POISONED_BITS) - 1;
    let poison = |value: &f32| {
        let bits = value.to_bits();
        let other = (bits & mask) ^ (mask / 3 + 1);
        if value.is_finite() && *value != 0.0 { f32::from_bits(bits & !mask | other) } else { *value }
    };
    values.iter().map(poison).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poison_changes_every_value_and_stays_near() {
        let values: Vec<f32> = (1..200).map(|i| (i as f32).sqrt() - 7.3).collect();
        for (value, poison) in values.iter().zip(poisoned(&values)) {
            assert_ne!(value.to_bits(), poison.to_bits());
            assert_eq!(value.to_bits() >> POISONED_BITS, poison.to_bits() >> POISONED_BITS);
        }
        assert_eq!(poisoned(&[0.0, f32::INFINITY]), [0.0, f32::INFINITY]);
    }
}
