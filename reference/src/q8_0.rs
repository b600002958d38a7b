//! Blocks of 32 signed bytes with one scale: quantising, and the two dot products.

use modelbench_contract::Result;

use crate::check;

/// Elements of a block.
pub(crate) const BLOCK: usize = 32;
/// Bytes of a GGUF block: a binary16 scale, then the codes.
const GGUF_BLOCK_BYTES: usize = 34;

/// Rows of `q8_0` blocks with their scales widened to f32, or kept in f32 where cpu-ref quantised them itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Q8 {
    /// One code for each element, row-major, in -127..=127 where cpu-ref made them.
    pub codes: Vec<i8>,
    /// One scale for each block of 32 codes.
    pub scales: Vec<f32>,
}

impl Q8 {
    /// Codes and scales of row `row` of `n` elements each.
    pub(crate) fn row(&self, row: usize, n: usize) -> (&[i8], &[f32]) {
        let blocks = n / BLOCK;
        (&self.codes[row * n..(row + 1) * n], &self.scales[row * blocks..(row + 1) * blocks])
    }
}

/// Values `code * scale` of whole blocks in order.
pub(crate) fn values(codes: &[i8], scales: &[f32]) -> impl Iterator<Item = f32> {
    let blocks = codes.as_chunks::<BLOCK>().0.iter().zip(scales);
    blocks.flat_map(|(codes, d)| codes.iter().map(move |c| f32::from(*c) * d))
}

/// Splits GGUF bytes into codes and scales; the length is whole blocks.
///
/// # Errors
/// `ResourceExhausted` if the allocation fails.
pub(crate) fn from_gguf(bytes: &[u8]) -> Result<Q8> {
    let blocks = bytes.as_chunks::<GGUF_BLOCK_BYTES>().0;
    let mut codes = check::room("q8_0 codes", blocks.len() * BLOCK)?;
    let mut scales = check::room("q8_0 scales", blocks.len())?;
    for block in blocks {
        scales.push(half::f16::from_le_bytes([block[0], block[1]]).to_f32());
        codes.extend(block[2..].iter().map(|b| *b as i8));
    }
    Ok(Q8 { codes, scales })
}

/// Quantises values in blocks of 32; the length is whole blocks.
///
/// `d = amax/127`, the code is `x * (1/d)` rounded to nearest with ties away from zero, clamped to ±127; `d = 0`
/// gives zero codes. A NaN or an infinity in a block makes its scale NaN or infinite, so that it reaches the result.
///
/// # Errors
/// `ResourceExhausted` if the allocation fails.
pub(crate) fn quantise(values: &[f32]) -> Result<Q8> {
    let blocks = values.as_chunks::<BLOCK>().0;
    let mut codes = check::room("q8_0 codes", blocks.len() * BLOCK)?;
    let mut scales = check::room("q8_0 scales", blocks.len())?;
    for block in blocks {
        let d = largest_magnitude(block) / 127.0;
        scales.push(d);
        if d == 0.0 {
            codes.extend([0i8; BLOCK]);
            continue;
        }
        let inverse = 1.0 / d;
        codes.extend(block.iter().map(|v| code(v * inverse)));
    }
    Ok(Q8 { codes, scales })
}

/// Truncates, then moves away from zero if the fraction is at least one half. NaN gives 0.
fn code(scaled: f32) -> i8 {
    let whole = scaled.trunc();
    let fraction = scaled - whole;
    let rounded = if fraction >= 0.5 {
        whole + 1.0
    } else if fraction <= -0.5 {
        whole - 1.0
    } else {
        whole
    };
    rounded.clamp(-127.0, 127.0) as i8
}

/// Largest magnitude of a block; NaN if there is one.
fn largest_magnitude(block: &[f32; BLOCK]) -> f32 {
    let mut largest = 0.0f32;
    for v in block {
        let magnitude = v.abs();
        if magnitude.is_nan() {
            return magnitude;
        }
        if magnitude > largest {
            largest = magnitude;
        }
    }
    largest
}

/// The dot product of `matmul`: an i32 dot for each block, `acc += ((sum as f32)*dw)*dx`, blocks in order.
pub(crate) fn dot(w: (&[i8], &[f32]), x: (&[i8], &[f32])) -> f32 {
    let blocks = w.0.as_chunks::<BLOCK>().0.iter().zip(x.0.as_chunks::<BLOCK>().0);
    let mut acc = 0.0f32;
    for ((wc, xc), (dw, dx)) in blocks.zip(w.1.iter().zip(x.1)) {
        let sum: i32 = wc.iter().zip(xc).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum();
        acc += ((sum as f32) * dw) * dx;
    }
    acc
}

/// The dot product of `batched_matmul`: 16 lanes, lane `k` sums elements `2k` and `2k+1` of each block in i32 and adds
/// `(sum as f32)*(dw*dx)`; the lanes fold 16 -> 8 -> 4, then `(a0+a2)+(a1+a3)`.
pub(crate) fn cell(w: (&[i8], &[f32]), x: (&[i8], &[f32])) -> f32 {
    let blocks = w.0.as_chunks::<BLOCK>().0.iter().zip(x.0.as_chunks::<BLOCK>().0);
    let mut acc = [0.0f32; 16];
    for ((wc, xc), (dw, dx)) in blocks.zip(w.1.iter().zip(x.1)) {
        let scale = dw * dx;
        for k in 0..16 {
            let low = i32::from(wc[2 * k]) * i32::from(xc[2 * k]);
            let high = i32::from(wc[2 * k + 1]) * i32::from(xc[2 * k + 1]);
            acc[k] += (low + high) as f32 * scale;
        }
    }
    for k in 0..8 {
        acc[k] += acc[k + 8];
    }
    for k in 0..4 {
        acc[k] += acc[k + 4];
    }
    (acc[0] + acc[2]) + (acc[1] + acc[3])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(head: &[f32]) -> Vec<f32> {
        let mut values = vec![0.0; BLOCK];
        values[..head.len()].copy_from_slice(head);
        values
    }

    #[test]
    fn ties_move_away_from_zero() {
        // The largest value is 127, so the scale is exactly 1 and codes are the rounded values themselves.
        let q =
            quantise(&block(&[127.0, 0.5, -0.5, 1.5, -1.5, 2.5, 0.499, -2.499, 126.5])).expect("quantised");
        assert_eq!(q.scales, [1.0]);
        assert_eq!(q.codes[..9], [127, 1, -1, 2, -2, 3, 0, -2, 127]);
    }

    #[test]
    fn half_way_values_below_one_half_stay() {
        // Adding 0.5 and truncating would round the largest f32 below one half up to 1.
        let q = quantise(&block(&[127.0, 0.5f32.next_down()])).expect("quantised");
        assert_eq!(q.codes[1], 0);
    }

    #[test]
    fn zeros_give_zero_codes_and_bad_values_reach_the_scale() {
        let q = quantise(&block(&[0.0, -0.0])).expect("quantised");
        assert_eq!((q.scales[0], q.codes), (0.0, vec![0; BLOCK]));
        let q = quantise(&block(&[1.0, f32::NAN, 2.0])).expect("quantised");
        assert!(q.scales[0].is_nan());
        let q = quantise(&block(&[1.0, f32::NEG_INFINITY])).expect("quantised");
        assert_eq!(q.scales[0], f32::INFINITY);
        let w = quantise(&[1.0; BLOCK]).expect("quantised");
        assert!(dot((&w.codes, &w.scales), (&q.codes, &q.scales)).is_nan(), "0 * inf reaches the result");
    }

    #[test]
    fn a_denormal_block_whose_inverse_overflows_is_clamped() {
        let tiny = f32::from_bits(200);
        let q = quantise(&block(&[tiny, -tiny, 0.0])).expect("quantised");
        assert_eq!(q.scales[0].to_bits(), 2, "200/127 rounds to two steps of the denormal grid");
        assert_eq!(q.codes[..3], [127, -127, 0]);
    }

    #[test]
    fn gguf_blocks_split_into_scale_and_codes() {
        let mut bytes = half::f16::from_f32(0.25).to_le_bytes().to_vec();
        bytes.extend((0..32).map(|i| (i as i8 - 16) as u8));
        let q = from_gguf(&bytes).expect("split");
        assert_eq!(q.scales, [0.25]);
        let read: Vec<f32> = values(&q.codes, &q.scales).collect();
        assert_eq!((read[0], read[31]), (-4.0, 3.75));
    }

    #[test]
    fn both_dots_are_exact_on_integers() {
        let w = Q8 { codes: (0..64).map(|i| (i % 7) as i8 - 3).collect(), scales: vec![0.5, 2.0] };
        let x = Q8 { codes: (0..64).map(|i| (i % 5) as i8 - 2).collect(), scales: vec![4.0, 0.25] };
        let want: f32 =
            values(&w.codes, &w.scales).zip(values(&x.codes, &x.scales)).map(|(a, b)| a * b).sum();
        assert_eq!(dot(w.row(0, 64), x.row(0, 64)), want);
        assert_eq!(cell(w.row(0, 64), x.row(0, 64)), want);
    }
}
