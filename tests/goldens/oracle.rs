//! The same case, asked of the kit's oracle.

use std::sync::LazyLock;

use modelbench::oracle::{self, Allowance, AttentionInput, Bounded, OracleError, Weight};
use modelbench::suite::{SuiteTree, Suites, Tolerance};
use modelbench_contract::NumericProfile;

use crate::case::{Call, Case};

/// The oracle's values and bounds. `argmax` has an index and no bound.
pub fn ask(case: &Case, profile: &NumericProfile, allowance: &Allowance) -> Result<Bounded, OracleError> {
    match &case.call {
        Call::Matmul { w, x, inner, .. } => {
            let weight = Weight { values: &w.values, dtype: w.dtype, magnitudes: w.magnitudes.as_deref() };
            oracle::matmul(&weight, x, *inner, profile, allowance)
        }
        Call::RmsNorm { x, weight, eps } => oracle::rms_norm(x, weight, *eps, profile, allowance),
        Call::Rope { x, spec } => oracle::rope(x, *spec, profile, allowance),
        Call::Swiglu { gate, up } => oracle::swiglu(gate, up, profile, allowance),
        Call::AddInPlace { dst, src } => oracle::add(dst, src, profile),
        Call::AddBias { dst, bias } => oracle::add_bias(dst, bias, profile),
        Call::Attention { q, k, v, kv_heads, head_dim, spec } => {
            let input = AttentionInput { q, keys: k, values: v, kv_heads: *kv_heads, head_dim: *head_dim };
            oracle::attention(&input, spec, profile, allowance)
        }
        Call::Argmax { x } => Ok(Bounded { want: vec![oracle::argmax(x)? as f64], bound: vec![0.0] }),
    }
}

static SUITES: LazyLock<Suites> = LazyLock::new(|| Suites::load(SuiteTree::embedded()).unwrap());

/// The least that any bound group of the suites allows for an op: what holds for it holds for all of them.
pub fn tightest(op: &str) -> Allowance {
    let mut least = None;
    for case in SUITES.cases.iter().filter(|case| case.group.check == op) {
        let Tolerance::Bound { exp_ulp, trig_ulp, rsqrt_ulp, div_ulp, .. } = case.group.tolerance else {
            continue;
        };
        let Allowance { exp_ulp: e, trig_ulp: t, rsqrt_ulp: r, div_ulp: d, .. } =
            *least.get_or_insert(Allowance { exp_ulp, trig_ulp, rsqrt_ulp, div_ulp, angle_f32: false });
        least = Some(Allowance {
            exp_ulp: exp_ulp.min(e),
            trig_ulp: trig_ulp.min(t),
            rsqrt_ulp: rsqrt_ulp.min(r),
            div_ulp: div_ulp.min(d),
            angle_f32: false,
        });
    }
    // argmax has exact groups only.
    assert!(least.is_some() || op == "argmax", "no suite has a bound group for {op}");
    least.unwrap_or_default()
}
