//! The second evaluator: plain loops in float64 with compensated sums. It shares no code with the oracle or cpu-ref
//! and is meant to be read, not to be fast.

use crate::case::Call;

/// What the call gives, in float64.
pub fn evaluate(call: &Call) -> Vec<f64> {
    match call {
        Call::Matmul { w, x, inner, .. } => matmul(&wide(&w.values), &wide(x), *inner),
        Call::RmsNorm { x, weight, eps } => rms_norm(&wide(x), &wide(weight), f64::from(*eps)),
        Call::Rope { x, spec } => {
            rope(&wide(x), spec.pos, spec.n_heads, spec.head_dim, f64::from(spec.theta))
        }
        Call::Swiglu { gate, up } => swiglu(&wide(gate), &wide(up)),
        Call::AddInPlace { dst, src } => add(&wide(dst), &wide(src)),
        Call::AddBias { dst, bias } => {
            dst.chunks(bias.len()).flat_map(|row| add(&wide(row), &wide(bias))).collect()
        }
        Call::Attention { q, k, v, kv_heads, head_dim, spec } => {
            let heads = Heads { kv: *kv_heads, group: spec.group, dim: *head_dim };
            attention(&wide(q), &wide(k), &wide(v), heads, spec.causal, f64::from(spec.scale))
        }
        Call::Argmax { x } => {
            // By the definition: nothing in front of it is as large, unless a NaN in front decides.
            let beaten = |i: usize| (0..i).any(|j| x[j] >= x[i]) || (i + 1..x.len()).any(|j| x[j] > x[i]);
            let best = (0..x.len()).find(|&i| !x[i].is_nan() && !beaten(i));
            vec![if x[0].is_nan() { 0.0 } else { best.unwrap() as f64 }]
        }
    }
}

/// f32 values, exactly.
pub fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|v| f64::from(*v)).collect()
}

/// `w[out, inner]` times each row of `x[P, inner]`.
pub fn matmul(w: &[f64], x: &[f64], inner: usize) -> Vec<f64> {
    x.chunks(inner).flat_map(|row| w.chunks(inner).map(move |w| dot(w, row))).collect()
}

pub fn rms_norm(x: &[f64], weight: &[f64], eps: f64) -> Vec<f64> {
    let n = weight.len();
    let mut y = Vec::new();
    for row in x.chunks(n) {
        let root = (dot(row, row) / n as f64 + eps).sqrt();
        for i in 0..n {
            y.push(row[i] / root * weight[i]);
        }
    }
    y
}

/// Row `p` of `x[P, heads*dim]` is at `pos + p`.
pub fn rope(x: &[f64], pos: usize, heads: usize, dim: usize, theta: f64) -> Vec<f64> {
    let half = dim / 2;
    let mut y = vec![0.0; x.len()];
    for i in 0..x.len() {
        let position = pos + i / (heads * dim);
        let j = i % dim;
        let angle = position as f64 / theta.powf(2.0 * (j % half) as f64 / dim as f64);
        y[i] = if j < half {
            x[i] * angle.cos() - x[i + half] * angle.sin()
        } else {
            x[i] * angle.cos() + x[i - half] * angle.sin()
        };
    }
    y
}

pub fn swiglu(gate: &[f64], up: &[f64]) -> Vec<f64> {
    gate.iter().zip(up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect()
}

pub fn add(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

/// How many KV heads, query heads for each, elements in each.
#[derive(Clone, Copy)]
pub struct Heads {
    pub kv: usize,
    pub group: usize,
    pub dim: usize,
}

/// `q` is `[P, kv*group*dim]`, `k` and `v` are `[len, kv*dim]`.
pub fn attention(q: &[f64], k: &[f64], v: &[f64], heads: Heads, causal: bool, scale: f64) -> Vec<f64> {
    let (dim, kv_row) = (heads.dim, heads.kv * heads.dim);
    let (q_row, len) = (kv_row * heads.group, k.len() / kv_row);
    let rows = q.len() / q_row;
    let mut y = Vec::new();
    for row in 0..rows {
        let seen = if causal { len - (rows - 1 - row) } else { len };
        for head in 0..heads.kv * heads.group {
            let q = &q[row * q_row + head * dim..][..dim];
            let at = head / heads.group * dim;
            let score = |j: usize| dot(q, &k[j * kv_row + at..][..dim]) * scale;
            let scores: Vec<f64> = (0..seen).map(score).collect();
            let most = scores.iter().copied().fold(f64::MIN, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - most).exp()).collect();
            let all = sum(weights.iter().copied());
            for i in 0..dim {
                y.push(sum((0..seen).map(|j| weights[j] * v[j * kv_row + at + i])) / all);
            }
        }
    }
    y
}

/// Products of f32 are exact in float64.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    sum(a.iter().zip(b).map(|(a, b)| a * b))
}

/// Neumaier's compensated sum: the error does not grow with the number of terms.
fn sum(terms: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut lost) = (0.0f64, 0.0f64);
    for term in terms {
        let next = sum + term;
        lost += if sum.abs() >= term.abs() { (sum - next) + term } else { (term - next) + sum };
        sum = next;
    }
    sum + lost
}
