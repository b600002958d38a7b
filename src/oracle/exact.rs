//! When a matrix product has one right answer to the last bit.

use super::arith::{exponent, power_of_two};

/// True if `w[.., k]` times `x[.., k]` gives the same bits in every order of summation, with or without FMA, in any
/// binary arithmetic with `p` significant bits and the exponents of f32, denormals flushed or not.
///
/// Each operand is scaled by its own power of two until all its values are integers; if `k*max|w|*max|x| <= 2^p`, every
/// partial sum is an integer that `p` bits hold, so that nothing is ever rounded. The units of operands and products must
/// also be normal numbers, and the largest sum finite. False if a value is not finite or the lengths are not whole rows.
pub fn is_exact_matmul(w: &[f32], x: &[f32], k: usize, p: u32) -> bool {
    if k == 0 || !w.len().is_multiple_of(k) || !x.len().is_multiple_of(k) {
        return false;
    }
    let (Some(w), Some(x)) = (Integers::of(w), Integers::of(x)) else { return false };
    if w.largest == 0.0 || x.largest == 0.0 {
        return true;
    }
    let unit = w.unit + x.unit;
    let largest = k as f64 * w.largest * x.largest;
    let (least, most) = (f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX));
    largest <= power_of_two(p.min(1023) as i32)
        && power_of_two(unit.min(w.unit).min(x.unit)) >= least
        && largest * power_of_two(unit) <= most
}

/// Values as integers times a power of two.
struct Integers {
    /// Exponent of that power.
    unit: i32,
    /// Largest magnitude of the integers.
    largest: f64,
}

impl Integers {
    fn of(values: &[f32]) -> Option<Integers> {
        let (mut unit, mut largest) = (i32::MAX, 0.0f64);
        for &value in values {
            if !value.is_finite() {
                return None;
            }
            if value != 0.0 {
                let v = f64::from(value);
                let significand = (v.to_bits() & ((1 << 52) - 1)) | (1 << 52);
                unit = unit.min(exponent(v) - 52 + significand.trailing_zeros() as i32);
                largest = largest.max(v.abs());
            }
        }
        let unit = if unit == i32::MAX { 0 } else { unit };
        Some(Integers { unit, largest: largest / power_of_two(unit) })
    }
}
