//! Causal grouped-query attention of one copy of a model, in float64.

use super::ModelShape;
use super::noise::Noise;

/// Sizes of the attention of one pass.
pub(super) struct Heads<'a> {
    pub(super) shape: &'a ModelShape,
    pub(super) tokens: usize,
    /// Size of the perturbations.
    pub(super) u: f64,
}

impl Heads<'_> {
    /// Attention of `q[tokens, heads*head_dim]` over `k` and `v`, `[tokens, kv_heads*head_dim]`, into `out`, shaped as
    /// `q`. The noise, if any, is for scores, weights and results.
    pub(super) fn attend(&self, q: &[f64], k: &[f64], v: &[f64], noise: Option<[Noise; 3]>, out: &mut [f64]) {
        let (tokens, dim) = (self.tokens, self.shape.head_dim);
        let (q_row, kv_row) = (self.shape.heads * dim, self.shape.kv_heads * dim);
        let group = self.shape.heads / self.shape.kv_heads;
        let root = (dim as f64).sqrt();
        let mut weights = Vec::with_capacity(tokens);
        for head in 0..self.shape.heads {
            let at = head / group * dim;
            for token in 0..tokens {
                let place = (head * tokens + token) * tokens;
                let q = &q[token * q_row + head * dim..][..dim];
                weights.clear();
                for past in 0..=token {
                    let (dot, size) = dot(q, &k[past * kv_row + at..][..dim]);
                    let move_by = noise.map_or(0.0, |n| self.u * size * n[0].at(place + past));
                    weights.push(dot / root + move_by);
                }
                softmax(&mut weights);
                if let Some([_, noise, _]) = noise {
                    weights
                        .iter_mut()
                        .enumerate()
                        .for_each(|(i, w)| *w += self.u * w.abs() * noise.at(place + i));
                }
                for d in 0..dim {
                    let column = weights.iter().enumerate().map(|(past, w)| w * v[past * kv_row + at + d]);
                    let (sum, size) = column.fold((0.0, 0.0), |(sum, size), p| (sum + p, size + p.abs()));
                    let index = token * q_row + head * dim + d;
                    let unit = self.u * (tokens as f64).sqrt();
                    out[index] = sum + noise.map_or(0.0, |n| unit * size * n[2].at(index));
                }
            }
        }
    }
}

/// Dot product and the sum of its terms' magnitudes.
///
/// The noise of a score is `u*sqrt(n)*size/sqrt(n)`: root and scale cancel.
fn dot(a: &[f64], b: &[f64]) -> (f64, f64) {
    a.iter().zip(b).map(|(a, b)| a * b).fold((0.0, 0.0), |(sum, size), p| (sum + p, size + p.abs()))
}

fn softmax(scores: &mut [f64]) {
    let max = scores.iter().fold(f64::NEG_INFINITY, |m, &s| m.max(s));
    scores.iter_mut().for_each(|s| *s = libm::exp(*s - max));
    let sum: f64 = scores.iter().sum();
    scores.iter_mut().for_each(|s| *s /= sum);
}
