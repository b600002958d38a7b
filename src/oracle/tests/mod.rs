//! Tests of the oracle against naive f32 implementations, which share no code with it.
// A test may panic: that is how it fails.
#![allow(clippy::unwrap_used)]

mod attention;
mod data;
mod matmul;
mod models;
mod naive;
mod rows;
mod rules;

use super::Bounded;

/// Largest error in units of the bound; infinite where a bound of 0 is not met.
fn worst(bounded: &Bounded, got: &[f32]) -> f64 {
    assert_eq!(bounded.want.len(), got.len());
    assert_eq!(bounded.bound.len(), got.len());
    let ratio = |((want, bound), got): ((&f64, &f64), &f32)| {
        let error = (f64::from(*got) - want).abs();
        if error == 0.0 { 0.0 } else { error / bound }
    };
    let ratios = bounded.want.iter().zip(&bounded.bound).zip(got).map(ratio);
    ratios.fold(0.0, |m, r| if r.is_nan() { f64::INFINITY } else { m.max(r) })
}
