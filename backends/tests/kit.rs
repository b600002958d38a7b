//! Inputs, uploads and bounds shared by the tests.

use modelbench_contract::{Backend, DType, HostTensor};

use crate::subject::{Subject, Tensor};

/// Unit roundoff of f32.
pub(crate) const U: f64 = 1.0 / (1u64 << 24) as f64;

/// Deterministic values in [-1, 1).
pub(crate) fn reals(seed: u64, n: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xd1b5_4a32_d192_ed03;
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 40) as f32) / (1u32 << 23) as f32 - 1.0
        })
        .collect()
}

pub(crate) fn up(b: &mut Subject, shape: &[usize], values: &[f32]) -> Tensor {
    b.upload(&HostTensor::from_f32(shape, values).unwrap(), DType::F32).unwrap()
}

/// `gamma_k = k*u/(1 - k*u)`.
pub(crate) fn gamma(k: usize) -> f64 {
    let ku = k as f64 * U;
    ku / (1.0 - ku)
}

/// Asserts one element against its bound, naming it.
pub(crate) fn close(what: &str, i: usize, got: f32, want: f64, bound: f64) {
    assert!(bound.is_finite(), "{what}[{i}]: the bound must be a number");
    let error = (f64::from(got) - want).abs();
    assert!(
        error <= bound,
        "{what}[{i}]: got {got:e}, want {want:e}, error {error:e} above the bound {bound:e}"
    );
}

pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}
