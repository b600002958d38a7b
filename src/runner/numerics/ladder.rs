//! The precisions that the probes tell apart, and what a result shows about them.

use modelbench_contract::Precision;

/// From the finest to the coarsest. `f16` comes before `bf16`: more bits, less range.
pub(super) const LADDER: [Precision; 5] =
    [Precision::F64, Precision::F32, Precision::Tf32, Precision::F16, Precision::Bf16];

/// Place of a precision in [`LADDER`].
pub(super) fn place(precision: Precision) -> usize {
    LADDER.iter().position(|&p| p == precision).unwrap_or(LADDER.len() - 1)
}

/// Smallest exponent of a normal number.
fn least_exponent(precision: Precision) -> i32 {
    match precision {
        Precision::F64 => -1022,
        Precision::F32 | Precision::Tf32 | Precision::Bf16 => -126,
        Precision::F16 => -14,
    }
}

/// Distance between neighbouring numbers of a precision around `value`.
///
/// A value that is rounded once, to nearest or in any direction, moves by less than this.
pub(super) fn spacing(precision: Precision, value: f64) -> f64 {
    let exponent = if value == 0.0 { i32::MIN } else { libm::ilogb(value) };
    let exponent = exponent.max(least_exponent(precision));
    // The unit roundoff is half the spacing above 1.
    libm::ldexp(2.0 * precision.unit_roundoff(), exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spacings_are_those_of_the_formats() {
        assert_eq!(spacing(Precision::F32, 1.5), f64::from(f32::EPSILON));
        assert_eq!(spacing(Precision::Tf32, 2049.0), 2.0);
        assert_eq!(spacing(Precision::F16, -2049.0), 2.0);
        assert_eq!(spacing(Precision::Bf16, 257.0), 2.0);
        assert_eq!(spacing(Precision::F16, 0.0), (-24f64).exp2());
        assert_eq!(spacing(Precision::F16, (-30f64).exp2()), (-24f64).exp2());
        assert_eq!(spacing(Precision::F32, (-140f64).exp2()), (-149f64).exp2());
        assert!(LADDER.iter().enumerate().all(|(i, &p)| place(p) == i));
    }
}
