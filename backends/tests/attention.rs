//! Attention against an f64 evaluation with a running bound.

use modelbench_contract::{AttentionSpec, Backend, DeviceTensor, KvConfig, KvStore};

use crate::kit::{bits, close, gamma, reals, up};
use crate::subject::{Kv, Subject, subject};

const DIM: usize = 16;
const KV_HEADS: usize = 2;
const GROUP: usize = 3;
const ROW: usize = KV_HEADS * DIM;
const SCALE: f32 = 0.25;

fn config() -> KvConfig {
    KvConfig { layers: 2, kv_heads: KV_HEADS, head_dim: DIM, capacity: 100, theta: 1e4 }
}

/// A store whose layer 1 holds `len` given keys and values, layer 0 others.
fn store(b: &mut Subject, len: usize, keys: &[f32], values: &[f32]) -> Kv {
    let mut kv = b.new_kv(&config()).unwrap();
    let other = reals(99, len * ROW);
    let other = up(b, &[len, ROW], &other);
    b.append(&mut kv, 0, &other, &other, &other, 0).unwrap();
    let (k, v) = (up(b, &[len, ROW], keys), up(b, &[len, ROW], values));
    b.append(&mut kv, 1, &k, &k, &v, 0).unwrap();
    kv
}

/// Value and bound of element `d` of query head `h` over the first `visible` positions.
fn expected(q: &[f32], h: usize, d: usize, keys: &[f32], values: &[f32], visible: usize) -> (f64, f64) {
    let at = |rows: &[f32], t: usize, i: usize| f64::from(rows[t * ROW + h / GROUP * DIM + i]);
    let dot = |f: &dyn Fn(f64) -> f64, t: usize| -> f64 {
        (0..DIM).map(|i| f(f64::from(q[h * DIM + i]) * at(keys, t, i))).sum::<f64>() * f64::from(SCALE)
    };
    let scores: Vec<f64> = (0..visible).map(|t| dot(&|v| v, t)).collect();
    // Error of a score, then of an exponential relative to itself: that of its argument plus a few units.
    let slack = (0..visible).map(|t| gamma(DIM + 1) * dot(&f64::abs, t)).fold(0.0, f64::max);
    let max = scores.iter().copied().fold(f64::MIN, f64::max);
    let widest = scores.iter().map(|s| max - s).fold(0.0, f64::max);
    let relative = 2.0 * slack + gamma(1) * widest + gamma(4);
    let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
    let total: f64 = weights.iter().sum();
    let terms = (0..visible).map(|t| weights[t] / total * at(values, t, d));
    let (sum, size) = terms.fold((0.0, 0.0), |(s, m), v| (s + v, m + v.abs()));
    (sum, (2.0 * relative + gamma(2 * visible + 2)) * 1.01 * size)
}

#[test]
fn grouped_attention_stays_within_the_bound_for_one_and_many_queries() {
    let mut b = subject();
    for (len, p, causal) in [
        (1, 1, true),
        (2, 1, false),
        (33, 1, true),
        (33, 5, true),
        (5, 5, true),
        (40, 4, false),
        (100, 1, true),
    ] {
        let n = KV_HEADS * GROUP * DIM;
        let (q, keys, values) = (reals(20, p * n), reals(21, len * ROW), reals(22, len * ROW));
        let kv = store(&mut b, len, &keys, &values);
        let qt = up(&mut b, &[p, n], &q);
        let spec = AttentionSpec { group: GROUP, scale: SCALE, causal };
        let y = b.attention(&qt, &kv, 1, spec).unwrap();
        assert_eq!(y.desc().shape, [p, n]);
        let first = b.read(&y).unwrap();
        for (i, &got) in first.iter().enumerate() {
            let (row, head, d) = (i / n, i % n / DIM, i % DIM);
            let visible = if causal { len - p + 1 + row } else { len };
            let (want, bound) = expected(&q[row * n..], head, d, &keys, &values, visible);
            close("attention", i, got, want, bound);
        }
        let again = b.attention(&qt, &kv, 1, spec).unwrap();
        assert_eq!(bits(&b.read(&again).unwrap()), bits(&first));
    }
}

#[test]
fn later_positions_cannot_be_seen_even_when_they_are_not_numbers() {
    let mut b = subject();
    let (len, p, n) = (4, 2, KV_HEADS * GROUP * DIM);
    let (mut keys, mut values) = (reals(30, len * ROW), reals(31, len * ROW));
    keys[3 * ROW..].fill(f32::NAN);
    values[3 * ROW..].fill(f32::INFINITY);
    let kv = store(&mut b, len, &keys, &values);
    let q = reals(32, p * n);
    let qt = up(&mut b, &[p, n], &q);
    let y = b.attention(&qt, &kv, 1, AttentionSpec { group: GROUP, scale: SCALE, causal: true }).unwrap();
    let y = b.read(&y).unwrap();
    for (i, &got) in y[..n].iter().enumerate() {
        let (want, bound) = expected(&q, i / DIM, i % DIM, &keys, &values, 3);
        close("attention", i, got, want, bound);
    }
    assert!(y[n..].iter().all(|v| v.is_nan()), "the last row does see the poisoned position");
}

#[test]
fn equal_scores_average_exactly_and_large_ones_do_not_overflow() {
    let mut b = subject();
    let n = KV_HEADS * GROUP * DIM;
    let values: Vec<f32> = (0..8 * ROW).map(|i| ((i * 31) % 201) as f32 - 100.0).collect();
    let kv = store(&mut b, 8, &reals(40, 8 * ROW), &values);
    let q = up(&mut b, &[n], &vec![0.0; n]);
    let y = b.attention(&q, &kv, 1, AttentionSpec { group: GROUP, scale: SCALE, causal: true }).unwrap();
    let want: Vec<f32> = (0..n)
        .map(|i| (0..8).map(|t| values[t * ROW + i / DIM / GROUP * DIM + i % DIM]).sum::<f32>() / 8.0)
        .collect();
    assert_eq!((y.desc().shape.as_slice(), b.read(&y).unwrap()), ([n].as_slice(), want));

    let mut keys = vec![-1.0f32; 8 * ROW];
    keys[5 * ROW..6 * ROW].fill(1.0);
    let kv = store(&mut b, 8, &keys, &values);
    let q = up(&mut b, &[n], &vec![1000.0; n]);
    let y = b.attention(&q, &kv, 1, AttentionSpec { group: GROUP, scale: SCALE, causal: true }).unwrap();
    let want: Vec<f32> = (0..n).map(|i| values[5 * ROW + i / DIM / GROUP * DIM + i % DIM]).collect();
    assert_eq!(b.read(&y).unwrap(), want);
}
