//! Grouped-query attention over cached rows.

use modelbench_contract::{AttentionSpec, BackendError, Result};

use crate::{check, dot, parallel};

/// Cached rows of one layer: post-RoPE keys and values, `[len, kv_heads*head_dim]` each.
#[derive(Debug, Clone, Copy)]
pub struct CachedRows<'a> {
    /// Post-RoPE keys, row-major.
    pub keys: &'a [f32],
    /// Values, row-major.
    pub values: &'a [f32],
    /// KV heads in a row.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
}

/// Attention of `q` (`P` rows of `kv_heads*group*head_dim`) over the cached rows; the result has the length of `q`.
///
/// # Errors
/// `InvalidArgument` if the lengths do not fit each other, nothing is cached, the group is 0, the scale is not finite,
/// or a causal query has more rows than positions; `ResourceExhausted` if the allocation fails.
pub fn attention(q: &[f32], kv: CachedRows<'_>, spec: AttentionSpec) -> Result<Vec<f32>> {
    check::scalar("attention scale", spec.scale, true, "a finite number")?;
    let kv_dim = check::product("[kv_heads, head_dim] =", &[kv.kv_heads, kv.head_dim])?;
    let row_len = check::product("[kv_heads, head_dim, group] =", &[kv.kv_heads, kv.head_dim, spec.group])?;
    if row_len == 0 || q.is_empty() || !q.len().is_multiple_of(row_len) {
        return Err(BackendError::invalid(format!(
            "attention query has {} elements; expected whole rows of kv_heads {} * group {} * head_dim {}, none of \
             them 0",
            q.len(),
            kv.kv_heads,
            spec.group,
            kv.head_dim
        )));
    }
    check::same_len("attention keys", kv.keys.len(), "values", kv.values.len())?;
    let (len, rows) = (kv.keys.len() / kv_dim, q.len() / row_len);
    if len == 0 || !kv.keys.len().is_multiple_of(kv_dim) {
        return Err(BackendError::invalid(format!(
            "attention over {} cached elements; expected one or more rows of {kv_dim}, append positions first",
            kv.keys.len()
        )));
    }
    if spec.causal && rows > len {
        return Err(BackendError::invalid(format!(
            "causal attention of {rows} query rows over {len} positions; expected at most {len} rows, the store must \
             hold the queries' own positions"
        )));
    }
    let heads = kv.kv_heads * spec.group;
    let mut out = check::zeros("attention result", q.len())?;
    // One piece is one query head of one row; it reads one KV head and nothing of the other pieces.
    let work = q.len().saturating_mul(len);
    parallel::for_each_piece(&mut out, kv.head_dim, work, |piece, out, scores| {
        let (p, head) = (piece / heads, piece % heads);
        let visible = if spec.causal { len - rows + 1 + p } else { len };
        let query = &q[piece * kv.head_dim..(piece + 1) * kv.head_dim];
        let column = head / spec.group * kv.head_dim;
        let keys = kv.keys.chunks_exact(kv_dim).take(visible).map(|row| &row[column..column + kv.head_dim]);
        let values =
            kv.values.chunks_exact(kv_dim).take(visible).map(|row| &row[column..column + kv.head_dim]);
        scores.clear();
        scores.extend(keys.map(|key| dot::dot1(query, key) * spec.scale));
        softmax(scores);
        for (weight, value) in scores.iter().zip(values) {
            for (o, v) in out.iter_mut().zip(value) {
                *o += weight * v;
            }
        }
    });
    Ok(out)
}

/// Softmax in place: the exponential in f64, everything else in f32, the sum in order.
fn softmax(scores: &mut [f32]) {
    let mut max = scores.first().copied().unwrap_or(f32::NEG_INFINITY);
    for &score in scores.iter() {
        if score > max {
            max = score;
        }
    }
    let mut sum = 0.0f32;
    for score in scores.iter_mut() {
        *score = libm::exp(f64::from(*score - max)) as f32;
        sum += *score;
    }
    for score in scores.iter_mut() {
        *score /= sum;
    }
}

#[cfg(test)]
mod tests {
    use modelbench_contract::ErrorKind;

    use super::*;

    fn spec(group: usize, causal: bool) -> AttentionSpec {
        AttentionSpec { group, scale: 1.0, causal }
    }

    fn rows<'a>(keys: &'a [f32], values: &'a [f32], kv_heads: usize) -> CachedRows<'a> {
        CachedRows { keys, values, kv_heads, head_dim: 2 }
    }

    #[test]
    fn equal_scores_average_and_heads_read_their_group() {
        // Two KV heads with two query heads each; all keys are zero.
        let values = [1.0, 2.0, 10.0, 20.0, 3.0, 4.0, 30.0, 40.0];
        let out = attention(&[1.0; 8], rows(&[0.0; 8], &values, 2), spec(2, true)).expect("attended");
        assert_eq!(out, [2.0, 3.0, 2.0, 3.0, 20.0, 30.0, 20.0, 30.0]);
    }

    #[test]
    fn causal_rows_see_their_own_past_only() {
        let values = [1.0, 1.0, 3.0, 3.0, 8.0, 8.0];
        let all = attention(&[1.0; 4], rows(&[0.0; 6], &values, 1), spec(1, false)).expect("attended");
        assert_eq!(all, [4.0; 4]);
        let causal = attention(&[1.0; 4], rows(&[0.0; 6], &values, 1), spec(1, true)).expect("attended");
        assert_eq!(causal, [2.0, 2.0, 4.0, 4.0]);
    }

    #[test]
    fn many_rows_equal_each_row_alone_with_and_without_threads() {
        let noise = |n: usize, k: u32| -> Vec<f32> {
            (0..n as u32).map(|i| ((i * k + 7) % 997) as f32 / 500.0 - 1.0).collect()
        };
        let (keys, values, q) = (noise(2 * 4 * 300, 613), noise(2 * 4 * 300, 431), noise(40 * 8, 271));
        let many = attention(&q, rows(&keys, &values, 4), spec(1, true)).expect("attended");
        assert!(q.len() * 300 >= 1 << 16, "this case runs on threads");
        for (p, row) in q.chunks_exact(8).enumerate() {
            let cached = (300 - 40 + 1 + p) * 8;
            let one =
                attention(row, rows(&keys[..cached], &values[..cached], 4), spec(1, true)).expect("attended");
            assert_eq!(many[p * 8..(p + 1) * 8], one, "row {p}");
        }
    }

    #[test]
    fn bad_numbers_flow_through() {
        let inf = [f32::INFINITY, 0.0, 0.0, 0.0];
        let out = attention(&[1.0, 0.0], rows(&inf, &[1.0; 4], 1), spec(1, true)).expect("attended");
        assert!(out.iter().all(|v| v.is_nan()), "inf - inf in the softmax, got {out:?}");
        let masked = [f32::NEG_INFINITY, 0.0, 1.0, 0.0];
        let out =
            attention(&[1.0, 0.0], rows(&masked, &[9.0, 9.0, 5.0, 6.0], 1), spec(1, true)).expect("attended");
        assert_eq!(out, [5.0, 6.0], "a score of -inf weighs nothing");
    }

    #[test]
    fn bad_shapes_are_refused() {
        let kv = rows(&[0.0; 4], &[0.0; 4], 1);
        let nan = AttentionSpec { scale: f32::NAN, ..spec(1, true) };
        let cases: [(&[f32], CachedRows<'_>, AttentionSpec); 7] = [
            (&[0.0; 3], kv, spec(1, true)),
            (&[0.0; 6], kv, spec(1, true)),
            (&[], kv, spec(1, true)),
            (&[0.0; 2], kv, spec(0, true)),
            (&[0.0; 2], rows(&[], &[], 1), spec(1, true)),
            (&[0.0; 2], rows(&[0.0; 4], &[0.0; 2], 1), spec(1, true)),
            (&[0.0; 2], kv, nan),
        ];
        for (q, kv, spec) in cases {
            let error = attention(q, kv, spec).expect_err("refused");
            assert_eq!(error.kind, ErrorKind::InvalidArgument, "{error}");
        }
        attention(&[0.0; 6], kv, spec(1, false)).expect("more rows than positions are fine without a mask");
    }
}
