//! The ops without a KV store. Operands are f32 unless they are weights of a product.

use candle_core::{D, Tensor};
use modelbench_contract::{BackendError, DeviceTensor, RopeSpec};

use crate::{
    CandleTensor,
    fault::Result,
    rope,
    shape::{admit, f32_operand, rows, same_shape, scalar, vector_of},
};

/// `x[P, in]` (or `[in]` for `rank` 1) times the transpose of `w[out, in]`: `[P, out]` (or `[out]`).
pub(crate) fn product(w: &CandleTensor, x: &CandleTensor, rank: usize) -> Result<CandleTensor> {
    let (ws, xs) = (w.desc().shape.as_slice(), x.desc().shape.as_slice());
    let &[out, inner] = ws else {
        return Err(BackendError::invalid(format!("w has shape {ws:?}; expected [out, in]")).into());
    };
    if xs.len() != rank || xs.last() != Some(&inner) {
        let expected = if rank == 1 { format!("[{inner}]") } else { format!("[P, {inner}]") };
        return Err(BackendError::invalid(format!(
            "w has shape {ws:?} and x has shape {xs:?}; expected x of shape {expected}"
        ))
        .into());
    }
    let (p, _) = rows("x", x)?;
    let x = f32_operand("x", x)?.reshape((p, inner))?;
    admit("product", &[p, out])?;
    let y = x.matmul(&w.widened()?.t()?)?;
    Ok(CandleTensor::from_f32(if rank == 1 { y.reshape(out)? } else { y }))
}

/// `x / sqrt(mean(x^2) + eps) * weight`, row by row.
pub(crate) fn rms_norm(x: &CandleTensor, weight: &CandleTensor, eps: f32) -> Result<CandleTensor> {
    let (p, n) = rows("x", x)?;
    vector_of("weight", weight, "x", x)?;
    scalar("eps", eps, eps >= 0.0, "a finite number, at least 0")?;
    let (values, weight) = (f32_operand("x", x)?, f32_operand("weight", weight)?);
    admit("norm", &[2, p, n])?;
    let rows = values.reshape((p, n))?;
    // A division by n, not a product with 1/n: the latter rounds twice.
    let count = Tensor::new(&[n as f32], values.device())?;
    let mean = rows.sqr()?.sum_keepdim(D::Minus1)?.broadcast_div(&count)?;
    let root = (mean + f64::from(eps))?.sqrt()?;
    let y = rows.broadcast_div(&root)?.broadcast_mul(weight)?;
    Ok(CandleTensor::from_f32(y.reshape(values.shape())?))
}

/// Rotated copy of `x`.
pub(crate) fn rope(x: &CandleTensor, spec: RopeSpec) -> Result<CandleTensor> {
    let (p, n) = rows("x", x)?;
    rope::check(p, spec.pos, spec.n_heads, spec.head_dim, spec.theta)?;
    if spec.n_heads * spec.head_dim != n {
        return Err(BackendError::invalid(format!(
            "x has shape {:?}; expected rows of {} elements for {} heads of {}",
            x.desc().shape,
            spec.n_heads * spec.head_dim,
            spec.n_heads,
            spec.head_dim
        ))
        .into());
    }
    let values = f32_operand("x", x)?;
    admit("rotation", &[6, p, n])?;
    let rotated = rope::rotate(&values.reshape((p, n))?, spec.pos, spec.n_heads, spec.head_dim, spec.theta)?;
    Ok(CandleTensor::from_f32(rotated.reshape(values.shape())?))
}

/// `silu(gate) * up`.
pub(crate) fn swiglu(gate: &CandleTensor, up: &CandleTensor) -> Result<CandleTensor> {
    same_shape("gate", gate, "up", up)?;
    let (gate, up) = (f32_operand("gate", gate)?, f32_operand("up", up)?);
    admit("swiglu", &[2, gate.elem_count()])?;
    Ok(CandleTensor::from_f32((gate.silu()? * up)?))
}

/// `dst += src`.
pub(crate) fn add_in_place(dst: &mut CandleTensor, src: &CandleTensor) -> Result<()> {
    same_shape("dst", dst, "src", src)?;
    let (a, b) = (f32_operand("dst", dst)?, f32_operand("src", src)?);
    admit("sum", &[a.elem_count()])?;
    let sum = (a + b)?;
    dst.replace(sum)
}

/// `dst[.., n] += bias[n]`.
pub(crate) fn add_bias(dst: &mut CandleTensor, bias: &CandleTensor) -> Result<()> {
    rows("dst", dst)?;
    vector_of("bias", bias, "dst", dst)?;
    let (a, b) = (f32_operand("dst", dst)?, f32_operand("bias", bias)?);
    admit("sum", &[a.elem_count()])?;
    let sum = a.broadcast_add(b)?;
    dst.replace(sum)
}

/// Index of the first maximum of `[n]`; NaN never replaces, and a NaN in front stays.
///
/// candle's own `argmax` promises no order among ties and nothing about NaN, so this takes the smallest index among
/// the elements equal to the maximum of the numbers.
pub(crate) fn argmax(logits: &CandleTensor) -> Result<usize> {
    let shape = &logits.desc().shape;
    let &[n] = shape.as_slice() else {
        return Err(BackendError::invalid(format!("logits have shape {shape:?}; expected [n]")).into());
    };
    let count = u32::try_from(n)
        .map_err(|_| BackendError::invalid(format!("{n} logits; expected at most {}", u32::MAX)))?;
    let x = f32_operand("logits", logits)?;
    if x.get(0)?.to_scalar::<f32>()?.is_nan() {
        return Ok(0);
    }
    admit("argmax", &[4, n])?;
    let device = x.device();
    let numbers = x.eq(x)?.where_cond(x, &Tensor::full(f32::NEG_INFINITY, n, device)?)?;
    let hits = numbers.broadcast_eq(&numbers.max_keepdim(0)?)?;
    let index = Tensor::arange(0u32, count, device)?;
    let first = hits.where_cond(&index, &Tensor::full(u32::MAX, n, device)?)?.min(0)?;
    Ok(first.to_scalar::<u32>()? as usize)
}
