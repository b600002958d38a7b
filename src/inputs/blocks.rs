//! Quantised weight blocks in the GGUF formats, made from random codes, with the values that they stand for.

use half::f16;

use super::Stream;
use crate::suite::Recipe;

/// Scale of a block: a power of two for integer data, so that every product is exact; any binary16 otherwise.
fn scale(recipe: Recipe, stream: &Stream, i: u64) -> f16 {
    match recipe {
        Recipe::Integers { exponent, .. } => f16::from_f32((exponent as f32).exp2()),
        _ => f16::from_f32((stream.real(i).abs() + 0.5) * (-7f32).exp2()),
    }
}

/// `n` blocks of 32 codes: scale (binary16), then the codes. Value = scale * code.
pub(super) fn q8_0(n: usize, recipe: Recipe, stream: &Stream) -> (Vec<u8>, Vec<f32>) {
    let largest = match recipe {
        Recipe::Integers { max, .. } => i64::from(max.min(127)),
        _ => 127,
    };
    let (mut bytes, mut values) = (Vec::with_capacity(n * 34), Vec::with_capacity(n * 32));
    for block in 0..n as u64 {
        let d = scale(recipe, stream, block * 64 + 63);
        bytes.extend(d.to_le_bytes());
        for k in 0..32 {
            let code = stream.below(block * 64 + k, 2 * largest as u64 + 1) as i64 - largest;
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
pub(super) fn q4_k(n: usize, recipe: Recipe, stream: &Stream) -> Q4K {
    let largest = match recipe {
        Recipe::Integers { max, .. } => u64::from(max.min(63)),
        _ => 63,
    };
    let (mut bytes, mut values) = (Vec::with_capacity(n * 144), Vec::with_capacity(n * 256));
    let mut magnitudes = Vec::with_capacity(n * 256);
    for block in 0..n as u64 {
        let at = |k: u64| block * 512 + k;
        let (d, dmin) = (scale(recipe, stream, at(500)), scale(recipe, stream, at(501)));
        let scales: [u8; 8] = std::array::from_fn(|j| stream.below(at(300 + j as u64), largest + 1) as u8);
        let minima: [u8; 8] = std::array::from_fn(|j| stream.below(at(400 + j as u64), largest + 1) as u8);
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
        let codes: Vec<u8> = (0..256).map(|k| stream.below(at(k), 16) as u8).collect();
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
