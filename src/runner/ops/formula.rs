//! The bound of an op case in words, with its numbers.

use modelbench_contract::NumericProfile;

use super::plan::{Call, OpPlan};

/// How the truth of a call is found.
pub fn oracle(call: &Call) -> &'static str {
    match call {
        Call::Matmul | Call::BatchedMatmul => "float64 sums of products of the exact weights and activations",
        Call::RmsNorm { .. } => "float64: x / sqrt(sum(x^2)/n + eps) * weight",
        Call::Rope(_) => "float64: angle = (pos + p) * theta^(-2j/head_dim), (a cos - b sin, b cos + a sin)",
        Call::Swiglu => "float64: gate / (1 + exp(-gate)) * up",
        Call::AddInPlace | Call::AddBias => "float64 sums",
        Call::Attention { .. } => {
            "float64: softmax of scaled scores over the visible positions, weighted sum of values"
        }
        Call::Argmax => {
            "the rule of the contract: replaced only by a strictly greater value; a NaN in front stays"
        }
    }
}

/// The formula of the bound, and the numbers that stand in it for element 0, in plain f32.
pub fn bound(plan: &OpPlan) -> Vec<String> {
    let u = NumericProfile::F32.accumulator.unit_roundoff();
    let u_text = format!("u = 2^{}", u.log2());
    let values = |i: usize| plan.operands.get(i).map_or(&[][..], |operand| operand.values.as_slice());
    let growth = |n: f64| libm::expm1(n * libm::log1p(u));
    match plan.call {
        Call::Matmul | Call::BatchedMatmul => {
            let k = plan.operands.first().map_or(1, |w| w.tensor.desc().row_len()).max(1);
            let terms = values(0).iter().zip(values(1)).take(k);
            let size: f64 = terms.map(|(w, x)| (f64::from(*w) * f64::from(*x)).abs()).sum();
            vec![
                "bound = ((1+u)^K - 1) * sum|w||x| + u*|want|, plus the roundings of block scales where there are any"
                    .to_owned(),
                format!("{u_text}, K = {k}, (1+u)^K - 1 = {:e}, sum|w||x| = {size:e}", growth(k as f64)),
            ]
        }
        Call::RmsNorm { eps } => {
            let n = values(1).len().max(1);
            let mean: f64 = values(0).iter().take(n).map(|v| f64::from(*v).powi(2)).sum::<f64>() / n as f64;
            vec![
                "bound = |want| * ((1+u)^((n+3)/2) * (1 + rsqrt) * (1+u)^2 - 1): sum and mean under a root, the root \
                 itself, two products"
                    .to_owned(),
                format!(
                    "{u_text}, n = {n}, eps = {eps:e}, mean square = {mean:e}, (1+u)^((n+3)/2) - 1 = {:e}",
                    growth((n as f64 + 3.0) / 2.0)
                ),
            ]
        }
        Call::Rope(spec) => vec![
            "bound = running error of a*cos - b*sin: trig_ulp*u and the float64 error of the angle on cos and sin, two \
             products, one sum"
                .to_owned(),
            format!(
                "{u_text}, largest angle = {}, smallest = {:e}",
                spec.pos,
                spec.pos as f64 * f64::from(spec.theta).powf(2.0 / spec.head_dim as f64 - 1.0)
            ),
        ],
        Call::Swiglu => vec![
            "bound = running error of t = exp(-gate) (exp_ulp), 1 + t, gate/(1 + t) (div_ulp), times up".to_owned(),
            format!(
                "{u_text}, gate[0] = {:e}, up[0] = {:e}",
                values(0).first().copied().unwrap_or(f32::NAN),
                values(1).first().copied().unwrap_or(f32::NAN)
            ),
        ],
        Call::AddInPlace | Call::AddBias => vec![format!("bound = u*|want|, {u_text}")],
        Call::Attention { kv, spec } => {
            let (dim, len) = (kv.head_dim, kv.capacity);
            let dot: f64 =
                values(0).iter().zip(values(2)).take(dim).map(|(q, k)| (f64::from(*q) * f64::from(*k)).abs()).sum();
            vec![
                "bound = running error of scores (((1+u)^D - 1) * sum|q||k| * |scale|), exponentials (exp_ulp, once more \
                 for each later maximum), both sums over the positions, and the quotient (div_ulp)"
                    .to_owned(),
                format!(
                    "{u_text}, D = {dim}, positions = {len}, (1+u)^D - 1 = {:e}, sum|q||k| of the first score = {dot:e}, \
                     scale = {:e}",
                    growth(dim as f64),
                    spec.scale
                ),
            ]
        }
        Call::Argmax => vec!["an index is right or wrong".to_owned()],
    }
}
