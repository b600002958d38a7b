//! Root-mean-square normalisation.

/// Writes `x / sqrt(mean(x^2) + eps) * weight` of one row to `out`; all three have the same length.
///
/// The sum of squares runs in order in f32, only the inverse root is computed in f64.
pub(crate) fn rms_norm_row(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let mut squares = 0.0f32;
    for v in x {
        squares += v * v;
    }
    let mean = squares / x.len() as f32 + eps;
    let inverse = (1.0 / f64::from(mean).sqrt()) as f32;
    for ((o, v), w) in out.iter_mut().zip(x).zip(weight) {
        *o = (v * inverse) * w;
    }
}

#[cfg(test)]
mod tests {
    use super::rms_norm_row;

    #[test]
    fn a_constant_row_becomes_the_weight() {
        let mut out = [0.0; 3];
        rms_norm_row(&[2.0, -2.0, 2.0], &[1.0, 0.5, 3.0], 0.0, &mut out);
        assert_eq!(out, [1.0, -0.5, 3.0]);
    }

    #[test]
    fn eps_keeps_a_zero_row_finite_and_its_absence_does_not() {
        let mut out = [9.0; 2];
        rms_norm_row(&[0.0, 0.0], &[1.0, 1.0], 1e-5, &mut out);
        assert_eq!(out, [0.0, 0.0]);
        rms_norm_row(&[0.0, 0.0], &[1.0, 1.0], 0.0, &mut out);
        assert!(out.iter().all(|v| v.is_nan()), "0 * inf is NaN, got {out:?}");
    }
}
