//! Signed bytes and nibbles whose scales are in a `QuantSpec`.

use modelbench_contract::{BackendError, DType, QuantSpec, Result};

use crate::check;

/// Refuses a `QuantSpec` that does not describe a tensor of this shape and dtype.
///
/// # Errors
/// `InvalidArgument` naming the field, its value and what was expected.
pub(crate) fn check_spec(shape: &[usize], dtype: DType, spec: &QuantSpec) -> Result<()> {
    let refuse =
        |what: String| Err(BackendError::invalid(format!("{dtype} tensor of shape {shape:?}: {what}")));
    let bits = if dtype == DType::I4 { 4 } else { 8 };
    if spec.bits != bits {
        return refuse(format!("QuantSpec bits is {}; expected {bits}", spec.bits));
    }
    let Some(&extent) = shape.get(spec.axis) else {
        return refuse(format!("QuantSpec axis is {}; expected below {}", spec.axis, shape.len()));
    };
    if spec.block == 0 || !extent.is_multiple_of(spec.block) {
        return refuse(format!(
            "QuantSpec block is {}; expected a divisor of the extent {extent}",
            spec.block
        ));
    }
    let elements = check::product("shape", shape)?;
    let blocks = elements / spec.block;
    if spec.scales.len() != blocks {
        return refuse(format!(
            "QuantSpec has {} scales; expected one per block, {blocks}",
            spec.scales.len()
        ));
    }
    let zero_points = if spec.symmetric { 0 } else { blocks };
    if spec.zero_points.len() != zero_points {
        let got = spec.zero_points.len();
        return refuse(format!(
            "QuantSpec has {got} zero points; expected {zero_points} (none when symmetric)"
        ));
    }
    Ok(())
}

/// Appends values `from..from+n` of the tensor, in row-major order, to `out`.
///
/// A value is `(code - zero_point) * scale`, the difference in integers. The spec has passed [`check_spec`]; for
/// `i4`, `from` and `n` are even.
pub(crate) fn dequantise(
    bytes: &[u8],
    shape: &[usize],
    dtype: DType,
    spec: &QuantSpec,
    from: usize,
    n: usize,
    out: &mut Vec<f32>,
) {
    // Elements with the same index along `axis` come in runs of `inner`; the blocks form a grid of the same shape
    // with the axis divided by the block.
    let inner: usize = shape.iter().skip(spec.axis + 1).product();
    let extent = shape.get(spec.axis).copied().unwrap_or(1);
    let grid_extent = extent / spec.block.max(1);
    let value = |index: usize, code: i8| {
        let (outer, rest) = (index / (extent * inner), index % (extent * inner));
        let block = (outer * grid_extent + rest / inner / spec.block) * inner + rest % inner;
        let zero = spec.zero_points.get(block).copied().unwrap_or(0);
        (i64::from(code) - i64::from(zero)) as f32 * spec.scales[block]
    };
    if dtype == DType::I4 {
        for (i, byte) in bytes[from / 2..(from + n) / 2].iter().enumerate() {
            let index = from + 2 * i;
            out.push(value(index, ((byte << 4) as i8) >> 4));
            out.push(value(index + 1, (*byte as i8) >> 4));
        }
    } else {
        let codes = &bytes[from..from + n];
        out.extend(codes.iter().enumerate().map(|(i, byte)| value(from + i, *byte as i8)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(block: usize, axis: usize, bits: u8, scales: &[f32], zero_points: &[i32]) -> QuantSpec {
        QuantSpec {
            block,
            axis,
            bits,
            symmetric: zero_points.is_empty(),
            scales: scales.to_vec(),
            zero_points: zero_points.to_vec(),
            static_activation: None,
        }
    }

    fn all(bytes: &[u8], shape: &[usize], dtype: DType, spec: &QuantSpec) -> Vec<f32> {
        check_spec(shape, dtype, spec).expect("a good spec");
        let (mut out, n) = (Vec::new(), shape.iter().product());
        dequantise(bytes, shape, dtype, spec, 0, n, &mut out);
        out
    }

    #[test]
    fn blocks_along_either_axis() {
        let bytes = [1u8, 2, 3, 0xff, 0x80, 0x7f, 0, 10];
        let along_last = spec(2, 1, 8, &[1.0, 10.0, 100.0, 0.5], &[]);
        let values = all(&bytes, &[2, 4], DType::I8, &along_last);
        assert_eq!(values, [1.0, 2.0, 30.0, -10.0, -12800.0, 12700.0, 0.0, 5.0]);
        let along_first = spec(2, 0, 8, &[1.0, 10.0, 100.0, 0.5], &[1, 0, 0, 2]);
        let values = all(&bytes, &[2, 4], DType::I8, &along_first);
        assert_eq!(values, [0.0, 20.0, 300.0, -1.5, -129.0, 1270.0, 0.0, 4.0]);
    }

    #[test]
    fn nibbles_low_first_and_signed() {
        let values = all(&[0xf8, 0x71], &[1, 4], DType::I4, &spec(4, 1, 4, &[2.0], &[]));
        assert_eq!(values, [-16.0, -2.0, 2.0, 14.0]);
    }

    #[test]
    fn a_span_equals_its_part_of_the_whole() {
        let bytes: Vec<u8> = (0..24u8).map(|b| b.wrapping_mul(37)).collect();
        let scales: Vec<f32> = (1..=12).map(|s| s as f32).collect();
        let quant = spec(2, 1, 8, &scales, &[]);
        let whole = all(&bytes, &[2, 4, 3], DType::I8, &quant);
        let mut part = Vec::new();
        dequantise(&bytes, &[2, 4, 3], DType::I8, &quant, 9, 6, &mut part);
        assert_eq!(part, whole[9..15]);
        // Element [1, 2, 1] is in block 1 of its column.
        assert_eq!(whole[12 + 7], f32::from(bytes[19] as i8) * scales[6 + 3 + 1]);
    }

    #[test]
    fn every_bad_spec_is_named() {
        let good = || spec(2, 1, 8, &[1.0; 4], &[]);
        let cases = [
            (QuantSpec { bits: 4, ..good() }, "bits is 4"),
            (QuantSpec { axis: 2, ..good() }, "axis is 2"),
            (QuantSpec { block: 3, ..good() }, "block is 3"),
            (QuantSpec { block: 0, ..good() }, "block is 0"),
            (QuantSpec { scales: vec![1.0; 3], ..good() }, "3 scales"),
            (QuantSpec { zero_points: vec![1], ..good() }, "1 zero points"),
            (QuantSpec { symmetric: false, ..good() }, "0 zero points"),
        ];
        for (bad, part) in cases {
            let error = check_spec(&[2, 4], DType::I8, &bad).expect_err("refused");
            assert!(error.message.contains(part), "{error} should contain {part}");
        }
    }
}
