//! Bounds of `matmul`.

use half::{bf16, f16};
use modelbench_contract::{Activation, DType, NumericProfile, Precision};
use proptest::prelude::*;

use super::data::Data;
use super::naive::{self, ORDERS, Order};
use super::worst;
use crate::oracle::{Allowance, Bounded, OracleError, Weight, matmul};

const F32: NumericProfile = NumericProfile::F32;

fn truth(w: &[f32], x: &[f32], k: usize, profile: &NumericProfile) -> Bounded {
    matmul(&Weight::plain(w, DType::F32), x, k, profile, &Allowance::default()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn every_order_holds(seed in any::<u64>(), k in 1usize..300, octaves in 0u64..24, cancel in any::<bool>()) {
        let mut data = Data::new(seed);
        let (mut w, x) = (data.spread(3 * k, octaves), data.spread(2 * k, octaves));
        if cancel {
            // The second half undoes the first, so that the sum is far below its terms.
            for row in w.chunks_mut(k) {
                for i in k / 2..k {
                    row[i] = -row[i - k / 2] * x[i - k / 2] / x[i];
                }
            }
        }
        let bounded = truth(&w, &x, k, &F32);
        for order in ORDERS {
            let ratio = worst(&bounded, &naive::matmul(&w, &x, k, order));
            prop_assert!(ratio <= 1.0, "{order:?}: {ratio}");
        }
    }

    #[test]
    fn underflow_holds(seed in any::<u64>(), k in 1usize..40, shift in 60i32..75) {
        let mut data = Data::new(seed);
        let tiny = (-shift as f32).exp2();
        let (w, x) = (data.reals(k, tiny), data.reals(k, tiny));
        let bounded = truth(&w, &x, k, &F32);
        prop_assert!(worst(&bounded, &naive::matmul(&w, &x, k, Order::Sequential)) <= 1.0);
        let flushed = |v: f32| if v.abs() < f32::MIN_POSITIVE { 0.0 } else { v };
        let sum = w.iter().zip(&x).fold(0.0, |s, (w, x)| flushed(s + flushed(flushed(*w) * flushed(*x))));
        let bounded = truth(&w, &x, k, &NumericProfile { flush_to_zero: true, ..F32 });
        prop_assert!(worst(&bounded, &[sum]) <= 1.0);
    }
}

#[test]
fn a_flushed_operand_is_allowed_only_where_declared() {
    // 2^-130 is denormal; its product with 2^100 is not.
    let (w, x) = ([(-130f32).exp2(), 0.0], [100f32.exp2(), 1.0]);
    assert!(worst(&truth(&w, &x, 2, &F32), &[0.0]) > 1.0);
    assert!(worst(&truth(&w, &x, 2, &NumericProfile { flush_to_zero: true, ..F32 }), &[0.0]) <= 1.0);
}

#[test]
fn bounds_are_not_silly() {
    let mut data = Data::new(5);
    for (k, least) in [(1, 0.1), (16, 0.05), (256, 0.004)] {
        let (w, x) = (data.reals(64 * k, 1.0), data.reals(k, 1.0));
        let ratio = worst(&truth(&w, &x, k, &F32), &naive::matmul(&w, &x, k, Order::Sequential));
        assert!(ratio > least, "K {k}: {ratio}");
    }
}

#[test]
fn wrong_answers_are_outside() {
    let (k, mut data) = (48, Data::new(11));
    let (w, x) = (data.reals(64 * k, 1.0), data.reals(k, 1.0));
    let bounded = truth(&w, &x, k, &F32);
    let right = naive::matmul(&w, &x, k, Order::Lanes);
    assert!(worst(&bounded, &right) <= 1.0);
    let mut one_off = right.clone();
    one_off[17] *= 1.0 + (-6f32).exp2();
    assert!(worst(&bounded, &one_off) > 1.0, "one element");
    let dropped = |v: &[f32]| -> Vec<f32> { v.chunks(k).flat_map(|r| r[..k - 1].to_vec()).collect() };
    let short = naive::matmul(&dropped(&w), &dropped(&x), k - 1, Order::Lanes);
    assert!(worst(&bounded, &short) > 1.0, "last term");
    let half = |v: &[f32]| -> Vec<f32> { v.iter().map(|v| f16::from_f32(*v).to_f32()).collect() };
    let brain = |v: &[f32]| -> Vec<f32> { v.iter().map(|v| bf16::from_f32(*v).to_f32()).collect() };
    let halves = naive::matmul(&half(&w), &half(&x), k, Order::Lanes);
    let brains = naive::matmul(&brain(&w), &brain(&x), k, Order::Lanes);
    assert!(worst(&bounded, &halves) > 1.0, "f16 operands");
    assert!(worst(&bounded, &brains) > 1.0, "bf16 operands");

    // Declared, the same answers hold, and the coarser profile does not cover the coarsest.
    let declared = |operand| truth(&w, &x, k, &NumericProfile { operand, ..F32 });
    assert!(worst(&declared(Precision::F16), &halves) <= 1.0);
    assert!(worst(&declared(Precision::Tf32), &halves) <= 1.0);
    assert!(worst(&declared(Precision::Bf16), &brains) <= 1.0);
    assert!(worst(&declared(Precision::F16), &brains) > 1.0);
}

#[test]
fn representable_operands_are_given_nothing() {
    let (k, mut data) = (32, Data::new(3));
    let half = |v: Vec<f32>| -> Vec<f32> { v.iter().map(|v| f16::from_f32(*v).to_f32()).collect() };
    let (w, x) = (half(data.reals(8 * k, 1.0)), half(data.reals(k, 1.0)));
    let f16 = NumericProfile { operand: Precision::F16, ..F32 };
    assert_eq!(truth(&w, &x, k, &f16).bound, truth(&w, &x, k, &F32).bound);
}

#[test]
fn narrow_accumulators_are_given_their_own_roundoff() {
    let (k, mut data) = (24, Data::new(8));
    let (w, x) = (data.reals(32 * k, 1.0), data.reals(k, 1.0));
    let round = |v: f32| f16::from_f32(v).to_f32();
    let dot = |w: &[f32]| w.iter().zip(&x).fold(0.0, |s, (w, x)| round(s + round(round(*w) * round(*x))));
    let got: Vec<f32> = w.chunks(k).map(dot).collect();
    let f16 = NumericProfile { operand: Precision::F16, accumulator: Precision::F16, ..F32 };
    assert!(worst(&truth(&w, &x, k, &f16), &got) <= 1.0);
    assert!(worst(&truth(&w, &x, k, &NumericProfile { operand: Precision::F16, ..F32 }), &got) > 1.0);
}

/// Activations through 8-bit codes, an i32 dot for each block of 32.
fn int8(codes: &[i32], scales: &[f32], x: &[f32]) -> f32 {
    let mut sum = 0.0f32;
    for ((codes, dw), x) in codes.chunks(32).zip(scales).zip(x.chunks(32)) {
        let d = x.iter().fold(0.0f32, |m, v| m.max(v.abs())) / 127.0;
        let inv = if d == 0.0 { 0.0 } else { 1.0 / d };
        let dot: i32 = codes.iter().zip(x).map(|(c, x)| c * (x * inv).round() as i32).sum();
        sum += dot as f32 * dw * d;
    }
    sum
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn int8_activations_hold_where_declared(seed in any::<u64>(), blocks in 1usize..6, octaves in 0u64..12) {
        let (k, mut data) = (32 * blocks, Data::new(seed));
        let codes: Vec<i32> = (0..8 * k).map(|_| (data.bits() % 255) as i32 - 127).collect();
        let scales: Vec<f32> = (0..8 * blocks).map(|_| f16::from_f32(data.real().abs()).to_f32()).collect();
        let w: Vec<f32> = codes.iter().zip(0..).map(|(c, i)| *c as f32 * scales[i / 32]).collect();
        let x = data.spread(k, octaves);
        let got: Vec<f32> = (0..8).map(|o| int8(&codes[o * k..][..k], &scales[o * blocks..][..blocks], &x)).collect();
        let weight = Weight::plain(&w, DType::Q8_0);
        let ask = |q8_activation| {
            matmul(&weight, &x, k, &NumericProfile { q8_activation, ..F32 }, &Allowance::default())
        };
        let declared = ask(Activation::Int8).unwrap();
        prop_assert!(worst(&declared, &got) <= 1.0);
        prop_assert!(worst(&declared, &naive::matmul(&w, &x, k, Order::Lanes)) <= 1.0);
        prop_assert!(worst(&ask(Activation::Float).unwrap(), &got) > 1.0);
    }
}

#[test]
fn parts_of_a_difference_count_by_their_magnitudes() {
    // The value 1 is 1025 - 1024; summed apart over 64 terms, its error follows 2049, not 1.
    let (k, mut data) = (256, Data::new(2));
    let (w, x) = (vec![1.0f32; k], data.reals(k, 1.0));
    let magnitudes = vec![2049.0f32; k];
    let apart = naive::dot(&vec![1025.0; k], &x, Order::Sequential)
        - naive::dot(&vec![1024.0; k], &x, Order::Reversed);
    let ask = |magnitudes| {
        let weight = Weight { values: &w, dtype: DType::Q4K, magnitudes };
        matmul(&weight, &x, k, &F32, &Allowance::default()).unwrap()
    };
    assert!(worst(&ask(Some(&magnitudes)), &[apart]) <= 1.0);
    assert!(ask(Some(&magnitudes)).bound[0] > 1000.0 * ask(None).bound[0]);
}

#[test]
fn unusable_questions_are_named() {
    let ask = |w: &[f32], x: &[f32], profile| {
        matmul(&Weight::plain(w, DType::F32), x, 2, profile, &Allowance::default())
    };
    let message = |r: Result<Bounded, OracleError>| r.unwrap_err().to_string();
    assert!(
        message(ask(&[1.0; 4], &[1.0; 3], &F32)).contains("x has 3 elements, expected one or more rows of 2")
    );
    assert!(message(ask(&[f32::MAX; 2], &[2.0; 2], &F32)).contains("use smaller data"));
    let f16 = NumericProfile { operand: Precision::F16, ..F32 };
    assert!(message(ask(&[1.0; 2], &[70000.0, 0.0], &f16)).contains("x reaches 7e4"));
    let infinite = ask(&[1.0; 2], &[f32::INFINITY, 0.0], &F32).unwrap();
    assert_eq!(infinite.want, [f64::INFINITY]);
}
