//! Weights in 8-bit floats and in integer codes with a `QuantSpec`, with the exact values that they stand for.

use half::f16;
use modelbench_contract::{DType, QuantSpec};

use super::source::{Source, power_of_two};

/// Elements that share a scale where a row is whole blocks of them.
const BLOCK: usize = 32;
/// Most scales of a tensor: they travel in the header of a frame.
const MOST_SCALES: usize = 1024;
/// Largest magnitude of a zero point.
const ZERO_POINT: u64 = 3;

/// Value of an OCP 8-bit float; `None` for NaN and infinities.
fn fp8(dtype: DType, code: u8) -> Option<f32> {
    let (mantissa_bits, bias) = if dtype == DType::Fp8E4m3 { (3, 7) } else { (2, 15) };
    let magnitude = u32::from(code & 0x7f);
    let (exponent, mantissa) = (magnitude >> mantissa_bits, magnitude & ((1 << mantissa_bits) - 1));
    let special = if dtype == DType::Fp8E4m3 { magnitude == 0x7f } else { exponent == 31 };
    if special {
        return None;
    }
    let (significand, exponent) =
        if exponent == 0 { (mantissa, 1) } else { (mantissa | 1 << mantissa_bits, exponent) };
    let value = significand as f32 * power_of_two(exponent as i32 - bias - mantissa_bits);
    Some(if code & 0x80 == 0 { value } else { -value })
}

/// `count` codes, each the one nearest to what the recipe gives, and their values.
pub(super) fn floats(count: usize, dtype: DType, source: &Source<'_>) -> (Vec<u8>, Vec<f32>) {
    let mut table: Vec<(f32, u8)> = (0..=u8::MAX)
        .filter_map(|code| Some((fp8(dtype, code)?, code)))
        .filter(|(_, code)| *code != 0x80)
        .collect();
    table.sort_by(|a, b| a.0.total_cmp(&b.0));
    let nearest = |value: f32| {
        let above = table.partition_point(|(v, _)| *v < value).min(table.len() - 1);
        let below = above.saturating_sub(1);
        let closer = (table[below].0 - value).abs() < (table[above].0 - value).abs();
        table[if closer { below } else { above }]
    };
    (0..count as u64).map(|i| nearest(source.value(i))).map(|(value, code)| (code, value)).unzip()
}

/// A weight `[out, in]` of signed codes with its description.
pub(super) struct Coded {
    /// Bytes as the dtype stores them.
    pub(super) bytes: Vec<u8>,
    /// Value of each code.
    pub(super) values: Vec<f32>,
    /// Scales and zero points.
    pub(super) quant: QuantSpec,
}

/// Codes of `bits` bits. Scales lie in blocks of 32 along a row where that is possible, else one for each row or, where
/// there are more rows than columns, one for each column. Integer data is symmetric under power-of-two scales; other
/// data has zero points, and scales of 11 bits, so that each value is exact in f32.
pub(super) fn integers(shape: [usize; 2], bits: u8, source: &Source<'_>) -> Coded {
    let [out, inner] = shape;
    let largest = (1i64 << (bits - 1)) - 1;
    let in_blocks = inner.is_multiple_of(BLOCK) && out * (inner / BLOCK) <= MOST_SCALES;
    let (axis, block) = match (in_blocks, out > inner) {
        (true, _) => (1, BLOCK),
        (false, false) => (1, inner),
        (false, true) => (0, out),
    };
    let grid = if axis == 1 { inner / block } else { inner };
    let scale_of = |row: usize, column: usize| if axis == 1 { row * grid + column / block } else { column };
    let scales_count = if axis == 1 { out * grid } else { inner };
    let stream = source.stream();
    let exact = source.scale_exponent();
    let scale = |s: usize| match exact {
        // The first block of a row keeps the unit, so that sums of odd numbers stay odd in it.
        Some(exponent) => {
            let step = if axis == 1 && !s.is_multiple_of(grid) {
                stream.below(s as u64 | 1 << 59, 2) as i32
            } else {
                0
            };
            power_of_two(exponent + step)
        }
        None => {
            f16::from_f32((stream.real(s as u64 | 1 << 59).abs() + 0.5) * power_of_two(1 - i32::from(bits)))
                .to_f32()
        }
    };
    let scales: Vec<f32> = (0..scales_count).map(scale).collect();
    let zero_points: Vec<i32> = match exact {
        Some(_) => Vec::new(),
        None => (0..scales_count as u64)
            .map(|s| stream.below(s | 1 << 58, 2 * ZERO_POINT + 1) as i32 - ZERO_POINT as i32)
            .collect(),
    };
    let code = |i: usize| match exact {
        Some(_) => source.integer(i as u64).clamp(-largest, largest),
        None => stream.below(i as u64, 2 * largest as u64 + 1) as i64 - largest,
    };
    let codes: Vec<i64> = (0..out * inner).map(code).collect();
    let values = codes
        .iter()
        .enumerate()
        .map(|(i, &code)| {
            let s = scale_of(i / inner, i % inner);
            let zero = zero_points.get(s).copied().unwrap_or(0);
            (code - i64::from(zero)) as f32 * scales[s]
        })
        .collect();
    let bytes = if bits == 4 {
        codes
            .chunks(2)
            .map(|pair| (pair[0] as u8 & 15) | (pair.get(1).map_or(0, |&c| c as u8 & 15) << 4))
            .collect()
    } else {
        codes.iter().map(|&code| code as i8 as u8).collect()
    };
    let symmetric = zero_points.is_empty();
    Coded {
        bytes,
        values,
        quant: QuantSpec { block, axis, bits, symmetric, scales, zero_points, static_activation: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_bit_floats_have_their_known_ends() {
        let ends = |dtype| {
            let values: Vec<f32> = (0..=255).filter_map(|code| fp8(dtype, code)).collect();
            let least = values.iter().copied().filter(|v| *v > 0.0).fold(f32::INFINITY, f32::min);
            (values.len(), values.iter().copied().fold(0.0, f32::max), least)
        };
        assert_eq!(ends(DType::Fp8E4m3), (254, 448.0, 0.001953125));
        assert_eq!(ends(DType::Fp8E5m2), (248, 57344.0, 2f32.powi(-16)));
    }
}
