//! One answer against what was wanted.

use modelbench_evidence::record::Quality;

use crate::oracle::Bounded;

/// What a case wants.
#[derive(Debug, Clone)]
pub enum Want {
    /// These values; `-0` equals `0`, NaN equals NaN.
    Exact(Vec<f32>),
    /// These values within a bound per element.
    Bounded(Bounded),
}

impl Want {
    /// The right answer in f32, rounded once.
    pub fn values(&self) -> Vec<f32> {
        match self {
            Want::Exact(values) => values.clone(),
            Want::Bounded(bounded) => bounded.want.iter().map(|&v| v as f32).collect(),
        }
    }
}

/// The judge's answer.
#[derive(Debug, Clone)]
pub struct Judgement {
    /// How far from the truth.
    pub quality: Quality,
    /// What is wrong, with the first elements; `None` if every element holds.
    pub wrong: Option<String>,
}

/// Most elements that a mismatch lists.
const LISTED: usize = 3;

/// Judges every element. `slack` is the suite's factor on the bound.
pub fn judge(want: &Want, got: &[f32], slack: f64) -> Judgement {
    let count = match want {
        Want::Exact(values) => values.len(),
        Want::Bounded(bounded) => bounded.want.len(),
    };
    if got.len() != count {
        let wrong = Some(format!("{} elements came back, {count} were wanted", got.len()));
        return Judgement { quality: Quality::default(), wrong };
    }
    let mut ratios = Vec::with_capacity(count);
    let (mut failed, mut lines, mut bias) = (0u64, Vec::new(), 0.0);
    let (mut inward, mut off) = (0u64, 0u64);
    for (i, &got) in got.iter().enumerate() {
        let (want, bound) = match want {
            Want::Exact(values) => (f64::from(values[i]), 0.0),
            Want::Bounded(bounded) => (bounded.want[i], bounded.bound[i] * slack),
        };
        let error = f64::from(got) - want;
        let held = if want.is_nan() {
            got.is_nan()
        } else if want.is_infinite() {
            f64::from(got) == want
        } else {
            // A NaN error compares false, so that a NaN answer never holds.
            error.abs() <= bound
        };
        if !held {
            failed += 1;
            if lines.len() < LISTED {
                lines.push(format!(
                    "[{i}] got {got:e}, want {want:e}, off by {:e}, bound {bound:e}",
                    error.abs()
                ));
            }
        }
        if want.is_finite() && bound > 0.0 {
            let ratio = error / bound;
            bias += ratio;
            ratios.push(ratio.abs());
            if error != 0.0 && want != 0.0 {
                off += 1;
                inward += u64::from(error.is_sign_negative() != want.is_sign_negative());
            }
        }
    }
    let wrong = (failed > 0).then(|| {
        let more = failed - lines.len() as u64;
        let rest = if more > 0 { format!("; {more} more") } else { String::new() };
        format!("{failed} of {count} elements are wrong: {}{rest}", lines.join("; "))
    });
    let inward = (off > 0).then(|| inward as f64 / off as f64);
    Judgement { quality: Quality { inward, ..quality(count, ratios, bias) }, wrong }
}

fn quality(elements: usize, mut ratios: Vec<f64>, bias: f64) -> Quality {
    ratios.sort_by(f64::total_cmp);
    // A record holds no infinity: a ratio that is not finite is a mismatch, which says so in words.
    let finite = |v: f64| v.is_finite().then_some(v);
    Quality {
        elements: elements as u64,
        worst: ratios.last().copied().and_then(finite),
        p99: ratios.get((ratios.len() * 99).div_ceil(100).saturating_sub(1)).copied().and_then(finite),
        bias: if ratios.is_empty() { None } else { finite(bias / ratios.len() as f64) },
        ..Quality::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounded(want: &[f64], bound: f64) -> Want {
        Want::Bounded(Bounded { want: want.to_vec(), bound: vec![bound; want.len()] })
    }

    #[test]
    fn one_bad_element_fails_and_is_listed() {
        let want = bounded(&[1.0, 2.0, 3.0], 0.25);
        assert!(judge(&want, &[1.25, 2.0, 3.0], 1.0).wrong.is_none());
        let judged = judge(&want, &[1.0, 2.5, 3.0], 1.0);
        assert!(judged.wrong.is_some_and(|w| w.contains("1 of 3") && w.contains("[1]")));
        assert_eq!(judged.quality.worst, Some(2.0));
    }

    #[test]
    fn nan_and_huge_values_never_hold() {
        let want = bounded(&[1.0], 1e30);
        for got in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(judge(&want, &[got], 1.0).wrong.is_some(), "{got}");
        }
        assert!(judge(&bounded(&[1.0; 4], 1e-6), &[1.0, 1e30, 1.0, 1.0], 1.0).wrong.is_some());
    }

    #[test]
    fn exact_means_equal_values() {
        assert!(judge(&Want::Exact(vec![0.0, f32::NAN]), &[-0.0, f32::NAN], 1.0).wrong.is_none());
        assert!(judge(&Want::Exact(vec![1.0]), &[1.0 + f32::EPSILON], 1.0).wrong.is_some());
        assert!(judge(&Want::Exact(vec![1.0]), &[], 1.0).wrong.is_some());
    }
}
