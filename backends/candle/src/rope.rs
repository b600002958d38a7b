//! Rotary position embedding, non-interleaved.

use candle_core::Tensor;
use modelbench_contract::BackendError;

use crate::{
    fault::Result,
    shape::{product, scalar},
};

/// Checks head size, base and the last position of `rows` rows from `pos`.
///
/// # Errors
/// `InvalidArgument` naming the attribute.
pub(crate) fn check(rows: usize, pos: usize, n_heads: usize, head_dim: usize, theta: f32) -> Result<()> {
    if n_heads == 0 || head_dim == 0 || !head_dim.is_multiple_of(2) {
        return Err(BackendError::invalid(format!(
            "{n_heads} heads of {head_dim} elements; expected at least one head and an even, positive head_dim"
        ))
        .into());
    }
    scalar("theta", theta, theta > 0.0, "a finite number above 0")?;
    if pos.checked_add(rows).is_none() {
        return Err(BackendError::invalid(format!(
            "pos {pos} with {rows} rows; expected a last position that fits an index"
        ))
        .into());
    }
    product("heads and head_dim", &[n_heads, head_dim])?;
    Ok(())
}

/// Rotates `x` `[P, n_heads*head_dim]`, row `p` at `pos + p`. The attributes have passed [`check`].
pub(crate) fn rotate(x: &Tensor, pos: usize, n_heads: usize, head_dim: usize, theta: f32) -> Result<Tensor> {
    let rows = x.dim(0)?;
    let half = head_dim / 2;
    let (mut cos, mut sin) = (Vec::new(), Vec::new());
    for row in 0..rows {
        for j in 0..half {
            // Angles need f64: at position 100,000 an f32 angle is off by thousands of units of the result.
            let freq = f64::from(theta).powf(-((2 * j) as f64) / head_dim as f64);
            let (s, c) = ((pos + row) as f64 * freq).sin_cos();
            cos.push(c as f32);
            sin.push(s as f32);
        }
    }
    let cos = Tensor::from_vec(cos, (rows, 1, 1, half), x.device())?;
    let sin = Tensor::from_vec(sin, (rows, 1, 1, half), x.device())?;
    let pairs = x.reshape((rows, n_heads, 2, half))?;
    let (a, b) = (pairs.narrow(2, 0, 1)?.contiguous()?, pairs.narrow(2, 1, 1)?.contiguous()?);
    let first = (a.broadcast_mul(&cos)? - b.broadcast_mul(&sin)?)?;
    let second = (b.broadcast_mul(&cos)? + a.broadcast_mul(&sin)?)?;
    Ok(Tensor::cat(&[first, second], 2)?.reshape((rows, n_heads * head_dim))?)
}
