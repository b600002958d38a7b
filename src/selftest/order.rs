//! The order in which a behaviour meets the cases.

use std::collections::BTreeMap;

use modelbench_evidence::record::Rung;

use crate::suite::{AxisValue, Case, Tolerance};

/// Rounds that pass before whole models, endurance and large operands take part: they cost a hundred times as much as
/// one small op, and most behaviours are caught before.
const HEAD_START: usize = 4;
/// Product of the sizes from which a case waits for the small ones.
const LARGE: f64 = (1u64 << 18) as f64;
/// Axes that are numbers and no sizes.
const NO_SIZES: [&str; 3] = ["pos", "at", "draw"];

/// The same cases in turn: one of each group in each round, so that every family is met early. Within a group the
/// cheapest case comes first, then one from the middle, then from the quarters, and so on: what is wrong only for large
/// or only for odd sizes shows after few rounds. The order follows from the cases alone.
pub fn mixed(cases: &[Case]) -> Vec<Case> {
    let mut groups: BTreeMap<(usize, String), Vec<&Case>> = BTreeMap::new();
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    for case in cases {
        let name = format!("{}/{}/{}", case.rung.as_str(), case.family, case.group.name);
        let next = numbers.len();
        let number = *numbers.entry(name.clone()).or_insert(next);
        groups.entry((number, name)).or_default().push(case);
    }
    let mut placed = Vec::with_capacity(cases.len());
    for ((number, _), mut members) in groups {
        // Stable, so that equal costs keep the order of the suite.
        members.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
        for (round, case) in spread(members.len()).into_iter().filter_map(|i| members.get(i)).enumerate() {
            placed.push((round + if is_long(case) { HEAD_START } else { 0 }, number, *case));
        }
    }
    placed.sort_by_key(|(round, number, _)| (*round, *number));
    placed.into_iter().map(|(.., case)| case.clone()).collect()
}

/// The numbers below `n`, each between those before it where there is most room: the bits of a counter reversed.
fn spread(n: usize) -> Vec<usize> {
    let bits = n.max(2).next_power_of_two().trailing_zeros();
    let reversed = |i: usize| i.reverse_bits() >> (usize::BITS - bits);
    (0..1usize << bits).map(reversed).filter(|i| *i < n).collect()
}

fn is_long(case: &Case) -> bool {
    case.rung == Rung::R6 || matches!(case.group.tolerance, Tolerance::Ensemble { .. }) || cost(case) >= LARGE
}

/// The product of the sizes: not the time, but it grows with it within a group.
fn cost(case: &Case) -> f64 {
    let size = |value: &AxisValue| match value {
        AxisValue::Int(n) => (*n).max(1) as f64,
        AxisValue::Text(_) => 1.0,
    };
    let sizes = case.params().iter().filter(|(axis, _)| !NO_SIZES.contains(&axis.as_str()));
    sizes.map(|(_, value)| size(value)).product()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::suite::{SuiteTree, Suites};

    fn full() -> Vec<Case> {
        Suites::load(SuiteTree::embedded()).expect("suites").set("full").expect("full").cases
    }

    fn ids(cases: &[Case]) -> Vec<&str> {
        cases.iter().map(|case| case.id.as_str()).collect()
    }

    #[test]
    fn spreading_starts_at_the_ends_and_leaves_none_out() {
        assert_eq!(spread(8), [0, 4, 2, 6, 1, 5, 3, 7]);
        assert_eq!(spread(5), [0, 4, 2, 1, 3]);
        assert_eq!(spread(1), [0]);
        for n in 0..70 {
            let mut all = spread(n);
            all.sort_unstable();
            assert_eq!(all, (0..n).collect::<Vec<_>>());
        }
    }

    #[test]
    fn every_case_once_and_always_the_same() {
        let full = full();
        let order = mixed(&full);
        assert_eq!(order.len(), full.len());
        assert_eq!(ids(&order).into_iter().collect::<BTreeSet<_>>(), ids(&full).into_iter().collect());
        assert_ne!(ids(&order), ids(&full), "nothing was mixed");
        assert_eq!(ids(&order), ids(&mixed(&full)));
    }

    #[test]
    fn every_family_comes_before_any_group_has_its_turn_again() {
        let order = mixed(&full());
        let group = |case: &Case| (case.rung, case.family.clone(), case.group.name.clone());
        let mut seen = BTreeSet::new();
        let first_round: Vec<&Case> = order.iter().take_while(|case| seen.insert(group(case))).collect();
        let short: BTreeSet<_> = order.iter().filter(|case| !is_long(case)).map(group).collect();
        // A group may begin with a small case or have none at all.
        assert!(first_round.len() <= short.len() && first_round.len() * 10 >= short.len() * 9);
        assert!(first_round.iter().all(|case| !is_long(case)));
        let place = |id: &str| order.iter().position(|case| case.id.starts_with(id)).expect(id);
        assert!(place("r2/forward/bundled") > place("r1/rope/bound"));
    }
}
