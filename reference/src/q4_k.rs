//! GGUF Q4_K: super-blocks of 256 four-bit codes in eight groups, each with a six-bit scale and minimum.

/// Elements of a super-block.
pub(crate) const SUPER_BLOCK: usize = 256;
/// Bytes of a super-block: two binary16 factors, 12 bytes of packed scales and minima, 128 bytes of codes.
pub(crate) const SUPER_BLOCK_BYTES: usize = 144;

/// Six-bit scale and minimum of group `group` out of the 12 packed bytes.
fn scale_and_min(packed: &[u8], group: usize) -> (u8, u8) {
    if group < 4 {
        return (packed[group] & 63, packed[group + 4] & 63);
    }
    let low = packed[group + 4];
    ((low & 15) | ((packed[group - 4] >> 6) << 4), (low >> 4) | ((packed[group] >> 6) << 4))
}

/// Appends the values `(d*scale)*code - (dmin*min)` of whole super-blocks to `out`.
pub(crate) fn dequantise(bytes: &[u8], out: &mut Vec<f32>) {
    for block in bytes.as_chunks::<SUPER_BLOCK_BYTES>().0 {
        let d = half::f16::from_le_bytes([block[0], block[1]]).to_f32();
        let dmin = half::f16::from_le_bytes([block[2], block[3]]).to_f32();
        let (packed, codes) = block[4..].split_at(12);
        // Each run of 32 bytes holds one group in its low nibbles and the next one in its high nibbles.
        for group in 0..8 {
            let (scale, min) = scale_and_min(packed, group);
            let factor = d * f32::from(scale);
            let offset = dmin * f32::from(min);
            let (run, shift) = (group / 2 * 32, group % 2 * 4);
            out.extend(codes[run..run + 32].iter().map(|b| factor * f32::from((b >> shift) & 15) - offset));
        }
    }
}

/// Dot product of a dequantised row with `x`: for each super-block four accumulators over strides of four, combined as
/// `(s0+s1)+(s2+s3)` and added to the row's accumulator in order. The length is whole super-blocks.
pub(crate) fn dot(w: &[f32], x: &[f32]) -> f32 {
    let blocks = w.as_chunks::<SUPER_BLOCK>().0.iter().zip(x.as_chunks::<SUPER_BLOCK>().0);
    let mut acc = 0.0f32;
    for (wb, xb) in blocks {
        let mut s = [0.0f32; 4];
        for (a, b) in wb.as_chunks::<4>().0.iter().zip(xb.as_chunks::<4>().0) {
            for k in 0..4 {
                s[k] += a[k] * b[k];
            }
        }
        acc += (s[0] + s[1]) + (s[2] + s[3]);
    }
    acc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_unpacks_its_own_scale_minimum_and_codes() {
        // Group g: scale 8g+1, minimum 63-g, codes all g+1; both need their upper bits.
        let (scales, mins): (Vec<u8>, Vec<u8>) = (0..8u8).map(|g| (8 * g + 1, 63 - g)).unzip();
        let mut block = vec![0u8; SUPER_BLOCK_BYTES];
        block[..2].copy_from_slice(&half::f16::from_f32(0.5).to_le_bytes());
        block[2..4].copy_from_slice(&half::f16::from_f32(0.25).to_le_bytes());
        for g in 0..4 {
            block[4 + g] = scales[g] | (scales[g + 4] >> 4) << 6;
            block[8 + g] = mins[g] | (mins[g + 4] >> 4) << 6;
            block[12 + g] = (scales[g + 4] & 15) | (mins[g + 4] & 15) << 4;
            let codes = (2 * g as u8 + 1) | (2 * g as u8 + 2) << 4;
            block[16 + 32 * g..48 + 32 * g].fill(codes);
        }
        let mut values = Vec::new();
        dequantise(&block, &mut values);
        assert_eq!(values.len(), SUPER_BLOCK);
        for (g, group) in values.chunks_exact(32).enumerate() {
            let want = 0.5 * f32::from(scales[g]) * (g as f32 + 1.0) - 0.25 * f32::from(mins[g]);
            assert!(group.iter().all(|v| *v == want), "group {g}: {group:?}, want {want}");
        }
    }

    #[test]
    fn four_lanes_and_super_blocks_in_order() {
        let dot_of = |terms: &[(usize, f32)]| {
            let mut w = vec![0.0f32; 512];
            terms.iter().for_each(|&(i, v)| w[i] = v);
            dot(&w, &[1.0; 512])
        };
        assert_eq!(dot_of(&[(0, 1e30), (1, 1.0), (4, -1e30)]), 1.0, "0 and 4 share a lane");
        assert_eq!(dot_of(&[(0, 1e30), (4, 1.0), (8, -1e30)]), 0.0);
        assert_eq!(dot_of(&[(0, 1e30), (2, 1.0), (1, -1e30)]), 1.0);
        assert_eq!(dot_of(&[(0, 1e30), (1, 1.0), (2, -1e30)]), 0.0);
        assert_eq!(dot_of(&[(0, 1e30), (1, -1e30), (256, 1.0)]), 1.0);
        assert_eq!(dot_of(&[(0, 1e30), (256, -1e30), (257, 1.0)]), 0.0, "a super-block is added as one sum");
    }
}
