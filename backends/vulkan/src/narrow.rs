//! f32 values as `f16`, `bf16` or `q8_0`, rounded to nearest.

use half::{bf16, f16};

/// Elements of a `q8_0` block.
pub(crate) const BLOCK: usize = 32;
/// Largest code of a block.
const LARGEST: f32 = 127.0;

/// Little-endian binary16, ties to even.
pub(crate) fn to_f16(values: impl Iterator<Item = f32>) -> Vec<u8> {
    values.flat_map(|v| f16::from_f32(v).to_le_bytes()).collect()
}

/// Little-endian bfloat16, ties to even.
pub(crate) fn to_bf16(values: impl Iterator<Item = f32>) -> Vec<u8> {
    values.flat_map(|v| bf16::from_f32(v).to_le_bytes()).collect()
}

/// Codes of whole blocks, and one scale for each: `d = amax/127`, codes rounded half away from zero.
pub(crate) fn to_q8_0(values: &[f32]) -> (Vec<u8>, Vec<f32>) {
    let (blocks, _) = values.as_chunks::<BLOCK>();
    let mut codes = Vec::with_capacity(values.len());
    let mut scales = Vec::with_capacity(blocks.len());
    for block in blocks {
        let d = block.iter().fold(0.0f32, |most, v| most.max(v.abs())) / LARGEST;
        let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
        codes.extend(block.iter().map(|v| (v * inverse).round().clamp(-LARGEST, LARGEST) as i8 as u8));
        scales.push(d);
    }
    (codes, scales)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_half_away_from_zero() {
        let mut block = [0.0f32; 2 * BLOCK];
        (block[0], block[1], block[2], block[3]) = (127.0, 0.5, -0.5, -2.4);
        let (codes, scales) = to_q8_0(&block);
        assert_eq!(codes[..4].iter().map(|&c| c as i8).collect::<Vec<_>>(), [127, 1, -1, -2]);
        assert_eq!(scales, [1.0, 0.0]);
        assert!(codes[BLOCK..].iter().all(|&code| code == 0));
    }
}
