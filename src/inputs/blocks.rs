//! Quantised weight blocks in the GGUF formats, made from random codes, with the values that they stand for.

use half::f16;

use super::source::{Source, power_of_two};

/// Elements of a block of `q8_0`.
const Q8_BLOCK: usize = 32;

/// Scale of a block: a power of two for integer data, so that every product is exact; any binary16 otherwise. Only the
/// blocks that open a row keep the unit: a neighbour's scale shows.
fn scale(source: &Source<'_>, i: u64, opens_row: bool) -> f16 {
    f16::from_f32(match source.scale_exponent() {
        Some(exponent) => {
            power_of_two(exponent + if opens_row { 0 } else { source.stream().below(i, 2) as i32 })
        }
        None => (source.stream().real(i).abs() + 0.5) * power_of_two(-7),
    })
}

/// `n` blocks of 32 codes: scale (binary16), then the codes. Value = scale * code.
pub(super) fn q8_0(n: usize, source: &Source<'_>) -> (Vec<u8>, Vec<f32>) {
    let in_row = (source.row() / Q8_BLOCK).max(1) as u64;
    let (mut bytes, mut values) = (Vec::with_capacity(n * 34), Vec::with_capacity(n * Q8_BLOCK));
    for block in 0..n as u64 {
        let d = scale(source, block * 64 + 63, block.is_multiple_of(in_row));
        bytes.extend(d.to_le_bytes());
        for k in 0..Q8_BLOCK as u64 {
            let code = match source.scale_exponent() {
                Some(_) => source.integer(block * Q8_BLOCK as u64 + k).clamp(-127, 127),
                None => source.stream().below(block * 64 + k, 255) as i64 - 127,
            };
            bytes.push(code as i8 as u8);
            values.push(d.to_f32() * code as f32);
        }
    }
    (bytes, values)
}

/// Blocks of `q4_k` with what they stand for.
pub(super) struct Q4K {
    /// The blocks.
    pub(super) bytes: Vec<u8>,
    /// Value of each code.
    pub(super) values: Vec<f32>,
    /// `(d*scale)*code + dmin*min` of each code.
    pub(super) magnitudes: Vec<f32>,
}

/// `n` super-blocks of 256 codes: scale and minimum (binary16), twelve bytes of 6-bit scales and minima of the eight
/// sub-blocks, then the 4-bit codes. Value = (d*scale)*code - dmin*min.
///
/// A recipe that picks gives codes of 0 and 1 under a scale of 1 and a minimum of 0.
pub(super) fn q4_k(n: usize, source: &Source<'_>) -> Q4K {
    let stream = source.stream();
    let picks = source.picks();
    let largest = match source.scale_exponent() {
        Some(_) => u64::from(source.largest().min(63)),
        None => 63,
    };
    let in_row = (source.row() / 256).max(1) as u64;
    let (mut bytes, mut values) = (Vec::with_capacity(n * 144), Vec::with_capacity(n * 256));
    let mut magnitudes = Vec::with_capacity(n * 256);
    for block in 0..n as u64 {
        let at = |k: u64| block * 512 + k;
        let opens_row = block.is_multiple_of(in_row);
        let (d, dmin) = (scale(source, at(500), opens_row), scale(source, at(501), opens_row));
        let six_bits = |at: u64| stream.below(at, largest + 1) as u8;
        let scales: [u8; 8] = std::array::from_fn(|j| if picks { 1 } else { six_bits(at(300 + j as u64)) });
        let minima: [u8; 8] = std::array::from_fn(|j| if picks { 0 } else { six_bits(at(400 + j as u64)) });
        bytes.extend(d.to_le_bytes());
        bytes.extend(dmin.to_le_bytes());
        // The first four pairs keep their low six bits in bytes 0..8; the last four put their low four bits into
        // bytes 8..12 and their high two bits into the top of bytes 0..8.
        for j in 0..4 {
            bytes.push(scales[j] | ((scales[j + 4] >> 4) << 6));
        }
        for j in 0..4 {
            bytes.push(minima[j] | ((minima[j + 4] >> 4) << 6));
        }
        for j in 4..8 {
            bytes.push((scales[j] & 15) | ((minima[j] & 15) << 4));
        }
        let code = |k: u64| {
            if picks { source.integer(block * 256 + k) as u8 } else { stream.below(at(k), 16) as u8 }
        };
        let codes: Vec<u8> = (0..256).map(code).collect();
        for pair in 0..4 {
            for k in 0..32 {
                bytes.push(codes[pair * 64 + k] | (codes[pair * 64 + 32 + k] << 4));
            }
        }
        for (k, &code) in codes.iter().enumerate() {
            let sub = k / 32;
            let step = d.to_f32() * f32::from(scales[sub]);
            let min = dmin.to_f32() * f32::from(minima[sub]);
            values.push(step * f32::from(code) - min);
            magnitudes.push(step * f32::from(code) + min);
        }
    }
    Q4K { bytes, values, magnitudes }
}
