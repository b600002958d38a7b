//! Operands made from operands: rows, columns, other orders, zeros behind, powers of two.

use modelbench_contract::{BackendError, HostTensor};

use crate::inputs::Operand;

/// Rows of an operand in a new order, or some of them. One row keeps its rank only if `matrix` is true.
///
/// # Errors
/// A contract error if a row does not exist.
pub(super) fn rows(operand: &Operand, order: &[usize], matrix: bool) -> Result<Operand, BackendError> {
    let n = operand.tensor.desc().row_len();
    let all = operand.tensor.desc().rows();
    if let Some(row) = order.iter().find(|row| **row >= all) {
        return Err(BackendError::invalid(format!("{} has {all} rows, not {}", operand.name, row + 1)));
    }
    let row_bytes = operand.tensor.bytes().len() / all;
    let pick = |values: &[f32]| -> Vec<f32> {
        order.iter().flat_map(|row| values[row * n..(row + 1) * n].iter().copied()).collect()
    };
    let bytes: Vec<u8> = order
        .iter()
        .flat_map(|row| &operand.tensor.bytes()[row * row_bytes..(row + 1) * row_bytes])
        .copied()
        .collect();
    let shape = if matrix { vec![order.len(), n] } else { vec![n] };
    Ok(Operand {
        name: operand.name,
        tensor: HostTensor::from_bytes(&shape, operand.tensor.dtype(), bytes)?,
        values: pick(&operand.values),
        magnitudes: operand.magnitudes.as_deref().map(pick),
    })
}

/// The columns `from..to` of every row; both must be whole blocks of the dtype.
///
/// # Errors
/// A contract error if they are not, or lie outside.
pub(super) fn columns(operand: &Operand, from: usize, to: usize) -> Result<Operand, BackendError> {
    let (desc, dtype) = (operand.tensor.desc(), operand.tensor.dtype());
    let (n, block) = (desc.row_len(), dtype.block_elements());
    if from >= to || to > n || !from.is_multiple_of(block) || !to.is_multiple_of(block) {
        return Err(BackendError::invalid(format!(
            "columns {from}..{to} of {} with rows of {n} {dtype}: expected whole blocks of {block}",
            operand.name
        )));
    }
    let row_bytes = operand.tensor.bytes().len() / desc.rows();
    let byte = |column: usize| column / block * (row_bytes / (n / block));
    let cut = |values: &[f32]| -> Vec<f32> {
        values.chunks(n).flat_map(|row| row[from..to].iter().copied()).collect()
    };
    let rows = operand.tensor.bytes().chunks(row_bytes);
    let bytes: Vec<u8> = rows.flat_map(|row| &row[byte(from)..byte(to)]).copied().collect();
    Ok(Operand {
        name: operand.name,
        tensor: HostTensor::from_bytes(&with_columns(operand, to - from), dtype, bytes)?,
        values: cut(&operand.values),
        magnitudes: operand.magnitudes.as_deref().map(cut),
    })
}

/// `more` zeros at the end of every row, whole blocks of the dtype; blocks of zero bytes stand for zeros.
///
/// # Errors
/// A contract error if they are not whole blocks.
pub(super) fn padded(operand: &Operand, more: usize) -> Result<Operand, BackendError> {
    let (desc, dtype) = (operand.tensor.desc(), operand.tensor.dtype());
    let (n, block) = (desc.row_len(), dtype.block_elements());
    if !more.is_multiple_of(block) {
        let text = format!("{more} zeros behind rows of {dtype}: expected whole blocks of {block}");
        return Err(BackendError::invalid(text));
    }
    let row_bytes = operand.tensor.bytes().len() / desc.rows();
    let zeros = more / block * (row_bytes / (n / block));
    let grow = |values: &[f32]| -> Vec<f32> {
        values.chunks(n).flat_map(|row| row.iter().copied().chain(std::iter::repeat_n(0.0, more))).collect()
    };
    let rows = operand.tensor.bytes().chunks(row_bytes);
    let bytes: Vec<u8> =
        rows.flat_map(|row| row.iter().copied().chain(std::iter::repeat_n(0, zeros))).collect();
    Ok(Operand {
        name: operand.name,
        tensor: HostTensor::from_bytes(&with_columns(operand, n + more), dtype, bytes)?,
        values: grow(&operand.values),
        magnitudes: operand.magnitudes.as_deref().map(grow),
    })
}

/// Every value of an f32 operand changed by its index and value.
///
/// # Errors
/// A contract error if the operand is not f32.
pub(super) fn mapped(operand: &Operand, change: impl Fn(usize, f32) -> f32) -> Result<Operand, BackendError> {
    if operand.tensor.dtype() != modelbench_contract::DType::F32 {
        let text = format!("{} is {}, expected f32", operand.name, operand.tensor.dtype());
        return Err(BackendError::invalid(text));
    }
    let values = operand.values.iter().enumerate().map(|(i, v)| change(i, *v)).collect();
    Operand::from_f32(operand.name, operand.shape(), values)
}

fn with_columns(operand: &Operand, n: usize) -> Vec<usize> {
    let mut shape = operand.shape().to_vec();
    if let Some(last) = shape.last_mut() {
        *last = n;
    }
    shape
}

#[cfg(test)]
mod tests {
    use modelbench_contract::{Backend, DType};
    use modelbench_reference::CpuRef;

    use super::*;
    use crate::inputs::Stream;
    use crate::suite::Recipe;

    /// The bytes of a made operand must stand for its values, whatever the format.
    #[test]
    fn bytes_and_values_stay_together() {
        for (dtype, n, block) in
            [(DType::F32, 12, 4), (DType::Bf16, 12, 4), (DType::Q8_0, 96, 32), (DType::Q4K, 768, 256)]
        {
            let stream = Stream::new(1, "slices", "w");
            let recipe = Recipe::Integers { max: 7, exponent: 0 };
            let w = Operand::make("w", &[3, n], dtype, recipe, &stream).expect("w");
            let made = [
                rows(&w, &[2, 0], true).expect("rows"),
                rows(&w, &[1], false).expect("one row"),
                columns(&w, block, n).expect("columns"),
                padded(&w, block).expect("padded"),
            ];
            assert_eq!(made[0].shape(), [2, n]);
            assert_eq!(made[1].shape(), [n]);
            assert_eq!(made[2].shape(), [3, n - block]);
            assert_eq!(made[3].shape(), [3, n + block]);
            assert_eq!(made[2].values[0], w.values[block]);
            let mut host = CpuRef::new();
            for operand in made {
                let tensor = host.upload(&operand.tensor, dtype).expect("uploaded");
                assert_eq!(host.read(&tensor).expect("read"), operand.values, "{dtype}");
            }
        }
        let w =
            Operand::make("w", &[3, 64], DType::Q8_0, Recipe::None, &Stream::new(1, "a", "b")).expect("w");
        assert!(columns(&w, 16, 64).is_err() && padded(&w, 16).is_err() && rows(&w, &[3], true).is_err());
    }
}
