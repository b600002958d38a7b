//! Whole models: the float64 result, and how far roundings of a declared size may move it.

use super::forward::{Pass, Sink};
use super::{ModelWeights, OracleError};

/// Seeded random roundings of one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Perturbation {
    /// Seed of the ensemble.
    pub seed: u64,
    /// Number of the run in the ensemble, from 0.
    pub run: u64,
    /// Unit roundoff.
    pub u: f64,
}

/// What a model gives for a sequence of tokens.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Forward {
    /// Logits, `[tokens, vocab]` row-major.
    pub logits: Vec<f64>,
    /// Hidden states `[tokens, hidden]`: the embedding, then the output of each layer.
    pub hidden: Vec<Vec<f64>>,
}

/// How far an ensemble of perturbed runs strays from the exact one.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread {
    /// Largest absolute deviation of each logit over the runs, `[tokens, vocab]`.
    pub logits: Vec<f64>,
    /// The same of each hidden state, as in [`Forward::hidden`].
    pub hidden: Vec<Vec<f64>>,
    /// The exact run.
    pub reference: Forward,
}

/// Runs a model in float64; with a perturbation, as that run of an ensemble.
///
/// # Errors
/// `Size` if a size of the model is unusable, there are no tokens or one is outside the vocabulary; `Weight` if a weight
/// cannot be read or has the wrong size.
pub fn forward_f64<W: ModelWeights + ?Sized>(
    weights: &W,
    tokens: &[u32],
    perturb: Option<Perturbation>,
) -> Result<Forward, OracleError> {
    let copies = if perturb.is_some() { 2 } else { 1 };
    let mut pass = Pass::new(weights, tokens, copies)?;
    if let Some(p) = perturb {
        (pass.first_run, pass.u, pass.seed) = (p.run, p.u, p.seed);
    }
    let mut last = Collect::new(copies, tokens.len(), weights.shape().vocab)?;
    pass.run(&mut last)?;
    Ok(last.kept)
}

/// Runs a model exactly and `runs` times with seeded random roundings of unit roundoff `u`, in one pass over its weights,
/// and gives the largest deviations (Monte Carlo arithmetic).
///
/// Each op's result moves by a uniform error of at most `u*sqrt(K)*sum|a||b|` for a sum of K products and `u*|y|`
/// for anything else. The result depends on nothing but the arguments: not on threads, nor on the machine; and run `r`
/// of two ensembles with the same seed is the same run.
///
/// # Errors
/// As [`forward_f64`]; also `Size` if there are no runs, or if `u` is not a positive finite number.
pub fn ensemble<W: ModelWeights + ?Sized>(
    weights: &W,
    tokens: &[u32],
    runs: u32,
    u: f64,
    seed: u64,
) -> Result<Spread, OracleError> {
    let refuse = |why: String| Err(OracleError::Size { op: "ensemble", why });
    if runs == 0 {
        return refuse("0 runs show no spread: expected at least one".to_owned());
    }
    if !(u.is_finite() && u > 0.0) {
        return refuse(format!("unit roundoff {u}: expected a positive number"));
    }
    let copies = (runs as usize).saturating_add(1);
    let mut pass = Pass::new(weights, tokens, copies)?;
    (pass.u, pass.seed) = (u, seed);
    let (rows, vocab) = (tokens.len(), weights.shape().vocab);
    let mut deviations = Deviations {
        exact: Collect::first(copies, rows, vocab)?,
        logits: vec![0.0; rows * vocab],
        hidden: Vec::new(),
    };
    pass.run(&mut deviations)?;
    Ok(Spread { logits: deviations.logits, hidden: deviations.hidden, reference: deviations.exact.kept })
}

/// Keeps one copy.
struct Collect {
    copies: usize,
    copy: usize,
    rows: usize,
    vocab: usize,
    kept: Forward,
}

impl Collect {
    /// Keeps the last copy.
    fn new(copies: usize, rows: usize, vocab: usize) -> Result<Collect, OracleError> {
        let elements = rows.checked_mul(vocab).ok_or_else(|| OracleError::Size {
            op: "forward",
            why: format!("{rows} tokens by {vocab} logits overflow the address space"),
        })?;
        let kept = Forward { logits: vec![0.0; elements], hidden: Vec::new() };
        Ok(Collect { copies, copy: copies - 1, rows, vocab, kept })
    }

    /// Keeps the first copy, which is the exact one.
    fn first(copies: usize, rows: usize, vocab: usize) -> Result<Collect, OracleError> {
        Ok(Collect { copy: 0, ..Collect::new(copies, rows, vocab)? })
    }
}

impl Sink for Collect {
    fn hidden(&mut self, x: &[f64]) {
        let one = x.len() / self.copies;
        self.kept.hidden.push(x[self.copy * one..][..one].to_vec());
    }

    fn logits(&mut self, first: usize, width: usize, y: &[f64]) {
        let rows = y.chunks(width).skip(self.copy * self.rows);
        for (kept, y) in self.kept.logits.chunks_mut(self.vocab).zip(rows) {
            kept[first..first + width].copy_from_slice(y);
        }
    }
}

/// Keeps the exact copy and the largest deviation of the others from it.
struct Deviations {
    exact: Collect,
    logits: Vec<f64>,
    hidden: Vec<Vec<f64>>,
}

/// A deviation that is not a number must not vanish in a maximum.
fn widen(most: &mut f64, deviation: f64) {
    if deviation.is_nan() {
        *most = f64::INFINITY;
    } else {
        *most = most.max(deviation.abs());
    }
}

impl Sink for Deviations {
    fn hidden(&mut self, x: &[f64]) {
        let (exact, others) = x.split_at(x.len() / self.exact.copies);
        let mut most = vec![0.0; exact.len()];
        for other in others.chunks(exact.len()) {
            most.iter_mut()
                .zip(exact)
                .zip(other)
                .for_each(|((most, exact), other)| widen(most, other - exact));
        }
        self.hidden.push(most);
        self.exact.hidden(x);
    }

    fn logits(&mut self, first: usize, width: usize, y: &[f64]) {
        let (exact, others) = y.split_at(self.exact.rows * width);
        for other in others.chunks(exact.len()) {
            let rows = other.chunks(width).zip(exact.chunks(width));
            for (most, (other, exact)) in self.logits.chunks_mut(self.exact.vocab).zip(rows) {
                let most = &mut most[first..first + width];
                most.iter_mut()
                    .zip(exact)
                    .zip(other)
                    .for_each(|((most, exact), other)| widen(most, other - exact));
            }
        }
        self.exact.logits(first, width, y);
    }
}
