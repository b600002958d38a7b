//! Checks of arguments and sizes, made before candle sees a call.

use candle_core::Tensor;
use modelbench_contract::{BackendError, DType, DeviceTensor, ErrorKind};

use crate::CandleTensor;

type Checked<T> = std::result::Result<T, BackendError>;

/// The f32 values of an operand.
///
/// # Errors
/// `InvalidArgument` naming the operand and its dtype if it is not f32.
pub(crate) fn f32_operand<'a>(what: &str, tensor: &'a CandleTensor) -> Checked<&'a Tensor> {
    let desc = tensor.desc();
    if desc.dtype == DType::F32 {
        return Ok(tensor.resident());
    }
    Err(BackendError::invalid(format!(
        "{what} is {} of shape {:?}; expected f32, upload it as f32",
        desc.dtype, desc.shape
    )))
}

/// Rows and row length of `[n]` or `[P, n]`.
///
/// # Errors
/// `InvalidArgument` for any other rank.
pub(crate) fn rows(what: &str, tensor: &CandleTensor) -> Checked<(usize, usize)> {
    match tensor.desc().shape.as_slice() {
        [n] => Ok((1, *n)),
        [p, n] => Ok((*p, *n)),
        shape => Err(BackendError::invalid(format!("{what} has shape {shape:?}; expected [n] or [P, n]"))),
    }
}

/// Refuses two operands whose shapes differ.
pub(crate) fn same_shape(a_name: &str, a: &CandleTensor, b_name: &str, b: &CandleTensor) -> Checked<()> {
    let (a, b) = (&a.desc().shape, &b.desc().shape);
    if a == b {
        return Ok(());
    }
    Err(BackendError::invalid(format!(
        "{a_name} has shape {a:?} and {b_name} has shape {b:?}; expected equal shapes"
    )))
}

/// Refuses a vector that is not as long as the rows it meets.
pub(crate) fn vector_of(what: &str, vector: &CandleTensor, of: &str, tensor: &CandleTensor) -> Checked<()> {
    let (v, t) = (&vector.desc().shape, tensor.desc());
    if v.as_slice() == [t.row_len()] {
        return Ok(());
    }
    Err(BackendError::invalid(format!(
        "{what} has shape {v:?} and {of} has shape {:?}; expected {what} of shape [{}]",
        t.shape,
        t.row_len()
    )))
}

/// Product of extents, small enough that as many f32 fit memory addresses.
///
/// # Errors
/// `InvalidArgument` naming the extents.
pub(crate) fn product(what: &str, extents: &[usize]) -> Checked<usize> {
    extents
        .iter()
        .try_fold(1usize, |n, &e| n.checked_mul(e))
        .filter(|n| *n <= isize::MAX as usize / size_of::<f32>())
        .ok_or_else(|| {
            BackendError::invalid(format!("{what} {extents:?}: the size does not fit memory; reduce it"))
        })
}

/// Asks the allocator for room for f32 values of these extents and gives it back.
///
/// candle allocates infallibly, so a size that the system would refuse must be found before candle ends the process.
///
/// # Errors
/// `InvalidArgument` if the size overflows, `ResourceExhausted` if the allocator refuses.
pub(crate) fn admit(what: &str, extents: &[usize]) -> Checked<()> {
    let n = product(what, extents)?;
    let mut probe: Vec<f32> = Vec::new();
    let outcome = probe.try_reserve_exact(n);
    // Without this the optimiser may drop the pair of allocation and release, and with it the check.
    std::hint::black_box(&mut probe);
    outcome.map_err(|_| {
        BackendError::new(ErrorKind::ResourceExhausted, format!("no memory for {what} {extents:?} as f32"))
    })
}

/// Refuses a scalar that is not a finite number in the accepted range.
pub(crate) fn scalar(what: &str, value: f32, accepted: bool, expected: &str) -> Checked<()> {
    if value.is_finite() && accepted {
        return Ok(());
    }
    Err(BackendError::invalid(format!("{what} is {value}; expected {expected}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_refused_before_they_are_allocated() {
        assert_eq!(admit("x", &[4, 8]), Ok(()));
        let overflow = admit("x", &[usize::MAX, 2]).map_err(|e| e.kind);
        assert_eq!(overflow, Err(ErrorKind::InvalidArgument));
        let huge = admit("x", &[1 << 30, 1 << 30]).map_err(|e| e.kind);
        assert_eq!(huge, Err(ErrorKind::ResourceExhausted));
    }
}
