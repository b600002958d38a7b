//! Bounds of norms, rotations and elementwise ops.

use modelbench_contract::{NumericProfile, RopeSpec};
use proptest::prelude::*;

use super::data::Data;
use super::naive::{self, ORDERS, Order};
use super::worst;
use crate::oracle::{Allowance, add, add_bias, rms_norm, rope, swiglu};

const F32: NumericProfile = NumericProfile::F32;

/// Correctly rounded functions.
const ROUNDED: Allowance =
    Allowance { exp_ulp: 0.0, trig_ulp: 0.0, rsqrt_ulp: 0.0, div_ulp: 0.0, angle_f32: false };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn norms_hold_in_every_order(seed in any::<u64>(), n in 1usize..300, octaves in 0u64..20, eps in -30i32..0) {
        let mut data = Data::new(seed);
        let (x, weight, eps) = (data.spread(2 * n, octaves), data.reals(n, 2.0), (eps as f32).exp2());
        let bounded = rms_norm(&x, &weight, eps, &F32, &ROUNDED).unwrap();
        for order in ORDERS {
            let ratio = worst(&bounded, &naive::rms_norm(&x, &weight, eps, order));
            prop_assert!(ratio <= 1.0, "{order:?}: {ratio}");
        }
    }

    #[test]
    fn squares_may_underflow(seed in any::<u64>(), n in 1usize..40, shift in 60i32..80) {
        let mut data = Data::new(seed);
        let (x, weight) = (data.reals(n, (-shift as f32).exp2()), data.reals(n, 1.0));
        let bounded = rms_norm(&x, &weight, f32::MIN_POSITIVE, &F32, &ROUNDED).unwrap();
        let got = naive::rms_norm(&x, &weight, f32::MIN_POSITIVE, Order::Sequential);
        prop_assert!(worst(&bounded, &got) <= 1.0);
    }

    #[test]
    fn rotations_hold(seed in any::<u64>(), pos in 0usize..100_000, half in 1usize..40, heads in 1usize..4) {
        let (dim, mut data) = (2 * half, Data::new(seed));
        let x = data.reals(heads * dim, 3.0);
        let spec = RopeSpec { pos, n_heads: heads, head_dim: dim, theta: 10000.0 };
        let got = naive::rope(&x, pos, dim, 10000.0, |j| (j, j + half));
        prop_assert!(worst(&rope(&x, spec, &F32, &ROUNDED).unwrap(), &got) <= 1.0);
    }

    #[test]
    fn gates_and_sums_hold(seed in any::<u64>(), n in 1usize..200, scale in 1u32..120) {
        let mut data = Data::new(seed);
        let (gate, up) = (data.reals(n, scale as f32), data.reals(n, 4.0));
        let divided = |(g, u): (&f32, &f32)| g / (1.0 + naive::exp(-g)) * u;
        let inverted = |(g, u): (&f32, &f32)| g * (1.0 / (1.0 + naive::exp(-g))) * u;
        let mirrored = |(g, u): (&f32, &f32)| g * (naive::exp(*g) / (1.0 + naive::exp(*g))) * u;
        let bounded = swiglu(&gate, &up, &F32, &ROUNDED).unwrap();
        let pairs = || gate.iter().zip(&up);
        prop_assert!(worst(&bounded, &pairs().map(divided).collect::<Vec<_>>()) <= 1.0);
        prop_assert!(worst(&bounded, &pairs().map(inverted).collect::<Vec<_>>()) <= 1.0);
        if scale < 80 {
            prop_assert!(worst(&bounded, &pairs().map(mirrored).collect::<Vec<_>>()) <= 1.0);
        }
        let sums: Vec<f32> = pairs().map(|(a, b)| a + b).collect();
        prop_assert!(worst(&add(&gate, &up, &F32).unwrap(), &sums) <= 1.0);
    }
}

#[test]
fn a_norm_without_eps_is_outside_where_eps_matters() {
    let (n, mut data) = (64, Data::new(4));
    let (x, weight, eps) = (data.reals(n, (-6f32).exp2()), data.reals(n, 1.0), (-16f32).exp2());
    let bounded = rms_norm(&x, &weight, eps, &F32, &ROUNDED).unwrap();
    let right = worst(&bounded, &naive::rms_norm(&x, &weight, eps, Order::Sequential));
    assert!((0.02..=1.0).contains(&right), "{right}");
    assert!(worst(&bounded, &naive::rms_norm(&x, &weight, 0.0, Order::Sequential)) > 1.0);
    let mut one_off = naive::rms_norm(&x, &weight, eps, Order::Lanes);
    one_off[9] *= 1.0 - (-6f32).exp2();
    assert!(worst(&bounded, &one_off) > 1.0);
}

#[test]
fn a_norm_of_zeros_without_eps_has_no_bound() {
    let bounded = rms_norm(&[0.0; 4], &[1.0; 4], 0.0, &F32, &ROUNDED).unwrap();
    assert!(bounded.bound.iter().all(|b| !b.is_finite()));
    assert!(rms_norm(&[f32::MAX; 4], &[1.0; 4], 0.0, &F32, &ROUNDED).is_err());
}

#[test]
fn another_rotation_is_outside() {
    let (dim, mut data) = (16, Data::new(6));
    let x = data.reals(2 * dim, 1.0);
    let spec = RopeSpec { pos: 37, n_heads: 2, head_dim: dim, theta: 10000.0 };
    let bounded = rope(&x, spec, &F32, &ROUNDED).unwrap();
    let right = worst(&bounded, &naive::rope(&x, 37, dim, 10000.0, |j| (j, j + dim / 2)));
    assert!((0.05..=1.0).contains(&right), "{right}");
    assert!(worst(&bounded, &naive::rope(&x, 37, dim, 10000.0, |j| (2 * j, 2 * j + 1))) > 1.0, "interleaved");
    assert!(worst(&bounded, &naive::rope(&x, 38, dim, 10000.0, |j| (j, j + dim / 2))) > 1.0, "position");
    assert!(worst(&bounded, &naive::rope(&x, 37, dim, 10100.0, |j| (j, j + dim / 2))) > 1.0, "theta");
}

#[test]
fn f32_angles_hold_only_where_allowed() {
    let (dim, pos, mut data) = (32, 60_001, Data::new(9));
    let x = data.reals(dim, 1.0);
    let spec = RopeSpec { pos, n_heads: 1, head_dim: dim, theta: 500_000.0 };
    let mut got = x.clone();
    for j in 0..dim / 2 {
        let freq = ((j * 2) as f32 / dim as f32 * -(500_000f32.ln())).exp();
        let (sin, cos) = (pos as f32 * freq).sin_cos();
        let (a, b) = (x[j], x[j + dim / 2]);
        (got[j], got[j + dim / 2]) = (a * cos - b * sin, b * cos + a * sin);
    }
    let allowed = Allowance { exp_ulp: 1.0, trig_ulp: 2.0, angle_f32: true, ..ROUNDED };
    assert!(worst(&rope(&x, spec, &F32, &allowed).unwrap(), &got) <= 1.0);
    assert!(worst(&rope(&x, spec, &F32, &Allowance { angle_f32: false, ..allowed }).unwrap(), &got) > 1.0);
}

#[test]
fn rows_of_a_rotation_follow_each_other() {
    let mut data = Data::new(10);
    let x = data.reals(3 * 8, 1.0);
    let spec = RopeSpec { pos: 5, n_heads: 1, head_dim: 8, theta: 100.0 };
    let all = rope(&x, spec, &F32, &ROUNDED).unwrap();
    let last = rope(&x[16..], RopeSpec { pos: 7, ..spec }, &F32, &ROUNDED).unwrap();
    assert_eq!(all.want[16..], last.want);
    assert_eq!(all.bound[16..], last.bound);
}

#[test]
fn gelu_is_outside_silu() {
    let mut data = Data::new(12);
    let (gate, up) = (data.reals(64, 4.0), data.reals(64, 1.0));
    let gelu = |(g, u): (&f32, &f32)| g / (1.0 + naive::exp(-1.702 * g)) * u;
    let got: Vec<f32> = gate.iter().zip(&up).map(gelu).collect();
    assert!(worst(&swiglu(&gate, &up, &F32, &ROUNDED).unwrap(), &got) > 1.0);
}

#[test]
fn a_bias_goes_to_every_row() {
    let bounded = add_bias(&[1.0, 2.0, 3.0, 4.0], &[10.0, 20.0], &F32).unwrap();
    assert_eq!(bounded.want, [11.0, 22.0, 13.0, 24.0]);
    assert!(worst(&bounded, &[11.0, 22.0, 13.0, 24.0]) <= 1.0);
    assert!(worst(&bounded, &[11.0, 22.0, 3.0, 4.0]) > 1.0);
    assert!(add_bias(&[1.0; 3], &[1.0; 2], &F32).is_err());
    assert!(add(&[1.0; 3], &[1.0; 2], &F32).is_err());
}
