//! `matmul` and `batched_matmul`: dispatch on the weight's dtype.

use modelbench_contract::{BackendError, DeviceTensor, ErrorKind, Op, Result};

use crate::tensor::Storage;
use crate::{RefTensor, check, dot, parallel, q4_k, q8_0};

/// `w[out, in]` times `x[in]`, values of `[out]`.
///
/// # Errors
/// `InvalidArgument` if the shapes do not fit or `x` is not f32; `Unimplemented` for a weight with a static activation
/// scale; `ResourceExhausted` if an allocation fails.
pub(crate) fn matmul(w: &RefTensor, x: &RefTensor) -> Result<Vec<f32>> {
    let (w_shape, x_shape) = (&w.desc().shape, &x.desc().shape);
    match (w_shape.as_slice(), x_shape.as_slice()) {
        (&[out, n], &[m]) if m == n => product(w, check::f32_values("x", x)?, [out, n, 1], q8_0::dot),
        _ => Err(misfit(Op::Matmul, w_shape, x_shape, "[in]")),
    }
}

/// `w[out, in]` times each row of `x[P, in]`: values and shape `[P, out]`.
///
/// # Errors
/// As [`matmul`].
pub(crate) fn batched_matmul(w: &RefTensor, x: &RefTensor) -> Result<(Vec<f32>, [usize; 2])> {
    let (w_shape, x_shape) = (&w.desc().shape, &x.desc().shape);
    match (w_shape.as_slice(), x_shape.as_slice()) {
        (&[out, n], &[p, m]) if m == n => {
            let by_output = product(w, check::f32_values("x", x)?, [out, n, p], q8_0::cell)?;
            Ok((transposed(by_output, out, p)?, [p, out]))
        }
        _ => Err(misfit(Op::BatchedMatmul, w_shape, x_shape, "[P, in]")),
    }
}

fn misfit(op: Op, w: &[usize], x: &[usize], expected: &str) -> BackendError {
    BackendError::invalid(format!("{op} of w {w:?} and x {x:?}; expected w [out, in] and x {expected}"))
}

type Q8Dot = fn((&[i8], &[f32]), (&[i8], &[f32])) -> f32;

/// Every weight row with every row of `x`, weight rows outermost: `[out, P]`. Each weight row is widened once.
fn product(w: &RefTensor, x: &[f32], [out, n, p]: [usize; 3], q8_dot: Q8Dot) -> Result<Vec<f32>> {
    let mut result = check::zeros("matmul result", check::product("[out, P] =", &[out, p])?)?;
    let work = out.saturating_mul(n).saturating_mul(p);
    match w.storage() {
        Storage::F32(values) => parallel::for_each_piece(&mut result, p, work, |row, piece, _| {
            let weights = &values[row * n..(row + 1) * n];
            for (o, x) in piece.iter_mut().zip(x.chunks_exact(n)) {
                *o = dot::dot8(weights, x);
            }
        }),
        Storage::Q8(weights) => {
            let activation = q8_0::quantise(x)?;
            parallel::for_each_piece(&mut result, p, work, |row, piece, _| {
                for (i, o) in piece.iter_mut().enumerate() {
                    *o = q8_dot(weights.row(row, n), activation.row(i, n));
                }
            });
        }
        Storage::Integer(_, spec) if spec.static_activation.is_some() => {
            return Err(BackendError::new(
                ErrorKind::Unimplemented,
                "cpu-ref does not quantise activations with a static scale; leave static_activation out",
            ));
        }
        Storage::Bytes(_) | Storage::Integer(..) => {
            let row_dot =
                if w.desc().dtype == modelbench_contract::DType::Q4K { q4_k::dot } else { dot::dot8 };
            parallel::for_each_piece(&mut result, p, work, |row, piece, weights| {
                w.widen_row(row, weights);
                for (o, x) in piece.iter_mut().zip(x.chunks_exact(n)) {
                    *o = row_dot(weights, x);
                }
            });
        }
    }
    Ok(result)
}

/// `[out, P]` to `[P, out]`.
fn transposed(by_output: Vec<f32>, out: usize, p: usize) -> Result<Vec<f32>> {
    if p == 1 {
        return Ok(by_output);
    }
    let mut result = check::room("matmul result", by_output.len())?;
    for i in 0..p {
        result.extend((0..out).map(|row| by_output[row * p + i]));
    }
    Ok(result)
}
