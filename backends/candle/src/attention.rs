//! Grouped-query attention over a candle KV store.

use candle_core::{D, Tensor};
use modelbench_contract::{AttentionSpec, BackendError, DeviceTensor};

use crate::{
    CandleKv, CandleTensor,
    fault::Result,
    shape::{admit, f32_operand, product, rows, scalar},
};

/// Heads of one call.
#[derive(Clone, Copy)]
struct Heads {
    kv: usize,
    group: usize,
    dim: usize,
}

/// Attention of `q` over the rows of `layer`; the result has the shape of `q`.
pub(crate) fn attention(
    q: &CandleTensor,
    kv: &CandleKv,
    layer: usize,
    spec: AttentionSpec,
) -> Result<CandleTensor> {
    let config = kv.config();
    let (p, n) = rows("q", q)?;
    let expected = product("heads", &[config.kv_heads, spec.group, config.head_dim])?;
    if spec.group == 0 || n != expected {
        return Err(BackendError::invalid(format!(
            "q has shape {:?}; expected rows of kv_heads*group*head_dim = {}*{}*{} elements with a group of at least 1",
            q.desc().shape,
            config.kv_heads,
            spec.group,
            config.head_dim
        ))
        .into());
    }
    scalar("scale", spec.scale, true, "a finite number")?;
    let held = kv.rows(layer)?;
    if held == 0 || (spec.causal && p > held) {
        return Err(BackendError::invalid(format!(
            "{p} query rows meet {held} positions of layer {layer}; the store must already hold the queries' positions"
        ))
        .into());
    }
    let values = f32_operand("q", q)?;
    let heads = Heads { kv: config.kv_heads, group: spec.group, dim: config.head_dim };
    let together = if spec.causal { 1 } else { p };
    admit("attention scores", &[4, together, heads.kv, heads.group, held])?;
    let queries = values.reshape((p, n))?;
    let out = if spec.causal && p > 1 {
        // Each row gets exactly the positions it may see. A masked score still multiplies its value by zero, and
        // zero times an infinite value of a later position would leak into this row as NaN.
        let each = (0..p)
            .map(|row| attend(&queries.narrow(0, row, 1)?, kv, layer, held - p + 1 + row, heads, spec.scale))
            .collect::<Result<Vec<_>>>()?;
        Tensor::cat(&each, 0)?
    } else {
        attend(&queries, kv, layer, held, heads, spec.scale)?
    };
    Ok(CandleTensor::from_f32(out.reshape(values.shape())?))
}

/// Every row of `q` `[P, kv*group*dim]` over the first `visible` positions; the result has the same shape.
///
/// The queries of one KV head form one matrix, so keys and values are never repeated for the group.
fn attend(
    q: &Tensor,
    kv: &CandleKv,
    layer: usize,
    visible: usize,
    heads: Heads,
    scale: f32,
) -> Result<Tensor> {
    let Heads { kv: kv_heads, group, dim } = heads;
    let p = q.dim(0)?;
    let by_head = |rows: Tensor| -> Result<Tensor> {
        let rows = rows.reshape((visible, kv_heads, dim))?.transpose(0, 1)?;
        // The CPU kernels read any strides; cuBLAS takes only the standard ones.
        Ok(if rows.device().is_cpu() { rows } else { rows.contiguous()? })
    };
    let keys = by_head(kv.keys_view(layer, visible)?)?;
    let values = by_head(kv.values_view(layer, visible)?)?;
    let q = q.reshape((p, kv_heads, group, dim))?.transpose(0, 1)?.contiguous()?.reshape((
        kv_heads,
        p * group,
        dim,
    ))?;
    let scores = (q.matmul(&keys.transpose(1, 2)?)? * f64::from(scale))?;
    let weights = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?)?.exp()?;
    let weights = weights.broadcast_div(&weights.sum_keepdim(D::Minus1)?)?;
    let out = weights.matmul(&values)?;
    Ok(out
        .reshape((kv_heads, p, group, dim))?
        .transpose(0, 1)?
        .contiguous()?
        .reshape((p, kv_heads * group * dim))?)
}
