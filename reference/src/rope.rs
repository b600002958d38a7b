//! Rotary position embedding, non-interleaved (rotate-half).

use modelbench_contract::{Result, RopeSpec};

use crate::check;

/// Frequencies `1/theta^(2j/head_dim)` of the pairs of a head, computed once for many rows.
pub(crate) struct Rotation {
    frequencies: Vec<f64>,
    head_dim: usize,
}

impl Rotation {
    /// Frequencies for heads of `head_dim` elements.
    ///
    /// # Errors
    /// `InvalidArgument` if `head_dim` is odd or 0, or `theta` is not a positive finite number; `ResourceExhausted` if
    /// the allocation fails.
    pub(crate) fn new(head_dim: usize, theta: f32) -> Result<Self> {
        if head_dim == 0 || !head_dim.is_multiple_of(2) {
            return Err(modelbench_contract::BackendError::invalid(format!(
                "head_dim is {head_dim}; expected an even number of at least 2"
            )));
        }
        check::scalar("theta", theta, theta > 0.0, "a finite number above 0")?;
        let mut frequencies = check::room("rope frequencies", head_dim / 2)?;
        frequencies.extend((0..head_dim / 2).map(|j| {
            let exponent = (2 * j) as f64 / head_dim as f64;
            1.0 / libm::pow(f64::from(theta), exponent)
        }));
        Ok(Rotation { frequencies, head_dim })
    }

    /// Rotates every head of one row at position `pos`. A row is whole heads.
    pub(crate) fn rotate(&self, row: &mut [f32], pos: usize) {
        let half = self.head_dim / 2;
        for (j, frequency) in self.frequencies.iter().enumerate() {
            let angle = pos as f64 * frequency;
            let (cos, sin) = (libm::cos(angle) as f32, libm::sin(angle) as f32);
            for head in row.chunks_exact_mut(self.head_dim) {
                let (a, b) = (head[j], head[j + half]);
                head[j] = a * cos - b * sin;
                head[j + half] = b * cos + a * sin;
            }
        }
    }
}

/// Rotates the rows of `x` (length a multiple of the row), row `p` at `spec.pos + p`.
///
/// # Errors
/// `InvalidArgument` if `row_len` is not `n_heads * head_dim`, if positions overflow, or as [`Rotation::new`];
/// `ResourceExhausted` if the allocation fails.
pub(crate) fn rope_rows(x: &[f32], row_len: usize, spec: RopeSpec) -> Result<Vec<f32>> {
    let rotation = Rotation::new(spec.head_dim, spec.theta)?;
    let expected = check::product("[n_heads, head_dim] =", &[spec.n_heads, spec.head_dim])?;
    if row_len != expected || row_len == 0 {
        return Err(modelbench_contract::BackendError::invalid(format!(
            "rope rows have {row_len} elements; expected n_heads {} * head_dim {} = {expected}, at least one head",
            spec.n_heads, spec.head_dim
        )));
    }
    let rows = x.len() / row_len;
    // Positions become f64 exactly up to 2^53; beyond it neighbouring positions would share an angle.
    if spec.pos.checked_add(rows).is_none_or(|end| end as u64 > 1 << 53) {
        return Err(modelbench_contract::BackendError::invalid(format!(
            "rope position {} with {rows} rows; expected positions up to 2^53",
            spec.pos
        )));
    }
    let mut out = check::room("rope result", x.len())?;
    out.extend_from_slice(x);
    for (p, row) in out.chunks_exact_mut(row_len).enumerate() {
        rotation.rotate(row, spec.pos + p);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use modelbench_contract::ErrorKind;

    use super::*;

    fn spec(pos: usize, n_heads: usize, head_dim: usize) -> RopeSpec {
        RopeSpec { pos, n_heads, head_dim, theta: 10000.0 }
    }

    #[test]
    fn position_zero_is_the_identity_and_rows_advance() {
        let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        let two = rope_rows(&x, 4, spec(0, 1, 4)).expect("rotated");
        assert_eq!(two[..4], x[..4]);
        assert_eq!(two[4..], rope_rows(&x[4..], 4, spec(1, 1, 4)).expect("rotated"));
        assert_ne!(two[4..], x[4..]);
    }

    #[test]
    fn pairs_are_half_a_head_apart() {
        // Frequency 0 is 1: at position 1 the pair (0, 2) turns by one radian, and (1, 3) hardly moves.
        let y = rope_rows(&[1.0, 0.0, 0.0, 0.0], 4, spec(1, 1, 4)).expect("rotated");
        assert_eq!(y, [0.540_302_3, 0.0, 0.841_470_96, 0.0]);
    }

    #[test]
    fn bad_specs_are_refused() {
        for bad in [
            spec(0, 1, 3),
            spec(0, 1, 0),
            spec(0, 0, 4),
            spec(0, 2, 4),
            spec(usize::MAX, 1, 4),
            spec(0, usize::MAX, 4),
            RopeSpec { theta: 0.0, ..spec(0, 1, 4) },
            RopeSpec { theta: f32::NAN, ..spec(0, 1, 4) },
        ] {
            let error = rope_rows(&[1.0; 4], 4, bad).expect_err("refused");
            assert_eq!(error.kind, ErrorKind::InvalidArgument, "{bad:?}: {error}");
        }
    }
}
