//! Plain f32 implementations in many orders of summation.

use super::data::Data;

/// An order in which products are summed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Order {
    Sequential,
    Reversed,
    Pairwise,
    Lanes,
    Fused,
    Permuted(u64),
}

/// Every order.
pub(super) const ORDERS: [Order; 7] = [
    Order::Sequential,
    Order::Reversed,
    Order::Pairwise,
    Order::Lanes,
    Order::Fused,
    Order::Permuted(1),
    Order::Permuted(2),
];

/// `sum a*b` in f32.
pub(super) fn dot(a: &[f32], b: &[f32], order: Order) -> f32 {
    let products: Vec<f32> = a.iter().zip(b).map(|(a, b)| a * b).collect();
    match order {
        Order::Sequential => products.iter().sum(),
        Order::Reversed => products.iter().rev().sum(),
        Order::Pairwise => pairwise(&products),
        Order::Lanes => {
            let mut lanes = [0.0f32; 8];
            products.iter().enumerate().for_each(|(i, p)| lanes[i % 8] += p);
            pairwise(&lanes)
        }
        Order::Fused => a.iter().zip(b).fold(0.0f32, |s, (a, b)| a.mul_add(*b, s)),
        Order::Permuted(seed) => {
            Data::new(seed).permutation(products.len()).iter().map(|&i| products[i]).sum()
        }
    }
}

fn pairwise(v: &[f32]) -> f32 {
    match v {
        [] => 0.0,
        [one] => *one,
        _ => pairwise(&v[..v.len() / 2]) + pairwise(&v[v.len() / 2..]),
    }
}

/// `w[out, k]` times each row of `x[P, k]`.
pub(super) fn matmul(w: &[f32], x: &[f32], k: usize, order: Order) -> Vec<f32> {
    x.chunks(k).flat_map(|x| w.chunks(k).map(move |w| dot(w, x, order))).collect()
}

/// `x / sqrt(mean(x^2) + eps) * weight` with the root and the division in f32.
pub(super) fn rms_norm(x: &[f32], weight: &[f32], eps: f32, order: Order) -> Vec<f32> {
    let norm = |row: &[f32]| -> Vec<f32> {
        let inv = 1.0 / (dot(row, row, order) / row.len() as f32 + eps).sqrt();
        row.iter().zip(weight).map(|(x, w)| x * inv * w).collect()
    };
    x.chunks(weight.len()).flat_map(norm).collect()
}

/// Rotate-half RoPE with float64 angles rounded to f32 sines; `pair(j)` gives the two indices of pair `j`.
pub(super) fn rope(
    x: &[f32],
    pos: usize,
    dim: usize,
    theta: f64,
    pair: impl Fn(usize) -> (usize, usize),
) -> Vec<f32> {
    let mut y = x.to_vec();
    for (x, y) in x.chunks(dim).zip(y.chunks_mut(dim)) {
        for j in 0..dim / 2 {
            let angle = pos as f64 / theta.powf(2.0 * j as f64 / dim as f64);
            let (cos, sin) = (angle.cos() as f32, angle.sin() as f32);
            let (i, k) = pair(j);
            (y[i], y[k]) = (x[i] * cos - x[k] * sin, x[k] * cos + x[i] * sin);
        }
    }
    y
}

/// `exp` in float64, rounded.
pub(super) fn exp(x: f32) -> f32 {
    f64::from(x).exp() as f32
}

/// Scores of one query over keys `[len, dim]`.
pub(super) fn scores(q: &[f32], keys: &[f32], scale: f32, order: Order) -> Vec<f32> {
    keys.chunks(q.len()).map(|k| dot(q, k, order) * scale).collect()
}

/// Softmax over all scores, then the weighted sum in an order.
pub(super) fn plain(scores: &[f32], values: &[f32], dim: usize, order: Order) -> Vec<f32> {
    let max = scores.iter().fold(f32::NEG_INFINITY, |m, &s| m.max(s));
    let e: Vec<f32> = scores.iter().map(|&s| exp(s - max)).collect();
    let sum = dot(&e, &vec![1.0; e.len()], order);
    let weights: Vec<f32> = e.iter().map(|e| e / sum).collect();
    let column = |d: usize| values.chunks(dim).map(|v| v[d]).collect::<Vec<f32>>();
    (0..dim).map(|d| dot(&weights, &column(d), order)).collect()
}

/// Online softmax: a running maximum, sum and result, rescaled whenever the maximum rises.
pub(super) fn online(scores: &[f32], values: &[f32], dim: usize, order: &[usize]) -> Vec<f32> {
    let (mut max, mut sum, mut out) = (f32::NEG_INFINITY, 0.0f32, vec![0.0f32; dim]);
    for &j in order {
        let raised = max.max(scores[j]);
        let (keep, weight) = (exp(max - raised), exp(scores[j] - raised));
        (max, sum) = (raised, sum * keep + weight);
        out.iter_mut().zip(&values[j * dim..]).for_each(|(o, v)| *o = *o * keep + weight * v);
    }
    let inv = 1.0 / sum;
    out.iter().map(|o| o * inv).collect()
}
