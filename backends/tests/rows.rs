//! Round trips, row-wise ops and argmax.

use modelbench_contract::{Backend, DeviceTensor, RopeSpec};

use crate::kit::{U, bits, close, gamma, reals, up};
use crate::subject::{ON_HOST, subject};

#[test]
fn plain_values_survive_the_round_trip_bit_for_bit() {
    let mut b = subject();
    let values =
        [0.0, -0.0, 1.0, f32::MIN_POSITIVE / 8.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX];
    let t = up(&mut b, &[2, 2, 2], &values);
    assert_eq!(bits(&b.read(&t).unwrap()), bits(&values));
    let host = b.host(&t).unwrap();
    assert_eq!(host.as_deref().map(bits), ON_HOST.then(|| bits(&values)));
    b.sync().unwrap();
    b.free(t).unwrap();
}

#[test]
fn rms_norm_stays_within_the_bound() {
    let mut b = subject();
    for (p, n, eps) in [(1, 1, 0.0), (1, 7, 1e-5), (3, 64, 1e-5), (2, 257, 1e-6), (5, 1024, 0.5)] {
        let (x, w) = (reals(3, p * n), reals(4, n));
        let (xt, wt) = (up(&mut b, &[p, n], &x), up(&mut b, &[n], &w));
        let y = b.rms_norm(&xt, &wt, eps).unwrap();
        assert_eq!(y.desc().shape, [p, n]);
        for (i, got) in b.read(&y).unwrap().into_iter().enumerate() {
            let row = &x[i / n * n..][..n];
            let mean = row.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / n as f64;
            let want = f64::from(x[i]) / (mean + f64::from(eps)).sqrt() * f64::from(w[i % n]);
            // The root halves the relative error of the mean; root, quotient and product round once each.
            close("rms_norm", i, got, want, (gamma(n + 3) / 2.0 + gamma(4)) * want.abs());
        }
    }
}

#[test]
fn rope_is_the_identity_at_zero_and_keeps_its_angle_far_out() {
    let mut b = subject();
    let (p, n_heads, head_dim, theta) = (3, 2, 8, 10_000.0f32);
    let n = n_heads * head_dim;
    let x = reals(5, p * n);
    let first = up(&mut b, &[n], &x[..n]);
    let spec = |pos| RopeSpec { pos, n_heads, head_dim, theta };
    let same = b.rope(&first, spec(0)).unwrap();
    assert_eq!((same.desc().shape.as_slice(), b.read(&same).unwrap()), ([n].as_slice(), x[..n].to_vec()));
    let xt = up(&mut b, &[p, n], &x);
    for pos in [0, 1, 17, 4095, 100_000] {
        let y = b.rope(&xt, spec(pos)).unwrap();
        for (i, got) in b.read(&y).unwrap().into_iter().enumerate() {
            let (row, at) = (i / n, i % n % head_dim);
            let j = at % (head_dim / 2);
            let freq = f64::from(theta).powf(-2.0 * j as f64 / head_dim as f64);
            let (sin, cos) = ((pos + row) as f64 * freq).sin_cos();
            let head = i - at;
            let (a, c) = (f64::from(x[head + j]), f64::from(x[head + j + head_dim / 2]));
            let (want, size) = if at < head_dim / 2 {
                (a * cos - c * sin, (a * cos).abs() + (c * sin).abs())
            } else {
                (c * cos + a * sin, (c * cos).abs() + (a * sin).abs())
            };
            close("rope", i, got, want, gamma(3) * size);
        }
    }
    assert_eq!(bits(&b.read(&xt).unwrap()), bits(&x), "the input stays");
}

#[test]
fn swiglu_stays_within_the_bound_and_saturates() {
    let mut b = subject();
    let gate: Vec<f32> = reals(6, 301).iter().map(|v| v * 30.0).collect();
    let up_values = reals(7, 301);
    let (g, u) = (up(&mut b, &[7, 43], &gate), up(&mut b, &[7, 43], &up_values));
    let y = b.swiglu(&g, &u).unwrap();
    for (i, got) in b.read(&y).unwrap().into_iter().enumerate() {
        let z = f64::from(gate[i]);
        let want = z / (1.0 + (-z).exp()) * f64::from(up_values[i]);
        // Four roundings, and 2 ulp for the exponential.
        close("swiglu", i, got, want, 8.0 * U * want.abs());
    }
    let (g, u) = (up(&mut b, &[3], &[200.0, -200.0, 0.0]), up(&mut b, &[3], &[2.0, 2.0, 3.0]));
    let y = b.swiglu(&g, &u).unwrap();
    assert_eq!(b.read(&y).unwrap(), [400.0, 0.0, 0.0]);
}

#[test]
fn sums_in_place_are_one_rounding_and_leave_the_source() {
    let mut b = subject();
    let (x, y) = (reals(8, 30), reals(9, 30));
    let (mut dst, src) = (up(&mut b, &[3, 10], &x), up(&mut b, &[3, 10], &y));
    b.add_in_place(&mut dst, &src).unwrap();
    let want: Vec<f32> = x.iter().zip(&y).map(|(a, c)| a + c).collect();
    assert_eq!(bits(&b.read(&dst).unwrap()), bits(&want));
    assert_eq!(bits(&b.read(&src).unwrap()), bits(&y));
    let bias = up(&mut b, &[10], &y[..10]);
    b.add_bias(&mut dst, &bias).unwrap();
    let want: Vec<f32> = want.iter().enumerate().map(|(i, a)| a + y[i % 10]).collect();
    assert_eq!(
        (dst.desc().shape.as_slice(), bits(&b.read(&dst).unwrap())),
        ([3, 10].as_slice(), bits(&want))
    );
    assert_eq!(b.read(&bias).unwrap(), y[..10]);
}

#[test]
fn argmax_is_the_first_maximum_and_follows_the_nan_rule() {
    let mut b = subject();
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    for (values, want) in [
        (&[5.0][..], 0),
        (&[1.0, 3.0, 3.0, 2.0], 1),
        (&[-1.0, -0.0, 0.0], 1),
        (&[-0.0, 0.0], 0),
        (&[1.0, nan, 2.0, nan, 2.0], 2),
        (&[nan, 5.0, inf], 0),
        (&[-inf, nan, -inf], 0),
        (&[-inf, nan, -1.0e38], 2),
        (&[0.0, inf, inf], 1),
    ] {
        let t = up(&mut b, &[values.len()], values);
        assert_eq!(b.argmax(&t).unwrap(), want, "{values:?}");
    }
    let mut wide = vec![0.25f32; 50_000];
    wide[31_337] = 0.5;
    wide[40_000] = 0.5;
    let t = up(&mut b, &[50_000], &wide);
    assert_eq!(b.argmax(&t).unwrap(), 31_337);
}
