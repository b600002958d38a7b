//! Inner products of f32 rows.

/// The eight-lane dot product of `matmul` and `batched_matmul`.
///
/// Lane `k` sums elements `k, k+8, ...`; the lanes meet as `((s0+s1)+(s2+s3))+((s4+s5)+(s6+s7))`, and the tail is
/// added in order. The slices have the same length.
pub(crate) fn dot8(w: &[f32], x: &[f32]) -> f32 {
    let (w_chunks, w_tail) = w.as_chunks::<8>();
    let (x_chunks, x_tail) = x.as_chunks::<8>();
    let mut s = [0.0f32; 8];
    for (a, b) in w_chunks.iter().zip(x_chunks) {
        for k in 0..8 {
            s[k] += a[k] * b[k];
        }
    }
    let mut sum = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
    for (a, b) in w_tail.iter().zip(x_tail) {
        sum += a * b;
    }
    sum
}

/// The dot product of attention scores: one accumulator, in order.
pub(crate) fn dot1(a: &[f32], b: &[f32]) -> f32 {
    let mut sum = 0.0f32;
    for (x, y) in a.iter().zip(b) {
        sum += x * y;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::{dot1, dot8};

    /// With `big` in one place and `-big` in another, a unit term survives only if it is added after they met.
    fn survives(n: usize, big_at: usize, unit_at: usize, minus_at: usize) -> bool {
        let mut w = vec![0.0f32; n];
        w[big_at] = 1e30;
        w[unit_at] = 1.0;
        w[minus_at] = -1e30;
        dot8(&w, &vec![1.0; n]) == 1.0
    }

    #[test]
    fn lanes_tree_and_tail_are_where_the_text_says() {
        assert!(survives(16, 0, 1, 8), "elements 0 and 8 share lane 0, apart from lane 1");
        assert!(!survives(24, 0, 8, 16), "a unit between them in their lane is absorbed");
        assert!(survives(16, 0, 2, 1), "lanes 0 and 1 meet before lane 2");
        assert!(!survives(16, 0, 1, 2), "lane 1 is absorbed before lane 2 cancels");
        assert!(survives(16, 0, 4, 3), "the first four lanes meet before the second four");
        assert!(!survives(17, 0, 1, 16), "the tail comes last");
        assert!(survives(10, 0, 9, 8), "the tail is added in order");
        assert!(!survives(10, 0, 8, 9), "the tail is added in order");
    }

    #[test]
    fn one_accumulator_absorbs_in_order() {
        assert_eq!(dot1(&[1e30, 1.0, -1e30, 1.0], &[1.0; 4]), 1.0);
    }
}
