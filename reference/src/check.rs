//! Checks of arguments, each with a message that names what was given and what was expected.

use modelbench_contract::{BackendError, DType, DeviceTensor, ErrorKind, Result};

use crate::RefTensor;

/// The values of an f32 tensor.
///
/// # Errors
/// `InvalidArgument` naming the argument and its dtype if it is not f32.
pub(crate) fn f32_values<'a>(what: &str, tensor: &'a RefTensor) -> Result<&'a [f32]> {
    tensor.as_f32().ok_or_else(|| {
        let desc = tensor.desc();
        BackendError::invalid(format!(
            "{what} is {} of shape {:?}; expected {}, upload it as f32",
            desc.dtype,
            desc.shape,
            DType::F32
        ))
    })
}

/// Rows and row length of a tensor `[n]` or `[P, n]`.
///
/// # Errors
/// `InvalidArgument` for any other rank.
pub(crate) fn rows(what: &str, tensor: &RefTensor) -> Result<(usize, usize)> {
    match tensor.desc().shape.as_slice() {
        [n] => Ok((1, *n)),
        [p, n] => Ok((*p, *n)),
        shape => Err(BackendError::invalid(format!("{what} has shape {shape:?}; expected [n] or [P, n]"))),
    }
}

/// Refuses two tensors whose shapes differ.
pub(crate) fn same_shape(a_name: &str, a: &RefTensor, b_name: &str, b: &RefTensor) -> Result<()> {
    let (a, b) = (&a.desc().shape, &b.desc().shape);
    if a == b {
        return Ok(());
    }
    Err(BackendError::invalid(format!(
        "{a_name} has shape {a:?} and {b_name} has shape {b:?}; expected equal shapes"
    )))
}

/// Refuses a vector that is not as long as the rows it meets.
pub(crate) fn vector_of(what: &str, vector: &RefTensor, of: &str, tensor: &RefTensor) -> Result<()> {
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

/// Refuses slices of different lengths.
pub(crate) fn same_len(a_name: &str, a: usize, b_name: &str, b: usize) -> Result<()> {
    if a == b {
        return Ok(());
    }
    Err(BackendError::invalid(format!(
        "{a_name} has {a} elements and {b_name} has {b}; expected equal lengths"
    )))
}

/// Product of extents.
///
/// # Errors
/// `InvalidArgument` naming the extents if the product, or its size in bytes as f32, does not fit memory addresses.
pub(crate) fn product(what: &str, extents: &[usize]) -> Result<usize> {
    extents
        .iter()
        .try_fold(1usize, |n, &e| n.checked_mul(e))
        .filter(|n| *n <= isize::MAX as usize / size_of::<f32>())
        .ok_or_else(|| {
            BackendError::invalid(format!("{what} {extents:?}: the size does not fit memory; reduce it"))
        })
}

/// An empty vector with room for `n` values.
///
/// # Errors
/// `ResourceExhausted` if the allocation fails.
pub(crate) fn room<T>(what: &str, n: usize) -> Result<Vec<T>> {
    let mut values = Vec::new();
    values.try_reserve_exact(n).map_err(|_| {
        BackendError::new(ErrorKind::ResourceExhausted, format!("no memory for {n} elements of {what}"))
    })?;
    Ok(values)
}

/// `n` zeros.
///
/// # Errors
/// `ResourceExhausted` if the allocation fails.
pub(crate) fn zeros(what: &str, n: usize) -> Result<Vec<f32>> {
    let mut values = room(what, n)?;
    values.resize(n, 0.0);
    Ok(values)
}

/// Refuses a scalar that is not a finite number in the accepted range.
pub(crate) fn scalar(what: &str, value: f32, accepted: bool, expected: &str) -> Result<()> {
    if value.is_finite() && accepted {
        return Ok(());
    }
    Err(BackendError::invalid(format!("{what} is {value}; expected {expected}")))
}
