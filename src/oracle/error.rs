//! Why the oracle could not answer.

/// A question that the oracle cannot answer as it was put.
#[derive(Debug, thiserror::Error)]
pub enum OracleError {
    /// An operand has another number of elements than the op needs.
    #[error("oracle {op}: {what} has {got} elements, expected {expected}")]
    Shape {
        /// The op that was asked.
        op: &'static str,
        /// The operand.
        what: &'static str,
        /// What its length must be, in words.
        expected: String,
        /// Its length.
        got: usize,
    },
    /// A size is zero, odd where it must be even, or does not divide another one.
    #[error("oracle {op}: {why}")]
    Size {
        /// The op that was asked.
        op: &'static str,
        /// What is wrong and what was expected.
        why: String,
    },
    /// Finite data whose intermediate results leave the range of the declared precision: no bound holds for them.
    #[error(
        "oracle {op}: {what} reaches {value:e}, and the declared precision ends at {limit:e}; use smaller data"
    )]
    Range {
        /// The op that was asked.
        op: &'static str,
        /// Which quantity.
        what: &'static str,
        /// Its largest magnitude.
        value: f64,
        /// Largest finite number of the precision.
        limit: f64,
    },
    /// A weight of the model could not be read or has the wrong size.
    #[error("oracle forward: weight {name}: {why}")]
    Weight {
        /// Canonical name of the weight.
        name: String,
        /// What the source said, or the size that was expected.
        why: String,
    },
}

/// Checks the length of an operand.
pub(super) fn check_len(
    op: &'static str,
    what: &'static str,
    got: usize,
    shape: &[usize],
) -> Result<(), OracleError> {
    let elements = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    if elements == Some(got) {
        return Ok(());
    }
    Err(OracleError::Shape { op, what, expected: format!("the product of {shape:?}"), got })
}

/// Checks that an operand is whole rows of `row` elements, at least one, and returns how many.
pub(super) fn check_rows(
    op: &'static str,
    what: &'static str,
    got: usize,
    row: usize,
) -> Result<usize, OracleError> {
    if row > 0 && got > 0 && got.is_multiple_of(row) {
        return Ok(got / row);
    }
    Err(OracleError::Shape { op, what, expected: format!("one or more rows of {row}"), got })
}
