//! Exact rules: argmax, exactness, roundoff, noise, the blocked product.

use modelbench_contract::Precision;

use super::data::Data;
use super::naive::{self, ORDERS};
use crate::oracle::arith::Arith;
use crate::oracle::dense::Packed;
use crate::oracle::noise::Noise;
use crate::oracle::{argmax, is_exact_matmul};

#[test]
fn argmax_takes_the_first_maximum() {
    for (x, want) in [
        (&[1.0, 3.0, 3.0][..], 1),
        (&[-0.0, 0.0], 0),
        (&[f32::NAN, 5.0], 0),
        (&[1.0, f32::NAN, 2.0], 2),
        (&[f32::NEG_INFINITY, f32::NEG_INFINITY], 0),
        (&[0.0, f32::INFINITY, f32::INFINITY], 1),
    ] {
        assert_eq!(argmax(x).unwrap(), want, "{x:?}");
    }
    assert!(argmax(&[]).is_err());
}

#[test]
fn exact_products_have_the_same_bits_in_every_order() {
    let (k, mut data) = (64, Data::new(1));
    let mut integers = |max: u64, unit: f32| -> Vec<f32> {
        (0..k).map(|_| ((data.bits() % (2 * max + 1)) as i64 - max as i64) as f32 * unit).collect()
    };
    let (w, x) = (integers(127, (-3f32).exp2()), integers(127, 9f32.exp2()));
    assert!(is_exact_matmul(&w, &x, k, 24));
    assert!(!is_exact_matmul(&w, &x, k, 11));
    let bits = naive::dot(&w, &x, ORDERS[0]).to_bits();
    assert!(ORDERS.iter().all(|o| naive::dot(&w, &x, *o).to_bits() == bits));
    // The limit itself: 2 terms of 2^11 by 2^12 are 2^24, and one more unit is too much.
    assert!(is_exact_matmul(&[2048.0, 1.0], &[4096.0, 1.0], 2, 24));
    assert!(!is_exact_matmul(&[2049.0, 1.0], &[4096.0, 1.0], 2, 24));
}

#[test]
fn what_rounds_is_not_exact() {
    let ones = [1.0f32; 2];
    assert!(!is_exact_matmul(&[1.0 / 3.0, 1.0], &ones, 2, 24));
    assert!(!is_exact_matmul(&[f32::NAN, 1.0], &ones, 2, 24));
    assert!(!is_exact_matmul(&[f32::from_bits(1), 0.0], &ones, 2, 24), "denormal operand");
    assert!(!is_exact_matmul(&[(-100f32).exp2(); 2], &[(-100f32).exp2(); 2], 2, 24), "underflow");
    assert!(!is_exact_matmul(&[100f32.exp2(); 2], &[100f32.exp2(); 2], 2, 24), "overflow");
    assert!(!is_exact_matmul(&ones, &ones, 0, 24));
    assert!(!is_exact_matmul(&[1.0; 3], &ones, 2, 24));
    assert!(is_exact_matmul(&[0.0; 2], &ones, 2, 24));
}

#[test]
fn growth_is_at_most_the_textbook_gamma() {
    let f32 = Arith::new(Precision::F32, false);
    for n in [1.0, 2.0, 64.0, 4096.0, 1048576.0] {
        let nu = n * f32.u;
        let growth = f32.growth(n);
        assert!(nu <= growth * (1.0 + nu) && growth <= nu / (1.0 - nu) * (1.0 + nu), "n {n}");
        assert!(growth >= nu * (1.0 - f32.own * 4.0), "n {n}");
    }
    assert!(Arith::new(Precision::Bf16, false).growth(4096.0).is_finite());
}

#[test]
fn precisions_end_where_their_formats_do() {
    let f32 = Arith::new(Precision::F32, false);
    assert_eq!(f32.max, f64::from(f32::MAX));
    assert_eq!(f32.eta, f64::from(f32::from_bits(1)) / 2.0);
    assert_eq!(Arith::new(Precision::F32, true).eta, f64::from(f32::MIN_POSITIVE));
    let f16 = Arith::new(Precision::F16, false);
    assert_eq!(f16.max, half::f16::MAX.to_f64());
    assert_eq!(f16.eta, half::f16::MIN_POSITIVE_SUBNORMAL.to_f64() / 2.0);
    let bf16 = Arith::new(Precision::Bf16, false);
    assert_eq!(bf16.max, half::bf16::MAX.to_f64());
    let mut data = Data::new(3);
    for _ in 0..2000 {
        let scale = ((data.bits() % 40) as f32 - 30.0).exp2();
        let x = data.real() * scale;
        let error = (half::f16::from_f32(x).to_f64() - f64::from(x)).abs();
        assert!(error <= f16.load(x).e, "{x}");
        assert_eq!(f16.load(half::f16::from_f32(x).to_f32()).e, 0.0, "{x}");
        assert!((half::bf16::from_f32(x).to_f64() - f64::from(x)).abs() <= bf16.load(x).e, "{x}");
        assert_eq!(f32.load(x).e, 0.0);
    }
}

#[test]
fn noise_depends_on_its_place_and_fills_the_interval() {
    let noise = Noise::new(1, 2, 3);
    let values: Vec<f64> = (0..4000).map(|i| noise.at(i)).collect();
    assert!(values.iter().all(|v| v.abs() < 1.0));
    let mean = values.iter().sum::<f64>() / 4000.0;
    let square = values.iter().map(|v| v * v).sum::<f64>() / 4000.0;
    assert!(mean.abs() < 0.05 && (square - 1.0 / 3.0).abs() < 0.02, "{mean} {square}");
    for other in [Noise::new(2, 2, 3), Noise::new(1, 3, 3), Noise::new(1, 2, 4)] {
        assert_ne!(other.at(0), noise.at(0));
    }
}

#[test]
fn blocked_products_equal_plain_sums_in_order() {
    let mut data = Data::new(4);
    for (rows, k, out) in [(1, 1, 1), (7, 5, 3), (8, 16, 2), (17, 33, 65), (9, 3, 64)] {
        let x: Vec<f64> = data.reals(rows * k, 1.0).iter().map(|&v| f64::from(v) / 3.0).collect();
        let w = data.reals(out * k, 1.0);
        for magnitudes in [false, true] {
            let got = Packed::new(&x, k, magnitudes).product(&w, magnitudes);
            let of = |v: f64| if magnitudes { v.abs() } else { v };
            let plain = x.chunks(k).flat_map(|x| {
                w.chunks(k)
                    .map(move |w| x.iter().zip(w).fold(0.0, |s, (x, w)| s + of(f64::from(*w)) * of(*x)))
            });
            assert_eq!(got, plain.collect::<Vec<f64>>(), "{rows} {k} {out}");
        }
    }
}
