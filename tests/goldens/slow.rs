//! The second evaluator: plain loops in float64 with compensated sums. It shares no code with the oracle or cpu-ref
//! and is meant to be read, not to be fast.

use crate::case::Call;

/// What the call gives, in float64.
pub fn evaluate(call: &Call) -> Vec<f64> {
    match call {
        Call::Matmul { w, x, inner, .. } => {
            let mut y = Vec::new();
            for row in x.chunks(*inner) {
                for w in w.values.chunks(*inner) {
                    y.push(dot(w, row));
                }
            }
            y
        }
        Call::RmsNorm { x, weight, eps } => {
            let n = weight.len();
            let mut y = Vec::new();
            for row in x.chunks(n) {
                let root = (dot(row, row) / n as f64 + f64::from(*eps)).sqrt();
                for i in 0..n {
                    y.push(f64::from(row[i]) / root * f64::from(weight[i]));
                }
            }
            y
        }
        Call::Rope { x, spec } => {
            let (dim, half) = (spec.head_dim, spec.head_dim / 2);
            let mut y = vec![0.0; x.len()];
            for i in 0..x.len() {
                let position = spec.pos + i / (spec.n_heads * dim);
                let j = i % dim;
                let exponent = 2.0 * (j % half) as f64 / dim as f64;
                let angle = position as f64 / f64::from(spec.theta).powf(exponent);
                let x = |i: usize| f64::from(x[i]);
                y[i] = if j < half {
                    x(i) * angle.cos() - x(i + half) * angle.sin()
                } else {
                    x(i) * angle.cos() + x(i - half) * angle.sin()
                };
            }
            y
        }
        Call::Swiglu { gate, up } => pairs(gate, up, |g, u| g / (1.0 + (-g).exp()) * u),
        Call::AddInPlace { dst, src } => pairs(dst, src, |a, b| a + b),
        Call::AddBias { dst, bias } => {
            dst.chunks(bias.len()).flat_map(|row| pairs(row, bias, |a, b| a + b)).collect()
        }
        Call::Attention { q, k, v, kv_heads, head_dim, spec } => {
            let (dim, kv_row) = (*head_dim, kv_heads * head_dim);
            let (q_row, len) = (kv_row * spec.group, k.len() / kv_row);
            let rows = q.len() / q_row;
            let mut y = Vec::new();
            for row in 0..rows {
                let seen = if spec.causal { len - (rows - 1 - row) } else { len };
                for head in 0..kv_heads * spec.group {
                    let q = &q[row * q_row + head * dim..][..dim];
                    let at = head / spec.group * dim;
                    let scores: Vec<f64> = (0..seen)
                        .map(|j| dot(q, &k[j * kv_row + at..][..dim]) * f64::from(spec.scale))
                        .collect();
                    let most = scores.iter().copied().fold(f64::MIN, f64::max);
                    let weights: Vec<f64> = scores.iter().map(|s| (s - most).exp()).collect();
                    let all = sum(weights.iter().copied());
                    for i in 0..dim {
                        let value = |j: usize| f64::from(v[j * kv_row + at + i]);
                        y.push(sum((0..seen).map(|j| weights[j] * value(j))) / all);
                    }
                }
            }
            y
        }
        Call::Argmax { x } => {
            // By the definition: nothing in front of it is as large, unless a NaN in front decides.
            let beaten = |i: usize| (0..i).any(|j| x[j] >= x[i]) || (i + 1..x.len()).any(|j| x[j] > x[i]);
            let best = (0..x.len()).find(|&i| !x[i].is_nan() && !beaten(i));
            vec![if x[0].is_nan() { 0.0 } else { best.unwrap() as f64 }]
        }
    }
}

fn pairs(a: &[f32], b: &[f32], f: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| f(f64::from(*a), f64::from(*b))).collect()
}

/// Products of f32 are exact in float64.
fn dot(a: &[f32], b: &[f32]) -> f64 {
    sum(a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)))
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
