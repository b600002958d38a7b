//! The truth of `argmax`.

use super::OracleError;

/// Index of the first maximum of `logits[n]`: the first element, replaced only by a strictly greater one. A NaN never
/// replaces a value and a NaN in front stays; `-0` and `0` are equal.
///
/// # Errors
/// `Shape` if there are no logits.
pub fn argmax(logits: &[f32]) -> Result<usize, OracleError> {
    let Some(&first) = logits.first() else {
        return Err(OracleError::Shape {
            op: "argmax",
            what: "logits",
            expected: "at least one".to_owned(),
            got: 0,
        });
    };
    let (mut best, mut index) = (first, 0);
    for (i, &v) in logits.iter().enumerate() {
        if v > best {
            (best, index) = (v, i);
        }
    }
    Ok(index)
}
