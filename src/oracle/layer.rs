//! The truth of one transformer layer, with the running error of the whole chain.

use modelbench_contract::{AttentionSpec, DType, NumericProfile, RopeSpec};

use super::arith::Arith;
use super::attention::{Context, attended};
use super::elementwise::gated;
use super::error::{check_len, check_rows};
use super::matmul::{Weight, product};
use super::norm::normalised;
use super::rope::rotated;
use super::value::{Bounded, Val, working_precision};
use super::{Allowance, OracleError};

/// Sizes of a layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerShape {
    /// Width of the residual stream.
    pub dim: usize,
    /// Width of the feed-forward block.
    pub hidden: usize,
    /// KV heads.
    pub kv_heads: usize,
    /// Query heads to a KV head.
    pub group: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// RoPE base.
    pub theta: f32,
    /// Added to the mean square.
    pub eps: f32,
}

/// Weights of a layer, f32, row-major `[out, in]`.
#[derive(Debug, Clone, Copy)]
pub struct LayerWeights<'a> {
    /// `[dim]`.
    pub attention_norm: &'a [f32],
    /// `[heads*head_dim, dim]`.
    pub q: &'a [f32],
    /// `[kv_heads*head_dim, dim]`.
    pub k: &'a [f32],
    /// `[kv_heads*head_dim, dim]`.
    pub v: &'a [f32],
    /// `[dim, heads*head_dim]`.
    pub o: &'a [f32],
    /// `[dim]`.
    pub ffn_norm: &'a [f32],
    /// `[hidden, dim]`.
    pub gate: &'a [f32],
    /// `[hidden, dim]`.
    pub up: &'a [f32],
    /// `[dim, hidden]`.
    pub down: &'a [f32],
}

/// One layer over `x[P, dim]` at positions `0..P`, causal: `x1 = x + o*attention(rope(q*h), rope(k*h), v*h)` with
/// `h = norm(x)`, then `x1 + down*(silu(gate*h1) * (up*h1))` with `h1 = norm(x1)`.
///
/// Each op takes the errors of its operands along, as the ops' own documentation derives them, so that the bound holds
/// for any implementation that rounds each intermediate result to f32 or keeps it in more.
///
/// # Errors
/// `Shape` if `x` is not whole rows or a weight has another size; `Range` if something overflows.
pub fn layer(
    weights: &LayerWeights<'_>,
    x: &[f32],
    shape: &LayerShape,
    profile: &NumericProfile,
    allowance: &Allowance,
) -> Result<Bounded, OracleError> {
    const OP: &str = "layer";
    let LayerShape { dim, hidden, kv_heads, group, head_dim, theta, eps } = *shape;
    let (q_row, kv_row) = (kv_heads * group * head_dim, kv_heads * head_dim);
    check_rows(OP, "x", x.len(), dim)?;
    for (what, weight, size) in [
        ("attention_norm", weights.attention_norm, [1, dim]),
        ("q", weights.q, [q_row, dim]),
        ("k", weights.k, [kv_row, dim]),
        ("v", weights.v, [kv_row, dim]),
        ("o", weights.o, [dim, q_row]),
        ("ffn_norm", weights.ffn_norm, [1, dim]),
        ("gate", weights.gate, [hidden, dim]),
        ("up", weights.up, [hidden, dim]),
        ("down", weights.down, [dim, hidden]),
    ] {
        check_len(OP, what, weight.len(), &size)?;
    }
    let flush = profile.flush_to_zero;
    let arith = Arith::new(working_precision(profile), flush);
    let operand = Arith::new(profile.operand, flush);
    // Operands of products are rounded once more where the declared operand precision is the coarser one.
    let carry = |values: &[Val]| -> Vec<Val> {
        let coarse = operand.u > arith.u;
        let round = |v: &Val| if coarse { operand.rounded(v.v, v.e, operand.u, operand.eta) } else { *v };
        values.iter().map(round).collect()
    };
    let times = |w: &[f32], values: &[Val], k: usize| {
        product(&Weight::plain(w, DType::F32), &carry(values), k, profile)
    };
    let add =
        |a: &[Val], b: &[Val]| -> Vec<Val> { a.iter().zip(b).map(|(a, b)| arith.add(*a, *b)).collect() };
    let rope =
        |x: &[Val], n_heads| rotated(x, RopeSpec { pos: 0, n_heads, head_dim, theta }, &arith, allowance);

    let x: Vec<Val> = x.iter().map(|&v| arith.load(v)).collect();
    let h = normalised(&x, weights.attention_norm, eps, &arith, allowance)?;
    let q = rope(&times(weights.q, &h, dim)?, kv_heads * group);
    let k = rope(&times(weights.k, &h, dim)?, kv_heads);
    let v = times(weights.v, &h, dim)?;
    let spec = AttentionSpec::causal(group, head_dim);
    let context = Context::new(&spec, profile, allowance);
    let mixed = attended(&context, &spec, [&carry(&q), &carry(&k), &carry(&v)], (kv_heads, head_dim))?;
    let x = add(&x, &times(weights.o, &mixed, q_row)?);

    let h = normalised(&x, weights.ffn_norm, eps, &arith, allowance)?;
    let (gate, up) = (times(weights.gate, &h, dim)?, times(weights.up, &h, dim)?);
    let act: Vec<Val> =
        gate.iter().zip(&up).map(|(g, u)| gated(*g, *u, &arith, allowance)).collect::<Result<_, _>>()?;
    let y = add(&x, &times(weights.down, &act, hidden)?);
    Ok(y.into_iter().collect())
}
