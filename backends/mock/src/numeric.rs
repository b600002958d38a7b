//! Behaviours whose values are wrong.

use modelbench_contract::{AttentionSpec, Op};

use crate::arithmetic;
use crate::tensor::Plain;
use crate::twist::{Call, Scalars, Twist};

fn is_product(op: Op) -> bool {
    matches!(op, Op::Matmul | Op::BatchedMatmul)
}

/// One NaN in the result of a product.
#[derive(Debug)]
pub(crate) struct Nan;

impl Twist for Nan {
    fn after(&mut self, call: &Call<'_>, result: &mut Plain) {
        let middle = result.values.len() / 2;
        if let (true, Some(value)) = (is_product(call.op), result.values.get_mut(middle)) {
            *value = f32::NAN;
        }
    }
}

/// One finite element of a product is absurdly large.
#[derive(Debug)]
pub(crate) struct HugeElement;

impl Twist for HugeElement {
    fn after(&mut self, call: &Call<'_>, result: &mut Plain) {
        if let (true, Some(value)) = (is_product(call.op), result.values.last_mut()) {
            *value = 1e30;
        }
    }
}

/// Products keep 8 bits of significand while f32 is declared.
#[derive(Debug)]
pub(crate) struct LowPrecision;

impl Twist for LowPrecision {
    fn after(&mut self, call: &Call<'_>, result: &mut Plain) {
        if is_product(call.op) {
            result.values.iter_mut().for_each(|value| *value = f32::from_bits(value.to_bits() & 0xffff_0000));
        }
    }
}

/// GELU in its tanh form in place of SiLU.
#[derive(Debug)]
pub(crate) struct GeluForSilu;

impl Twist for GeluForSilu {
    fn replace(&mut self, call: &Call<'_>) -> Option<Plain> {
        let (Op::Swiglu, [gate, up]) = (call.op, call.inputs) else { return None };
        let gelu = |z: f32| {
            let inner = (2.0 / std::f32::consts::PI).sqrt() * (z + 0.044_715 * z * z * z);
            0.5 * z * (1.0 + inner.tanh())
        };
        let values = gate.values.iter().zip(up.values.iter()).map(|(&z, &up)| gelu(z) * up).collect();
        Some(Plain::new(&gate.desc.shape, values))
    }
}

/// `rms_norm` adds `eps` outside the root.
#[derive(Debug)]
pub(crate) struct EpsOutsideRoot;

impl Twist for EpsOutsideRoot {
    fn replace(&mut self, call: &Call<'_>) -> Option<Plain> {
        let (Op::RmsNorm, [x, weight], Scalars::Eps(eps)) = (call.op, call.inputs, call.scalars) else {
            return None;
        };
        let n = weight.values.len();
        let row_of = |row: &[f32]| -> Vec<f32> {
            let mean = row.iter().map(|v| v * v).sum::<f32>() / n as f32;
            row.iter().zip(weight.values.iter()).map(|(v, w)| v / (mean.sqrt() + eps) * w).collect()
        };
        Some(Plain::new(&x.desc.shape, x.values.chunks_exact(n).flat_map(row_of).collect()))
    }
}

/// `rope` rotates neighbours `(2j, 2j+1)` instead of halves.
#[derive(Debug)]
pub(crate) struct InterleavedRope;

impl Twist for InterleavedRope {
    fn replace(&mut self, call: &Call<'_>) -> Option<Plain> {
        let (Op::Rope, [x], Scalars::Rope(spec)) = (call.op, call.inputs, call.scalars) else { return None };
        let half = spec.head_dim / 2;
        let moved = |values: &[f32], from: fn(usize, usize) -> usize| -> Vec<f32> {
            values
                .chunks(spec.head_dim)
                .flat_map(|head| (0..head.len()).map(move |i| head[from(i, half)]))
                .collect()
        };
        let apart = moved(&x.values, |i, half| if i < half { 2 * i } else { 2 * (i - half) + 1 });
        let rotated = arithmetic::rope(&apart, x.desc.row_len(), &spec);
        let together = moved(&rotated, |i, half| i / 2 + (i % 2) * half);
        Some(Plain::new(&x.desc.shape, together))
    }
}

/// `attention` ignores the causal mask.
#[derive(Debug)]
pub(crate) struct IgnoresMask;

impl Twist for IgnoresMask {
    fn attention(&self, spec: AttentionSpec) -> AttentionSpec {
        AttentionSpec { causal: false, ..spec }
    }
}

/// `attention` leaves the scale out.
#[derive(Debug)]
pub(crate) struct IgnoresScale;

impl Twist for IgnoresScale {
    fn attention(&self, spec: AttentionSpec) -> AttentionSpec {
        AttentionSpec { scale: 1.0, ..spec }
    }
}

/// `argmax` gives the last maximum.
#[derive(Debug)]
pub(crate) struct ArgmaxLast;

impl Twist for ArgmaxLast {
    fn argmax(&mut self, logits: &[f32]) -> Option<usize> {
        let top = logits[arithmetic::argmax(logits)];
        logits.iter().rposition(|value| *value == top)
    }
}

/// `evict` keeps the old keys of survivors.
#[derive(Debug)]
pub(crate) struct EvictKeepsKeys;

impl Twist for EvictKeepsKeys {
    fn rotates_survivors(&self) -> bool {
        false
    }
}

/// The same product differs a little from call to call, while determinism is declared.
#[derive(Debug, Default)]
pub(crate) struct Nondeterministic {
    calls: u32,
}

impl Twist for Nondeterministic {
    fn after(&mut self, call: &Call<'_>, result: &mut Plain) {
        self.calls += 1;
        if let (true, Some(value)) = (is_product(call.op), result.values.first_mut()) {
            *value = f32::from_bits(value.to_bits() ^ (self.calls & 1));
        }
    }
}
