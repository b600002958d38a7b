//! Every case of the op vectors against cpu-ref, the oracle and the slow evaluator.

use std::collections::BTreeMap;

use modelbench_contract::Backend;
use modelbench_reference::CpuRef;
use safetensors::SafeTensors;

use crate::case::{self, Case};
use crate::limits::{self, Limit};
use crate::{cpu_ref, file, oracle, slow};

/// Cases of each op, as the generator printed them.
const COUNTS: [(&str, usize); 9] = [
    ("add_bias", 5),
    ("add_in_place", 6),
    ("argmax", 15),
    ("attention", 32),
    ("batched_matmul", 18),
    ("matmul", 37),
    ("rms_norm", 18),
    ("rope", 25),
    ("swiglu", 7),
];

fn cases() -> Vec<Case> {
    let bytes = file::read("ops_f64.safetensors");
    case::all(&SafeTensors::deserialize(&bytes).unwrap())
}

/// A disagreement, in words.
fn defect(case: &Case, who: &str, i: usize, got: f64, allowed: f64) -> String {
    format!(
        "defect of the kit: {who} answers {got:e} for {}[{i}], the golden says {:e}, {allowed:e} is allowed",
        case.name, case.want[i]
    )
}

/// A float64 evaluation against the golden. Returns the largest error as a share of the limit.
fn check_f64(case: &Case, who: &str, got: &[f64], limit: Option<&Limit>) -> Result<f64, String> {
    if got.len() != case.want.len() {
        return Err(format!("defect of the kit: {who} gives {} values for {}", got.len(), case.name));
    }
    let mut worst = 0.0f64;
    for (i, (&got, &want)) in got.iter().zip(&case.want).enumerate() {
        if want.is_nan() && got.is_nan() {
            continue;
        }
        // What has one right answer has no tolerance.
        let allowed = match limit {
            Some(limit) if !case.exact => limit.relative * case.size[i] + limit.absolute,
            _ => 0.0,
        };
        let error = (got - want).abs();
        if error.is_nan() || error > allowed {
            return Err(defect(case, who, i, got, allowed));
        }
        if allowed > 0.0 {
            worst = worst.max(error / allowed);
        }
    }
    Ok(worst)
}

/// cpu-ref against the golden, within the bound that the oracle derives for it. Returns the largest error as a share
/// of the bound.
fn check_f32(case: &Case, got: &[f32], bound: &[f64]) -> Result<f64, String> {
    if got.len() != case.want.len() || bound.len() != got.len() {
        return Err(format!("defect of the kit: cpu-ref gives {} values for {}", got.len(), case.name));
    }
    let mut worst = 0.0f64;
    for (i, ((&got, &want), &bound)) in got.iter().zip(&case.want).zip(bound).enumerate() {
        if case.exact {
            if got != want as f32 {
                return Err(defect(case, "cpu-ref", i, f64::from(got), 0.0));
            }
            continue;
        }
        if want.is_nan() && got.is_nan() {
            continue;
        }
        if !bound.is_finite() {
            return Err(format!(
                "defect of the kit: the oracle has no bound for {}[{i}] = {want:e}",
                case.name
            ));
        }
        let error = (f64::from(got) - want).abs();
        if error.is_nan() || error > bound {
            return Err(defect(case, "cpu-ref", i, f64::from(got), bound));
        }
        if bound > 0.0 {
            worst = worst.max(error / bound);
        }
    }
    Ok(worst)
}

/// The three checks of a case, in the order oracle, slow evaluator, cpu-ref.
fn check(case: &Case, limit: Option<&Limit>) -> [Result<f64, String>; 3] {
    let (profile, allowance) = (CpuRef::new().numerics(), oracle::tightest(case.op()));
    let bounded = match oracle::ask(case, &profile, &allowance) {
        Ok(bounded) => bounded,
        Err(e) => {
            let refused = format!("defect of the kit: the oracle refuses {}: {e}", case.name);
            return [Err(refused.clone()), Err(refused.clone()), Err(refused)];
        }
    };
    [
        check_f64(case, "the oracle", &bounded.want, limit),
        check_f64(case, "the slow evaluator", &slow::evaluate(&case.call), limit),
        check_f32(case, &cpu_ref::run(case), &bounded.bound),
    ]
}

#[test]
fn all_three_evaluators_meet_every_golden() {
    let limits = limits::read();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut shares: BTreeMap<String, [f64; 3]> = BTreeMap::new();
    let mut defects = Vec::new();
    for case in cases() {
        *counts.entry(case.op().to_owned()).or_default() += 1;
        let limit = limits.get(case.op());
        assert!(limit.is_some() || case.op() == "argmax", "limits.toml has no limit for {}", case.op());
        let worst = shares.entry(case.op().to_owned()).or_default();
        for (worst, result) in worst.iter_mut().zip(check(&case, limit)) {
            match result {
                Ok(share) => *worst = worst.max(share),
                Err(defect) => defects.push(defect),
            }
        }
    }
    assert!(defects.is_empty(), "{}", defects.join("\n"));
    for (op, [oracle, slow, cpu_ref]) in &shares {
        println!(
            "{op}: oracle {oracle:.3} and slow {slow:.3} of the limit, cpu-ref {cpu_ref:.3} of the bound"
        );
    }
    let counts: Vec<(&str, usize)> = counts.iter().map(|(op, n)| (op.as_str(), *n)).collect();
    assert_eq!(counts, COUNTS, "every case of every op was compared");
    let unused: Vec<&String> =
        limits.keys().filter(|op| *op != "whole_model" && !shares.contains_key(*op)).collect();
    assert!(unused.is_empty(), "limits.toml has limits without cases: {unused:?}");
}

#[test]
fn a_disagreement_is_found_and_called_a_defect_of_the_kit() {
    let limits = limits::read();
    for mut case in cases() {
        let limit = limits.get(case.op()).cloned();
        let at = case.want.iter().position(|want| !want.is_nan()).unwrap();
        // One right answer is off by one; others by an eighth of their condition, and more than a denormal rounds.
        case.want[at] += case.size[at] / 8.0 + if case.exact { 1.0 } else { f64::from(f32::MIN_POSITIVE) };
        for result in check(&case, limit.as_ref()) {
            let defect = result.expect_err(&case.name);
            assert!(defect.contains("defect of the kit") && defect.contains(&case.name), "{defect}");
        }
    }
}
