//! The truth of `attention`.

use modelbench_contract::{AttentionSpec, NumericProfile};

use super::arith::Arith;
use super::error::{check_len, check_rows};
use super::value::{Bounded, Val, working_precision};
use super::{Allowance, OracleError};

/// Roundings of a score beyond its dot product: the scale, and the base-2 logarithm of e for those who use `exp2`.
const SCALE_ROUNDINGS: f64 = 3.0;

/// Operands of one layer's attention.
#[derive(Debug, Clone, Copy)]
pub struct AttentionInput<'a> {
    /// Queries after RoPE, `[P, kv_heads*group*head_dim]`.
    pub q: &'a [f32],
    /// Keys after RoPE, `[len, kv_heads*head_dim]`.
    pub keys: &'a [f32],
    /// Values, `[len, kv_heads*head_dim]`.
    pub values: &'a [f32],
    /// KV heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
}

/// Softmax-weighted values of each query head over the KV store, `[P, n_heads*head_dim]`. Query head `h` reads KV head
/// `h / group`; with `causal`, row `p` sees the first `len - P + 1 + p` positions.
///
/// For one head, with scores `s_j`, `m = max s`, `p_j = exp(s_j - m)`, `S = sum p_j`, `o = sum p_j v_j / S`:
/// - a score is off by `e_j = |scale|*((1+u)^D - 1)*sum|q||k|` and the roundings of its operands and of the scale;
/// - `m` is the same number in numerator and denominator, so its error cancels; the rounding of `s_j - m` gives
///   `u*(m - s_j)`, of a product `m*log2(e)` `u*|m|`, together the error `E_j` of the exponent;
/// - an online softmax multiplies what it has by `exp(m_old - m_new)` each time a position raises the maximum, and
///   only positions above `s_j` can do so after `j`: with `r_j` of them, `p_j` carries `1 + r_j` evaluations of `exp`,
///   a factor `exp(±E_j)(1 ± exp_ulp)^(1+r_j)`: at most `1 + d_j`; a weight that underflows is off by `(1+r_j)*eta`;
/// - the same computed `p_j` stand in both sums, so that this part moves `o` by at most `sum p_j d_j |v_j - o| / S'`,
///   with `S'` the least possible sum, and never beyond the range of the values;
/// - the roundings that the sums do not share, `(1+u)^(len+r_j+1) - 1` on each `p_j|v_j|` and `(1+u)^(len+r_j) - 1` on
///   each `p_j`, and the rounding of `p` and `v` to the operand precision, follow the quotient rule;
/// - the division (before or after the sum, or by an inverse) adds `(div_ulp + 2u) * sum p_j|v_j| / S'`.
///
/// # Errors
/// `Size` if a size is zero or there are more causal queries than positions; `Shape` if an operand has another length;
/// `Range` if finite operands do not fit the operand precision or scores overflow.
pub fn attention(
    input: &AttentionInput<'_>,
    spec: &AttentionSpec,
    profile: &NumericProfile,
    allowance: &Allowance,
) -> Result<Bounded, OracleError> {
    const OP: &str = "attention";
    let (dim, kv_row) = (input.head_dim, input.kv_heads.saturating_mul(input.head_dim));
    let q_row = kv_row.saturating_mul(spec.group);
    if kv_row == 0 || spec.group == 0 {
        let why = format!(
            "{} KV heads of {dim} elements with {} query heads each: none may be zero",
            input.kv_heads, spec.group
        );
        return Err(OracleError::Size { op: OP, why });
    }
    let rows = check_rows(OP, "q", input.q.len(), q_row)?;
    let len = check_rows(OP, "keys", input.keys.len(), kv_row)?;
    check_len(OP, "values", input.values.len(), &[len, kv_row])?;
    if spec.causal && rows > len {
        let why = format!(
            "{rows} causal queries over {len} positions: the store must hold the queries' own positions"
        );
        return Err(OracleError::Size { op: OP, why });
    }
    let ctx = Context::new(spec, profile, allowance);
    for (what, x) in [("q", input.q), ("keys", input.keys), ("values", input.values)] {
        ctx.operand.check_operands(OP, what, x)?;
    }
    let load = |x: &[f32]| -> Vec<Val> { x.iter().map(|&v| ctx.operand.load(v)).collect() };
    let (q, keys, values) = (load(input.q), load(input.keys), load(input.values));
    Ok(attended(&ctx, spec, [&q, &keys, &values], (input.kv_heads, dim))?.into_iter().collect())
}

/// Attention of operands `q, keys, values` that have errors of their own; sizes, `(kv_heads, head_dim)` and the rest, are
/// checked by the caller.
pub(super) fn attended(
    ctx: &Context<'_>,
    spec: &AttentionSpec,
    [q, keys, values]: [&[Val]; 3],
    (kv_heads, dim): (usize, usize),
) -> Result<Vec<Val>, OracleError> {
    let (kv_row, q_row) = (kv_heads * dim, kv_heads * spec.group * dim);
    let (rows, len) = (q.len() / q_row, keys.len() / kv_row);
    let mut all = Vec::with_capacity(q.len());
    for row in 0..rows {
        let visible = if spec.causal { len - rows + 1 + row } else { len };
        for head in 0..kv_heads * spec.group {
            let q = &q[row * q_row + head * dim..][..dim];
            let at = (head / spec.group) * dim;
            let key = |j: usize| &keys[j * kv_row + at..][..dim];
            let value = |j: usize| &values[j * kv_row + at..][..dim];
            let scores: Vec<Val> = (0..visible).map(|j| ctx.score(q, key(j))).collect::<Result<_, _>>()?;
            let softmax = ctx.softmax(&scores);
            (0..dim).for_each(|d| all.push(ctx.mix(&softmax, |j| &value(j)[d])));
        }
    }
    Ok(all)
}

pub(super) struct Context<'a> {
    /// Sums, softmax and everything else.
    w: Arith,
    /// Operands of the two products.
    operand: Arith,
    scale: f64,
    allowance: &'a Allowance,
}

/// The weight of one position.
struct Weight {
    /// `exp(s - m)`.
    p: f64,
    /// Largest relative error that numerator and denominator share.
    shared: f64,
    /// Absolute error where it underflows.
    underflow: f64,
    /// Relative rounding error of this weight's part in the sum of weights.
    in_sum: f64,
    /// Relative rounding error of its part in the sum of values.
    in_mix: f64,
}

impl Weight {
    /// The largest value that an implementation may hold.
    fn most(&self) -> f64 {
        self.p * (1.0 + self.shared) + self.underflow
    }
}

struct Softmax {
    weights: Vec<Weight>,
    /// `sum p`.
    sum: f64,
    /// Least possible sum of the computed weights.
    least: f64,
    /// Rounding error of that sum.
    sum_error: f64,
}

impl<'a> Context<'a> {
    pub(super) fn new(
        spec: &AttentionSpec,
        profile: &NumericProfile,
        allowance: &'a Allowance,
    ) -> Context<'a> {
        let flush = profile.flush_to_zero;
        Context {
            w: Arith::new(working_precision(profile), flush),
            operand: Arith::new(profile.operand, flush),
            scale: f64::from(spec.scale),
            allowance,
        }
    }

    fn score(&self, q: &[Val], k: &[Val]) -> Result<Val, OracleError> {
        let (mut dot, mut size, mut e) = (0.0, 0.0, 0.0);
        for (q, k) in q.iter().zip(k) {
            dot += q.v * k.v;
            size += (q.v * k.v).abs();
            e += q.v.abs() * k.e + k.v.abs() * q.e + q.e * k.e;
        }
        self.w.check_range("attention", "sum of |q||k|", size)?;
        let n = q.len() as f64;
        let growth = self.w.growth(n + SCALE_ROUNDINGS);
        let e = e + growth * (size + e) + n * (self.w.eta + self.w.eta_sum + self.w.own * size);
        Ok(Val {
            v: dot * self.scale,
            e: e * self.scale.abs() + self.w.eta + self.w.own * (dot * self.scale).abs(),
        })
    }

    fn softmax(&self, scores: &[Val]) -> Softmax {
        let n = scores.len() as f64;
        let max = scores.iter().fold(f64::NEG_INFINITY, |m, s| m.max(s.v));
        let (mut worst, mut largest) = (0.0f64, 0.0f64);
        for s in scores {
            worst = worst.max(s.e);
            largest = largest.max(s.v.abs());
        }
        let mut upper: Vec<f64> = scores.iter().map(|s| s.v + s.e).collect();
        upper.sort_by(f64::total_cmp);
        let exp_error = self.w.relative(self.allowance.exp_ulp) + self.w.own;
        let (up, down) = (libm::log1p(exp_error), -libm::log1p(-exp_error));
        let mut softmax =
            Softmax { weights: Vec::with_capacity(scores.len()), sum: 0.0, least: 0.0, sum_error: 0.0 };
        for s in scores {
            let lower = s.v - s.e;
            let above = upper.len() - upper.partition_point(|&u| u <= lower);
            // The position itself is among them if its error is not zero.
            let raises = (above as f64 - if s.e > 0.0 { 1.0 } else { 0.0 }).max(0.0);
            let p = libm::exp(s.v - max);
            let span = (max - s.v) + 2.0 * worst;
            let exponent =
                s.e + self.w.u * (SCALE_ROUNDINGS * span + 2.0 * (largest + worst)) + self.w.own * span;
            let shared = libm::expm1(exponent + (1.0 + raises) * up);
            let underflow = (1.0 + raises) * self.w.eta;
            softmax.sum += p;
            softmax.least += p * libm::exp(-(exponent + (1.0 + raises) * down)) - underflow;
            let in_mix = self.w.growth(n + raises + 1.0) + 2.0 * n * self.w.own;
            let weight = Weight { p, shared, underflow, in_sum: self.w.growth(n + raises), in_mix };
            softmax.sum_error += weight.most() * weight.in_sum + self.w.eta_sum;
            softmax.weights.push(weight);
        }
        softmax
    }

    fn mix<'v>(&self, softmax: &Softmax, value: impl Fn(usize) -> &'v Val) -> Val {
        let Softmax { weights, sum, least, sum_error } = softmax;
        let out = weights.iter().enumerate().map(|(j, w)| w.p * value(j).v).sum::<f64>() / sum;
        let n = weights.len() as f64;
        // Weights are operands of the second product; coarser operands round them, before or after the division.
        let (coarse, tiny) =
            if self.operand.u > self.w.u { (self.operand.u, self.operand.eta) } else { (0.0, 0.0) };
        let (mut shared, mut apart, mut size) = (0.0, 0.0, 0.0);
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for (j, w) in weights.iter().enumerate() {
            let v = value(j);
            let (most, held) = (w.most(), v.v.abs() + v.e);
            shared += (w.p * w.shared + w.underflow) * (v.v - out).abs();
            apart += most * (held * ((1.0 + coarse) * (1.0 + w.in_mix) - 1.0) + v.e);
            apart += (tiny * held + self.w.eta + self.w.eta_sum) * sum;
            size += most * held;
            (low, high) = (low.min(v.v), high.max(v.v));
        }
        let denominator = least - sum_error;
        if denominator.is_nan() || denominator <= 0.0 {
            return Val { v: out, e: f64::INFINITY };
        }
        // Positive weights give a mean of the values, whatever their errors.
        let shared = (shared / least).min(high - low);
        let apart = (apart + (out.abs() + shared) * sum_error) / denominator;
        let division = self.w.relative(self.allowance.div_ulp) + 2.0 * self.w.u;
        let e = shared + apart + division * size / denominator + (n + 1.0) * self.w.eta;
        Val { v: out, e: e * (1.0 + division) }
    }
}
