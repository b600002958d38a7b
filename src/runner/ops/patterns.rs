//! Logits for argmax, each pattern with one right answer by the contract's rule.

use crate::inputs::{Operand, Stream};
use crate::suite::Case;

use super::super::CheckError;

/// The patterns that a suite may name.
pub const PATTERNS: [&str; 12] = [
    "random",
    "tie-at-both-ends",
    "all-equal",
    "all-minus-infinity",
    "nan-in-front",
    "nan-inside",
    "minus-zero-first",
    "last",
    "infinity",
    "all-nan",
    "tie-at-block-ends",
    "only-finite-is-last",
];

/// Logits of a case, `[n]`.
///
/// # Errors
/// A suite error if the pattern is unknown or `n` is 0.
pub fn logits(case: &Case, seed: u64) -> Result<Operand, CheckError> {
    let n = case.size("n")?;
    let stream = Stream::new(seed, &case.id, "logits");
    let mut values: Vec<f32> = (0..n as u64).map(|i| stream.real(i)).collect();
    let Some(last) = n.checked_sub(1) else {
        return Err(case.invalid("n = 0: logits need at least one element").into());
    };
    match case.text("pattern")? {
        "random" => {}
        "tie-at-both-ends" => (values[0], values[last]) = (2.0, 2.0),
        "all-equal" => values.fill(-3.5),
        "all-minus-infinity" => values.fill(f32::NEG_INFINITY),
        "nan-in-front" => values[0] = f32::NAN,
        "nan-inside" => {
            for (i, value) in values.iter_mut().enumerate().skip(1) {
                if stream.below(i as u64 | 1 << 40, 3) == 0 {
                    *value = f32::NAN;
                }
            }
        }
        "minus-zero-first" => {
            values.iter_mut().for_each(|v| *v = -v.abs());
            values[n / 2] = -0.0;
            values[last] = 0.0;
        }
        "last" => values[last] = 2.0,
        "infinity" => values[n / 2] = f32::INFINITY,
        "all-nan" => values.fill(f32::NAN),
        // The last element of one block of 256 and the first of the next: two parts of a reduction hold the same maximum.
        "tie-at-block-ends" => {
            let second = (n / 2 / 256 * 256).min(last);
            (values[second.saturating_sub(1)], values[second]) = (2.0, 2.0);
        }
        "only-finite-is-last" => {
            values.fill(f32::NEG_INFINITY);
            values[last] = f32::MIN;
        }
        other => {
            let known = PATTERNS.join(", ");
            return Err(case.invalid(format!("pattern {other:?}: expected one of {known}")).into());
        }
    }
    Ok(Operand::from_f32("logits", &[n], values)?)
}
