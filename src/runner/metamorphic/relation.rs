//! Relations between calls: plans, and equations between elements of their results.

use modelbench_contract::{Backend, Class, NumericProfile, Precision, Result};
use modelbench_reference::CpuRef;

use super::super::finding::{CheckError, Finding};
use super::super::ops::{OpPlan, truth};
use crate::compare::{Want, judge};
use crate::oracle::Bounded;
use crate::suite::{Case, Tolerance};

/// An element of a result: number of the plan, index in its result.
pub(super) type Place = (usize, usize);

/// `result[got] = factor * (result[sum.0] + result[sum.1] + ...)`.
#[derive(Debug, Clone)]
pub(super) struct Equation {
    pub(super) got: Place,
    pub(super) factor: f64,
    pub(super) sum: Vec<Place>,
}

/// Calls whose results must fit each other.
#[derive(Debug, Default)]
pub(super) struct Relation {
    pub(super) plans: Vec<OpPlan>,
    pub(super) equations: Vec<Equation>,
    /// True if a deterministic backend must meet the equations without any error, whatever the data.
    pub(super) exact: bool,
}

impl Relation {
    /// Adds an equation between single elements.
    pub(super) fn equal(&mut self, got: Place, want: Place) {
        self.equations.push(Equation { got, factor: 1.0, sum: vec![want] });
    }
}

/// What the equations want, and how far both sides together may be from the truth.
fn wanted(
    case: &Case,
    relation: &Relation,
    results: &[Vec<f32>],
    profile: &NumericProfile,
) -> Result<(Want, Vec<f32>, f64), CheckError> {
    let kit = |place: &Place| CheckError::Kit(format!("{}: no element {place:?}", case.id));
    let value = |place: &Place| -> Result<f64, CheckError> {
        let found = results.get(place.0).and_then(|r| r.get(place.1));
        found.map(|v| f64::from(*v)).ok_or_else(|| kit(place))
    };
    let free = relation.exact && profile.deterministic && !has_halves(profile);
    let exact = free || matches!(case.group.tolerance, Tolerance::Exact { .. });
    let mut factor_on_bound = 1.0;
    let mut bounds = Vec::new();
    for plan in relation.plans.iter().filter(|_| !free) {
        // For data that the suite calls exact this checks that they are.
        let (want, slack) = truth(case, plan, profile)?;
        if let Want::Bounded(Bounded { bound, .. }) = want {
            factor_on_bound = slack;
            bounds.push(bound);
        }
    }
    let bound = |place: &Place| -> Result<f64, CheckError> {
        if exact {
            return Ok(0.0);
        }
        bounds.get(place.0).and_then(|b| b.get(place.1)).copied().ok_or_else(|| kit(place))
    };
    let (mut all, mut got) = (Bounded { want: Vec::new(), bound: Vec::new() }, Vec::new());
    for equation in &relation.equations {
        let (mut sum, mut limit) = (0.0, 0.0);
        for place in &equation.sum {
            sum += value(place)?;
            limit += bound(place)?;
        }
        got.push(value(&equation.got)? as f32);
        all.want.push(equation.factor * sum);
        all.bound.push(equation.factor.abs() * limit + bound(&equation.got)?);
    }
    Ok((Want::Bounded(all), got, factor_on_bound))
}

/// Binary16 has so few exponents that scaled data may leave them; its backends get the bounds instead.
fn has_halves(profile: &NumericProfile) -> bool {
    profile.operand == Precision::F16 || profile.accumulator == Precision::F16
}

fn results<B: Backend>(backend: &mut B, relation: &Relation) -> Result<Vec<Vec<f32>>> {
    relation.plans.iter().map(|plan| plan.once(backend)).collect()
}

/// Runs every plan and judges the equations. What a result should have been is not asked, only that the results fit
/// each other within the sum of their bounds.
pub(super) fn hold<B: Backend>(
    case: &Case,
    relation: &Relation,
    backend: &mut B,
    class: Class,
    profile: &NumericProfile,
) -> Result<Finding, CheckError> {
    let mut host = CpuRef::new();
    let own = host.numerics();
    let reference = results(&mut host, relation)
        .map_err(|e| CheckError::Kit(format!("{}: cpu-ref refused the case: {e}", case.id)))?;
    let (want, values, slack) = wanted(case, relation, &reference, &own)?;
    if let Some(wrong) = judge(&want, &values, slack).wrong {
        return Err(CheckError::Kit(format!("{}: cpu-ref does not hold: {wrong}", case.id)));
    }

    let got = results(backend, relation)?;
    let mut finding = Finding::default();
    for (i, (values, reference)) in got.iter().zip(&reference).enumerate() {
        finding.output(values);
        finding.compare_bits(values, reference);
        finding.require(values.len() == reference.len(), || {
            format!("call {i} gave {} elements, want {}", values.len(), reference.len())
        });
        // A NaN equals a NaN, so that a backend which gives nothing else would meet every equation.
        finding.require(values.iter().all(|v| v.is_finite()), || {
            format!("call {i} gave a number that is not finite from finite operands")
        });
    }
    if !finding.wrong.is_empty() {
        return Ok(finding);
    }
    let (want, values, slack) = wanted(case, relation, &got, profile)?;
    let judged = judge(&want, &values, slack);
    finding.merge(judged.quality);
    finding.wrong.extend(judged.wrong);
    finding.require_bits(class);
    Ok(finding)
}
