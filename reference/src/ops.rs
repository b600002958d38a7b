//! The arithmetic of cpu-ref over plain slices, with the same bits as the backend's ops.
//!
//! Errors are `InvalidArgument` for lengths that do not fit and `ResourceExhausted` for failed allocations.

use modelbench_contract::{BackendError, Result, RopeSpec};

pub use crate::attention::{CachedRows, attention};
pub use crate::q8_0::Q8;
use crate::{check, dot, norm, q4_k, q8_0};

fn whole_blocks(what: &str, len: usize, block: usize) -> Result<()> {
    if len > 0 && len.is_multiple_of(block) {
        return Ok(());
    }
    Err(BackendError::invalid(format!("{what} has {len} elements; expected a positive multiple of {block}")))
}

fn q8_pair(w: &Q8, x: &Q8) -> Result<()> {
    whole_blocks("q8_0 weight row", w.codes.len(), q8_0::BLOCK)?;
    check::same_len("q8_0 weight codes", w.codes.len(), "activation codes", x.codes.len())?;
    for (what, q8) in [("weight", w), ("activation", x)] {
        check::same_len(
            &format!("q8_0 {what} scales"),
            q8.scales.len(),
            "blocks",
            q8.codes.len() / q8_0::BLOCK,
        )?;
    }
    Ok(())
}

/// Dot product of two f32 rows of `matmul` and `batched_matmul`: eight lanes, a tree, the tail in order.
pub fn dot_f32(w: &[f32], x: &[f32]) -> Result<f32> {
    check::same_len("w", w.len(), "x", x.len())?;
    Ok(dot::dot8(w, x))
}

/// Quantises rows of whole blocks of 32: scale `amax/127`, codes rounded to nearest with ties away from zero.
pub fn quantise_q8_0(values: &[f32]) -> Result<Q8> {
    whole_blocks("values to quantise", values.len(), q8_0::BLOCK)?;
    q8_0::quantise(values)
}

/// Splits GGUF `q8_0` bytes (34 for each block of 32) into codes and widened scales.
pub fn q8_0_from_gguf(bytes: &[u8]) -> Result<Q8> {
    whole_blocks("q8_0 bytes", bytes.len(), 34)?;
    q8_0::from_gguf(bytes)
}

/// Values `code * scale` of `q8_0` rows.
pub fn dequantise_q8_0(rows: &Q8) -> Result<Vec<f32>> {
    q8_pair(rows, rows)?;
    let mut out = check::room("q8_0 values", rows.codes.len())?;
    out.extend(q8_0::values(&rows.codes, &rows.scales));
    Ok(out)
}

/// Dot product of `matmul` between a `q8_0` weight row and a quantised activation.
pub fn q8_dot(w: &Q8, x: &Q8) -> Result<f32> {
    q8_pair(w, x)?;
    Ok(q8_0::dot((&w.codes, &w.scales), (&x.codes, &x.scales)))
}

/// Dot product of `batched_matmul` between a `q8_0` weight row and a quantised activation.
pub fn q8_cell(w: &Q8, x: &Q8) -> Result<f32> {
    q8_pair(w, x)?;
    Ok(q8_0::cell((&w.codes, &w.scales), (&x.codes, &x.scales)))
}

/// Values of GGUF `q4_k` bytes (144 for each super-block of 256).
pub fn dequantise_q4_k(bytes: &[u8]) -> Result<Vec<f32>> {
    whole_blocks("q4_k bytes", bytes.len(), q4_k::SUPER_BLOCK_BYTES)?;
    let mut out = check::room("q4_k values", bytes.len() / q4_k::SUPER_BLOCK_BYTES * q4_k::SUPER_BLOCK)?;
    q4_k::dequantise(bytes, &mut out);
    Ok(out)
}

/// Dot product of a `q4_k` weight row, as GGUF bytes, with an f32 activation.
pub fn q4_k_dot(row: &[u8], x: &[f32]) -> Result<f32> {
    let values = dequantise_q4_k(row)?;
    check::same_len("q4_k row", values.len(), "x", x.len())?;
    Ok(q4_k::dot(&values, x))
}

/// `x / sqrt(mean(x^2) + eps) * weight` of one row.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32) -> Result<Vec<f32>> {
    check::same_len("x", x.len(), "weight", weight.len())?;
    check::scalar("eps", eps, eps >= 0.0, "a finite number of at least 0")?;
    let mut out = check::zeros("rms_norm result", x.len())?;
    norm::rms_norm_row(x, weight, eps, &mut out);
    Ok(out)
}

/// Rotates rows of `n_heads * head_dim` elements, row `p` at position `spec.pos + p`.
pub fn rope(x: &[f32], spec: RopeSpec) -> Result<Vec<f32>> {
    let row_len = check::product("[n_heads, head_dim] =", &[spec.n_heads, spec.head_dim])?;
    whole_blocks("x", x.len(), row_len.max(1))?;
    crate::rope::rope_rows(x, row_len, spec)
}

/// `silu(gate) * up`, elementwise.
pub fn swiglu(gate: &[f32], up: &[f32]) -> Result<Vec<f32>> {
    check::same_len("gate", gate.len(), "up", up.len())?;
    let mut out = check::room("swiglu result", gate.len())?;
    out.extend(gate.iter().zip(up).map(|(g, u)| crate::swiglu::swiglu(*g, *u)));
    Ok(out)
}

/// Index of the first maximum; NaN never replaces a value, and a NaN in front stays.
pub fn argmax(x: &[f32]) -> Result<usize> {
    crate::argmax::argmax(x)
        .ok_or_else(|| BackendError::invalid("argmax of no values; expected at least one"))
}
