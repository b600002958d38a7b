//! The forward pass of a Llama or Qwen2 model in float64, for many copies at once.

use std::borrow::Cow;

use rayon::prelude::*;

use super::dense::Packed;
use super::heads::Heads;
use super::noise::Noise;
use super::{ModelShape, ModelWeights, OracleError, WeightName};

/// What a pass produces, as it goes.
pub(super) trait Sink {
    /// The state after the embedding and after each layer, `[copies, tokens, hidden]`.
    fn hidden(&mut self, x: &[f64]);
    /// Logits of the tokens `first..first + width` of the vocabulary, `[copies, tokens, width]`.
    fn logits(&mut self, first: usize, width: usize, y: &[f64]);
}

/// Outputs of the head that are held for all copies at once.
const HEAD_CHUNK: usize = 4096;

/// A pass over the weights. Copy 0 is exact; copy `c` is run `first_run + c - 1` of the ensemble.
pub(super) struct Pass<'a, W: ModelWeights + ?Sized> {
    pub(super) weights: &'a W,
    pub(super) tokens: &'a [u32],
    pub(super) copies: usize,
    pub(super) first_run: u64,
    pub(super) u: f64,
    pub(super) seed: u64,
    ops: u64,
    shape: ModelShape,
}

impl<'a, W: ModelWeights + ?Sized> Pass<'a, W> {
    /// Checks the model's sizes and the tokens.
    pub(super) fn new(weights: &'a W, tokens: &'a [u32], copies: usize) -> Result<Self, OracleError> {
        let shape = weights.shape();
        let refuse = |why: String| Err(OracleError::Size { op: "forward", why });
        let s = &shape;
        if [s.layers, s.hidden, s.heads, s.kv_heads, s.head_dim, s.ffn, s.vocab].contains(&0) {
            return refuse(format!("a size of the model is zero: {shape:?}"));
        }
        if !s.heads.is_multiple_of(s.kv_heads) || !s.head_dim.is_multiple_of(2) {
            return refuse(format!(
                "{} heads over {} KV heads of {} elements: expected a multiple and an even number",
                s.heads, s.kv_heads, s.head_dim
            ));
        }
        if tokens.is_empty() {
            return refuse("no tokens: expected at least one".to_owned());
        }
        if let Some(token) = tokens.iter().find(|&&t| t as usize >= s.vocab) {
            return refuse(format!("token {token} is outside the vocabulary of {}", s.vocab));
        }
        let widest =
            s.heads.checked_mul(s.head_dim).map(|q| q.max(s.hidden).max(s.ffn).max(HEAD_CHUNK.min(s.vocab)));
        let rows = copies.checked_mul(tokens.len());
        let elements = widest.zip(rows).and_then(|(w, r)| w.checked_mul(r)).and_then(|n| n.checked_mul(8));
        let logits = tokens.len().checked_mul(s.vocab).and_then(|n| n.checked_mul(8));
        if elements.zip(logits).is_none_or(|(a, b)| a.max(b) > isize::MAX as usize) {
            return refuse(format!(
                "{copies} copies of {} tokens do not fit the address space",
                tokens.len()
            ));
        }
        Ok(Pass { weights, tokens, copies, first_run: 0, u: 0.0, seed: 0, ops: 0, shape })
    }

    /// Runs the model once over its weights.
    pub(super) fn run(mut self, sink: &mut impl Sink) -> Result<(), OracleError> {
        let s = self.shape;
        let (q_row, kv_row) = (s.heads * s.head_dim, s.kv_heads * s.head_dim);
        let mut x = self.embed()?;
        sink.hidden(&x);
        let rotation = self.rotation();
        for layer in 0..s.layers {
            let h = self.norm(&x, layer, WeightName::AttnNorm)?;
            let mut q = self.project(&h, s.hidden, layer, WeightName::AttnQ, q_row)?;
            let mut k = self.project(&h, s.hidden, layer, WeightName::AttnK, kv_row)?;
            let mut v = self.project(&h, s.hidden, layer, WeightName::AttnV, kv_row)?;
            if s.qkv_bias {
                self.bias(&mut q, layer, WeightName::AttnQBias, q_row)?;
                self.bias(&mut k, layer, WeightName::AttnKBias, kv_row)?;
                self.bias(&mut v, layer, WeightName::AttnVBias, kv_row)?;
            }
            self.rotate(&mut q, &rotation, q_row);
            self.rotate(&mut k, &rotation, kv_row);
            let attended = self.attend(&q, &k, &v);
            let y = self.project(&attended, q_row, layer, WeightName::AttnOutput, s.hidden)?;
            self.residual(&mut x, &y);
            let h = self.norm(&x, layer, WeightName::FfnNorm)?;
            let mut gate = self.project(&h, s.hidden, layer, WeightName::FfnGate, s.ffn)?;
            let up = self.project(&h, s.hidden, layer, WeightName::FfnUp, s.ffn)?;
            gate.par_iter_mut().zip(&up).for_each(|(g, up)| *g = *g / (1.0 + libm::exp(-*g)) * up);
            self.round(&mut gate);
            let y = self.project(&gate, s.ffn, layer, WeightName::FfnDown, s.hidden)?;
            self.residual(&mut x, &y);
            sink.hidden(&x);
        }
        let h = self.norm(&x, 0, WeightName::OutputNorm)?;
        self.head(&h, sink)
    }

    fn embed(&self) -> Result<Vec<f64>, OracleError> {
        let mut x = Vec::with_capacity(self.copies * self.tokens.len() * self.shape.hidden);
        for &token in self.tokens {
            let refused = |why| OracleError::Weight { name: format!("embedding of token {token}"), why };
            let row = self.weights.embedding(token).map_err(|e| refused(e.to_string()))?;
            if row.len() != self.shape.hidden {
                return Err(refused(format!("{} elements, expected {}", row.len(), self.shape.hidden)));
            }
            x.extend(row.iter().map(|&v| f64::from(v)));
        }
        let one = x.len();
        (1..self.copies).for_each(|_| x.extend_from_within(..one));
        Ok(x)
    }

    fn fetch(&self, layer: usize, name: WeightName, len: usize) -> Result<Cow<'a, [f32]>, OracleError> {
        let refused = |why| OracleError::Weight { name: format!("{} of layer {layer}", name.as_str()), why };
        let w = self.weights.weight(layer, name).map_err(|e| refused(e.to_string()))?;
        if w.len() != len {
            return Err(refused(format!("{} elements, expected {len}", w.len())));
        }
        Ok(w)
    }

    /// The noise of the next op, one for each copy but the exact one.
    fn next_op(&mut self) -> Vec<Noise> {
        self.ops += 1;
        (1..self.copies as u64).map(|c| Noise::new(self.seed, self.first_run + c - 1, self.ops)).collect()
    }

    /// Moves every element of the perturbed copies by at most `u` times its magnitude.
    fn round(&mut self, y: &mut [f64]) {
        let (u, one) = (self.u, y.len() / self.copies);
        let noises = self.next_op();
        y[one..].par_chunks_mut(one).zip(noises).for_each(|(y, noise)| {
            y.iter_mut().enumerate().for_each(|(i, y)| *y += u * y.abs() * noise.at(i));
        });
    }

    /// `x[.., k]` times a weight `[out, k]`, as one op.
    fn project(
        &mut self,
        x: &[f64],
        k: usize,
        layer: usize,
        name: WeightName,
        out: usize,
    ) -> Result<Vec<f64>, OracleError> {
        let w = self.fetch(layer, name, self.elements(name, out, k)?)?;
        let inputs = self.inputs(x, k);
        Ok(inputs.product(&w, 0, out))
    }

    /// The head, a part of the vocabulary at a time, so that the logits of all copies are never held at once.
    fn head(&mut self, h: &[f64], sink: &mut impl Sink) -> Result<(), OracleError> {
        let (k, vocab) = (self.shape.hidden, self.shape.vocab);
        let w = self.fetch(0, WeightName::Head, self.elements(WeightName::Head, vocab, k)?)?;
        let inputs = self.inputs(h, k);
        for (chunk, w) in w.chunks(HEAD_CHUNK * k).enumerate() {
            let first = chunk * HEAD_CHUNK;
            sink.logits(first, w.len() / k, &inputs.product(w, first, vocab));
        }
        Ok(())
    }

    fn elements(&self, name: WeightName, out: usize, k: usize) -> Result<usize, OracleError> {
        out.checked_mul(k).ok_or_else(|| OracleError::Size {
            op: "forward",
            why: format!("{} of {out} rows of {k} overflows the address space", name.as_str()),
        })
    }

    /// The inputs of one product, which takes the next number of an op.
    fn inputs(&mut self, x: &[f64], k: usize) -> Inputs {
        let exact = (self.copies > 1).then(|| Packed::new(&x[..x.len() / self.copies], k, true));
        let unit = self.u * (k as f64).sqrt();
        Inputs { x: Packed::new(x, k, false), exact, unit, noises: self.next_op() }
    }

    fn norm(&mut self, x: &[f64], layer: usize, name: WeightName) -> Result<Vec<f64>, OracleError> {
        let n = self.shape.hidden;
        let w = self.fetch(layer, name, n)?;
        let mut y = x.to_vec();
        y.par_chunks_mut(n).for_each(|row| {
            let mean = row.iter().map(|v| v * v).sum::<f64>() / n as f64;
            let root = (mean + self.shape.eps).sqrt();
            row.iter_mut().zip(w.iter()).for_each(|(v, &w)| *v = *v / root * f64::from(w));
        });
        self.round(&mut y);
        Ok(y)
    }

    fn bias(&mut self, y: &mut [f64], layer: usize, name: WeightName, n: usize) -> Result<(), OracleError> {
        let bias = self.fetch(layer, name, n)?;
        y.chunks_mut(n)
            .for_each(|row| row.iter_mut().zip(bias.iter()).for_each(|(y, &b)| *y += f64::from(b)));
        self.round(y);
        Ok(())
    }

    fn residual(&mut self, x: &mut [f64], y: &[f64]) {
        x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
        self.round(x);
    }

    /// Cosine and sine for each token and pair, `[tokens, head_dim/2]`.
    fn rotation(&self) -> Vec<(f64, f64)> {
        let dim = self.shape.head_dim;
        let frequency = |j: usize| libm::pow(self.shape.theta, -(2.0 * j as f64) / dim as f64);
        (0..self.tokens.len())
            .flat_map(|t| (0..dim / 2).map(move |j| t as f64 * frequency(j)))
            .map(|angle| (libm::cos(angle), libm::sin(angle)))
            .collect()
    }

    fn rotate(&mut self, y: &mut [f64], rotation: &[(f64, f64)], width: usize) {
        let (dim, half) = (self.shape.head_dim, self.shape.head_dim / 2);
        for (row, y) in y.chunks_mut(width).enumerate() {
            let turns = &rotation[row % self.tokens.len() * half..][..half];
            for head in y.chunks_mut(dim) {
                let (first, second) = head.split_at_mut(half);
                for ((a, b), (cos, sin)) in first.iter_mut().zip(second).zip(turns) {
                    (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
                }
            }
        }
        self.round(y);
    }

    fn attend(&mut self, q: &[f64], k: &[f64], v: &[f64]) -> Vec<f64> {
        let tokens = self.tokens.len();
        let (q_one, kv_one) = (q.len() / self.copies, k.len() / self.copies);
        let noises = [self.next_op(), self.next_op(), self.next_op()];
        let heads = Heads { shape: &self.shape, tokens, u: self.u };
        let mut out = vec![0.0; q.len()];
        out.par_chunks_mut(q_one).enumerate().for_each(|(copy, out)| {
            let noise = copy.checked_sub(1).map(|c| [noises[0][c], noises[1][c], noises[2][c]]);
            let at = copy * kv_one;
            heads.attend(&q[copy * q_one..][..q_one], &k[at..][..kv_one], &v[at..][..kv_one], noise, out);
        });
        out
    }
}

/// The rows that one product multiplies, and its noise.
struct Inputs {
    x: Packed,
    /// Magnitudes of the exact copy's rows, if there are perturbed ones. The other copies differ from it by some u,
    /// which would not show in the size of their noise.
    exact: Option<Packed>,
    /// `u*sqrt(k)`.
    unit: f64,
    noises: Vec<Noise>,
}

impl Inputs {
    /// The outputs from `first` on of a product with `width` outputs in all: `[rows, w.len()/k]`, each perturbed copy
    /// moved by at most `u*sqrt(k)*sum|w||x|`.
    fn product(&self, w: &[f32], first: usize, width: usize) -> Vec<f64> {
        let mut y = self.x.product(w, false);
        let Some(exact) = &self.exact else { return y };
        let size = exact.product(w, true);
        let out = size.len() / exact.rows();
        y[size.len()..].par_chunks_mut(size.len()).zip(&self.noises).for_each(|(y, noise)| {
            for (row, (y, size)) in y.chunks_mut(out).zip(size.chunks(out)).enumerate() {
                let at = row * width + first;
                for (i, (y, size)) in y.iter_mut().zip(size).enumerate() {
                    *y += self.unit * size * noise.at(at + i);
                }
            }
        });
        y
    }
}
