//! What `explain` says of a case: its data, its oracle, the bound with its numbers, and what it can tell apart.

use super::finding::CheckError;
use super::models::{Limits, Models, Subject};
use super::{caps, contract, endurance, forward, generation, layer, metamorphic, numerics, ops, state};
use crate::compare::{GARBAGE, Want};
use crate::suite::{Case, Tolerance};

/// Lines that say how the truth of a case is found, with its numbers, for a backend that declares plain f32.
///
/// # Errors
/// A suite error, or a defect of the kit.
pub fn explain(case: &Case, seed: u64) -> Result<Vec<String>, CheckError> {
    let case = &case.drawn(seed);
    let mut lines = Vec::new();
    for name in case.group.random.keys() {
        lines.push(format!("drawn      {name} = {}", case.size(name)?));
    }
    lines.push(rule(&case.group.tolerance));
    let check = case.group.check.as_str();
    if ops::axes(check).is_some() {
        lines.extend(ops::explain(check, case, seed)?);
    } else if numerics::axes(check).is_some() {
        lines.extend(numerics::explain(case, seed)?);
    } else if check == "layer" {
        lines.push(
            "oracle     float64: every op of the layer, each with the errors of its operands".to_owned(),
        );
        if let Want::Bounded(bounded) = layer::question(case, seed)?.want {
            let largest = bounded.bound.iter().copied().fold(0.0, f64::max);
            let (want, bound) = (bounded.want.first(), bounded.bound.first());
            lines.push(format!(
                "bound      running error of the chain, u = 2^-24: want[0] = {:e}, bound[0] = {:e}, largest {largest:e}",
                want.copied().unwrap_or(0.0),
                bound.copied().unwrap_or(0.0)
            ));
        }
    } else if check == "forward" || generation::CHECKS.contains(&check) {
        lines.extend(model(case, seed)?);
    } else {
        lines.push(format!("oracle     {}", oracle(check)));
        // The data of the first call; cases of several calls change it in the ways that their group describes.
        if (state::axes(check).is_some() || metamorphic::axes(check).is_some())
            && case.params().contains_key("op")
        {
            lines.extend(ops::explain(case.text("op")?, case, seed)?);
        }
    }
    lines.push(rejects(case));
    Ok(lines)
}

fn rule(tolerance: &Tolerance) -> String {
    match tolerance {
        Tolerance::Exact { .. } => "rule       every element must be equal; -0 equals 0".to_owned(),
        Tolerance::Bound { slack, .. } => {
            format!("rule       |got - want| <= {slack} * bound, the bound derived per element from the data")
        }
        Tolerance::Ensemble { runs, multiple, cosine_floor, .. } => format!(
            "rule       |got - want| <= {multiple} * the largest deviation over {runs} perturbed references; cosine >= \
             {cosine_floor}"
        ),
    }
}

fn oracle(check: &str) -> &'static str {
    if contract::axes(check).is_some() {
        "the rules of the contract: the bytes that were sent, errors of the right kind, a store as it was filled"
    } else if caps::axes(check).is_some() {
        "what the cap promises, measured from outside the backend, and the float64 truth of its answers"
    } else if state::axes(check).is_some() {
        "the float64 truth of every answer, and equal bits wherever nothing that matters differs"
    } else if metamorphic::axes(check).is_some() {
        "a relation between answers: equal, or each within its own bound"
    } else if endurance::axes(check).is_some() {
        "the float64 truth of every answer, and the limits that the group states"
    } else if check == "evict" {
        "float64 rotation of the survivors, and attention over what the store says it holds"
    } else {
        "the identities of rung 4: sums in rank order, exact for integers"
    }
}

/// What is known of a model case: the model is the bundled one where the case speaks of the model under test.
fn model(case: &Case, seed: u64) -> Result<Vec<String>, CheckError> {
    let limits = Limits::of(case)?;
    let subject = Subject::open(None).map_err(|e| CheckError::Kit(e.to_string()))?;
    forward::with_model(case, &mut Models::new(subject), |models, subject| {
        let tokens = subject.tokens(seed);
        let truth = models.truth(subject, &tokens, limits, &modelbench_contract::NumericProfile::F32)?;
        let last = tokens.len().saturating_sub(1);
        let (row, allowed) = (truth.row(last), truth.limits(last));
        let largest = allowed.iter().copied().fold(0.0, f64::max);
        Ok(vec![
            format!("data       {} tokens of {}: {tokens:?}", tokens.len(), subject.reference().name),
            "oracle     float64 forward pass, checked against the stored golden where there is one; cpu-ref beside it"
                .to_owned(),
            format!(
                "bound      multiple * spread, the noise of each op's result u*sqrt(n) with u = 2^-24; at the last position \
                 want[0] = {:e}, bound[0] = {:e}, largest {largest:e}",
                row.first().copied().unwrap_or(0.0),
                allowed.first().copied().unwrap_or(0.0)
            ),
        ])
    })
}

fn rejects(case: &Case) -> String {
    let Some(accepts) = &case.accepts else {
        return "rejects    answers yes or no; that it can fail is shown on the zoo (modelbench selftest)"
            .to_owned();
    };
    let rejected: Vec<&str> =
        GARBAGE.into_iter().filter(|name| !accepts.iter().any(|accepted| accepted == name)).collect();
    let blind = if accepts.is_empty() {
        String::new()
    } else {
        format!("; cannot tell from right: {}", accepts.join(", "))
    };
    format!("rejects    {}{blind}", rejected.join(", "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::suite::{SuiteTree, Suites};

    #[test]
    fn every_group_can_be_explained() {
        let suites = Suites::load(SuiteTree::embedded()).unwrap();
        let mut seen = BTreeSet::new();
        for case in &suites.cases {
            if !seen.insert((case.file.clone(), case.line)) {
                continue;
            }
            let lines = explain(case, 7).unwrap_or_else(|e| panic!("{}: {e}", case.id));
            let has = |head: &str| lines.iter().any(|line| line.starts_with(head));
            assert!(has("rule ") && has("rejects "), "{}: {lines:?}", case.id);
            let bounded = !matches!(case.group.tolerance, Tolerance::Exact { .. });
            assert!(!bounded || has("bound ") || has("oracle ") || has("probe"), "{}: {lines:?}", case.id);
        }
        assert!(seen.len() > 100, "{} groups", seen.len());
    }
}
