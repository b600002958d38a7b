//! The honest arithmetic: the mock's own, so that its bits differ from cpu-ref's while every value is within bounds.
//!
//! `matmul` adds in order with one f32 accumulator. Everything else works in f64 and rounds once, with the places
//! where f32 overflows kept (an `exp` that is infinite in f32 is infinite here), so that special values agree.
//! Shapes are checked by the callers.

use modelbench_contract::{AttentionSpec, RopeSpec};

use crate::kv::Layer;

/// Each row of `x` times each row of `w`; rows have `n` elements. Gives `[P, out]`.
pub(crate) fn matmul(w: &[f32], x: &[f32], n: usize) -> Vec<f32> {
    x.chunks_exact(n).flat_map(|row| w.chunks_exact(n).map(|weights| dot(weights, row))).collect()
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).fold(0.0, |sum, (a, b)| sum + a * b)
}

/// `x / sqrt(mean(x^2) + eps) * weight` for each row.
pub(crate) fn rms_norm(x: &[f32], weight: &[f32], eps: f32) -> Vec<f32> {
    let n = weight.len();
    let norm = |row: &[f32]| {
        let squares: f64 = row.iter().map(|&v| f64::from(v) * f64::from(v)).sum();
        let mean = squares as f32 / n as f32 + eps;
        f64::from(mean).sqrt()
    };
    x.chunks_exact(n)
        .flat_map(|row| {
            let root = norm(row);
            row.iter().zip(weight).map(move |(&v, &w)| (f64::from(v) / root * f64::from(w)) as f32)
        })
        .collect()
}

/// `gate / (1 + exp(-gate)) * up`.
pub(crate) fn swiglu(gate: &[f32], up: &[f32]) -> Vec<f32> {
    gate.iter()
        .zip(up)
        .map(|(&z, &up)| {
            let e = f64::from((-f64::from(z)).exp() as f32);
            (f64::from(z) / (1.0 + e) * f64::from(up)) as f32
        })
        .collect()
}

/// Rotates the pairs `(j, j + head_dim/2)` of every head; row `p` is at `pos + p`.
pub(crate) fn rope(x: &[f32], row_len: usize, spec: &RopeSpec) -> Vec<f32> {
    let half = spec.head_dim / 2;
    let mut out = x.to_vec();
    for (p, row) in out.chunks_exact_mut(row_len).enumerate() {
        for j in 0..half {
            let exponent = 2.0 * j as f64 / spec.head_dim as f64;
            let angle = (spec.pos + p) as f64 / f64::from(spec.theta).powf(exponent);
            let (sin, cos) = angle.sin_cos();
            for head in row.chunks_exact_mut(spec.head_dim) {
                let (a, b) = (f64::from(head[j]), f64::from(head[j + half]));
                head[j] = (a * cos - b * sin) as f32;
                head[j + half] = (b * cos + a * sin) as f32;
            }
        }
    }
    out
}

/// `a += b` for each row of `a`, element by element.
pub(crate) fn add(a: &[f32], b: &[f32]) -> Vec<f32> {
    a.chunks_exact(b.len()).flat_map(|row| row.iter().zip(b).map(|(a, b)| a + b)).collect()
}

/// Attention of the rows of `q` over one layer of a store.
pub(crate) fn attention(
    q: &[f32],
    row_len: usize,
    layer: &Layer,
    head_dim: usize,
    spec: &AttentionSpec,
) -> Vec<f32> {
    let rows = q.len() / row_len;
    let kv_dim = row_len / spec.group;
    let held = layer.keys.len() / kv_dim;
    let mut out = Vec::with_capacity(q.len());
    for (p, row) in q.chunks_exact(row_len).enumerate() {
        let seen = if spec.causal { held - rows + 1 + p } else { held };
        for (h, query) in row.chunks_exact(head_dim).enumerate() {
            let at = h / spec.group * head_dim;
            out.extend(one_head(query, layer, at, kv_dim, seen, spec.scale));
        }
    }
    out
}

fn one_head(query: &[f32], layer: &Layer, at: usize, kv_dim: usize, seen: usize, scale: f32) -> Vec<f32> {
    let scores: Vec<f32> = layer
        .keys
        .chunks_exact(kv_dim)
        .take(seen)
        .map(|row| {
            let key = &row[at..at + query.len()];
            let sum: f64 = query.iter().zip(key).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
            sum as f32 * scale
        })
        .collect();
    let top = scores.iter().copied().reduce(|top, s| if s > top { s } else { top }).unwrap_or(0.0);
    let weights: Vec<f64> = scores.iter().map(|s| f64::from(f64::from(s - top).exp() as f32)).collect();
    let total: f64 = weights.iter().sum();
    let mut sums = vec![0.0f64; query.len()];
    for (row, weight) in layer.values.chunks_exact(kv_dim).zip(&weights) {
        for (sum, &value) in sums.iter_mut().zip(&row[at..at + query.len()]) {
            *sum += weight * f64::from(value);
        }
    }
    sums.iter().map(|sum| (sum / total) as f32).collect()
}

/// Index of the first maximum; NaN never replaces a value, and a NaN in front stays.
pub(crate) fn argmax(logits: &[f32]) -> usize {
    let mut best = 0;
    for (i, value) in logits.iter().enumerate() {
        if *value > logits[best] {
            best = i;
        }
    }
    best
}
