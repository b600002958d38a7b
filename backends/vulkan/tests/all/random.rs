//! Two hundred random shapes for every op, each element against its own bound, with two seeds.

use modelbench_contract::{AttentionSpec, Backend, DType, DeviceTensor, KvConfig, KvStore, RopeSpec};
use modelbench_vulkan::Vulkan;

use crate::kit::{U, close, gamma, reals, up};
use crate::subject::subject;
use crate::weights::weight;

const SHAPES: u64 = 200;
const SEEDS: [u64; 2] = [0x5eed, 0xcafe_f00d];

/// A number from 1 to `most`, small ones as likely as large ones.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
    fn to(&mut self, most: usize) -> usize {
        let octave = self.next() % u64::from(most.ilog2() + 1);
        (((1 << octave) + self.next() % (1 << octave)) as usize).min(most)
    }
}

/// Runs `one` for every shape of every seed; it gets dice and a seed for its data.
fn shapes(mut one: impl FnMut(&mut Vulkan, &mut Dice, u64)) {
    let mut b = subject();
    for seed in SEEDS {
        let mut dice = Dice(seed);
        for shape in 0..SHAPES {
            one(&mut b, &mut dice, seed ^ shape << 8);
        }
    }
}

#[test]
fn products_of_every_format() {
    shapes(|b, dice, seed| {
        let dtypes = [DType::F32, DType::F16, DType::Bf16, DType::Q8_0, DType::Q4K, DType::Fp8E4m3];
        let dtype = dtypes[dice.next() as usize % dtypes.len()];
        let unit = dtype.block_elements();
        let (out, inner, p) = (dice.to(300), dice.to(700).next_multiple_of(unit), dice.to(40));
        let (host, values) = weight(dtype, out, inner);
        let w = b.upload(&host, dtype).unwrap();
        let x = reals(seed, p * inner);
        let xt = up(b, &[p, inner], &x);
        let y = b.batched_matmul(&w, &xt).unwrap();
        assert_eq!(y.desc().shape, [p, out]);
        for (i, got) in b.read(&y).unwrap().into_iter().enumerate() {
            let (row, col) = (i / out, i % out);
            let terms = (0..inner).map(|k| values[col * inner + k] * f64::from(x[row * inner + k]));
            let (sum, size) = terms.fold((0.0, 0.0), |(s, m), t| (s + t, m + t.abs()));
            // One more unit for the scale of q8_0 and the difference of q4_k.
            let bound = gamma(inner + 1) * size;
            close(&format!("{dtype} {p}x{out}x{inner}"), i, got, sum, bound);
        }
    });
}

#[test]
fn norms() {
    shapes(|b, dice, seed| {
        let (p, n) = (dice.to(40), dice.to(3000));
        let eps = [0.0, 1e-6, 1e-5, 0.1][dice.next() as usize % 4];
        let (x, w) = (reals(seed, p * n), reals(seed + 1, n));
        let (xt, wt) = (up(b, &[p, n], &x), up(b, &[n], &w));
        let y = b.rms_norm(&xt, &wt, eps).unwrap();
        for (i, got) in b.read(&y).unwrap().into_iter().enumerate() {
            let row = &x[i / n * n..][..n];
            let mean = row.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / n as f64;
            let want = f64::from(x[i]) / (mean + f64::from(eps)).sqrt() * f64::from(w[i % n]);
            // The root halves the mean's relative error; inversesqrt is within 2 ulp, the products round once each.
            close(&format!("norm {p}x{n}"), i, got, want, (gamma(n + 3) / 2.0 + gamma(6)) * want.abs());
        }
    });
}

#[test]
fn rotations() {
    shapes(|b, dice, seed| {
        let (p, n_heads, head_dim) = (dice.to(20), dice.to(12), 2 * dice.to(64));
        let (pos, theta) = (dice.to(200_000) - 1, [1e4f32, 5e5, 1e6][dice.next() as usize % 3]);
        let n = n_heads * head_dim;
        let x = reals(seed, p * n);
        let xt = up(b, &[p, n], &x);
        let y = b.rope(&xt, RopeSpec { pos, n_heads, head_dim, theta }).unwrap();
        for (i, got) in b.read(&y).unwrap().into_iter().enumerate() {
            let (row, at, half) = (i / n, i % n % head_dim, head_dim / 2);
            let freq = f64::from(theta).powf(-2.0 * (at % half) as f64 / head_dim as f64);
            let (sin, cos) = ((pos + row) as f64 * freq).sin_cos();
            let pair = (f64::from(x[i - at + at % half]), f64::from(x[i - at + at % half + half]));
            let (a, c) = if at < half { (pair.0 * cos, -pair.1 * sin) } else { (pair.1 * cos, pair.0 * sin) };
            close(&format!("rope {p}x{n_heads}x{head_dim}"), i, got, a + c, gamma(3) * (a.abs() + c.abs()));
        }
    });
}

#[test]
fn elementwise() {
    shapes(|b, dice, seed| {
        let (p, n) = (dice.to(60), dice.to(3000));
        let a: Vec<f32> = reals(seed, p * n).iter().map(|v| v * 20.0).collect();
        let (c, bias) = (reals(seed + 1, p * n), reals(seed + 2, n));
        let (mut at, ct, biast) = (up(b, &[p, n], &a), up(b, &[p, n], &c), up(b, &[n], &bias));
        let y = b.swiglu(&at, &ct).unwrap();
        b.add_in_place(&mut at, &ct).unwrap();
        b.add_bias(&mut at, &biast).unwrap();
        for (i, got) in b.read(&y).unwrap().into_iter().enumerate() {
            let z = f64::from(a[i]);
            let want = z / (1.0 + (-z).exp()) * f64::from(c[i]);
            // Four roundings, and 2 ulp for the exponential.
            close(&format!("swiglu {p}x{n}"), i, got, want, 8.0 * U * want.abs());
        }
        let want: Vec<f32> = (0..p * n).map(|i| (a[i] + c[i]) + bias[i % n]).collect();
        assert!(b.read(&at).unwrap() == want, "sums {p}x{n}");
    });
}

#[test]
fn maxima() {
    shapes(|b, dice, seed| {
        let n = dice.to(100_000);
        // Few values, so that ties are common.
        let logits: Vec<f32> = reals(seed, n).iter().map(|v| (v * 50.0).round()).collect();
        let t = up(b, &[n], &logits);
        let want = (0..n).fold(0, |best, i| if logits[i] > logits[best] { i } else { best });
        assert_eq!(b.argmax(&t).unwrap(), want, "n {n}");
    });
}

#[test]
fn attention() {
    shapes(|b, dice, seed| {
        let (kv_heads, group, dim, held) = (dice.to(4), dice.to(6), 2 * dice.to(64), dice.to(150));
        let rows = dice.to(16).min(held);
        let (row, n) = (kv_heads * dim, kv_heads * group * dim);
        let (q, k, v) = (reals(seed, rows * n), reals(seed + 1, held * row), reals(seed + 2, held * row));
        let config = KvConfig { layers: 1, kv_heads, head_dim: dim, capacity: held, theta: 1e4 };
        let mut kv = b.new_kv(&config).unwrap();
        let (kt, vt, qt) = (up(b, &[held, row], &k), up(b, &[held, row], &v), up(b, &[rows, n], &q));
        b.append(&mut kv, 0, &kt, &kt, &vt, 0).unwrap();
        let spec = AttentionSpec::causal(group, dim);
        let y = b.attention(&qt, &kv, 0, spec).unwrap();
        let got = b.read(&y).unwrap();
        for head in 0..rows * kv_heads * group {
            let (r, h) = (head / (kv_heads * group), head % (kv_heads * group));
            let (seen, at) = (held - rows + 1 + r, h / group * dim);
            let dot = |t: usize, size: bool| -> f64 {
                let term = |i: usize| f64::from(q[head * dim + i]) * f64::from(k[t * row + at + i]);
                let sum: f64 = (0..dim).map(|i| if size { term(i).abs() } else { term(i) }).sum();
                sum * f64::from(spec.scale)
            };
            let scores: Vec<f64> = (0..seen).map(|t| dot(t, false)).collect();
            let slack = (0..seen).map(|t| gamma(dim + 1) * dot(t, true)).fold(0.0, f64::max);
            let top = scores.iter().copied().fold(f64::MIN, f64::max);
            let widest = scores.iter().map(|s| top - s).fold(0.0, f64::max);
            // A weight is the product of its own exponential and of one for every time that the maximum rises after it:
            // at most once a tile of 16.
            let rises = seen.div_ceil(16) + 1;
            let relative = 2.0 * slack + gamma(2) * widest + gamma(5 * rises);
            let weights: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
            let total: f64 = weights.iter().sum();
            for d in 0..dim {
                let terms = (0..seen).map(|t| weights[t] / total * f64::from(v[t * row + at + d]));
                let (sum, size) = terms.fold((0.0, 0.0), |(s, m), t| (s + t, m + t.abs()));
                let bound = (2.0 * relative + gamma(2 * seen + 2 * rises + 4)) * size;
                let what = format!("attention {rows}x{kv_heads}x{group}x{dim} over {held}");
                close(&what, head * dim + d, got[head * dim + d], sum, bound);
            }
        }
    });
}
