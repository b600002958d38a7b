//! Products with every weight dtype, and what the weights read back as.

use half::{bf16, f16};
use modelbench_contract::{Backend, DType, DeviceTensor, ErrorKind, HostTensor, QuantSpec};

use crate::kit::{U, bits, close, gamma, reals, up};
use crate::subject::{ON_HOST, subject};

/// Bytes of a weight and the exact values they stand for, in f64.
pub(crate) fn weight(dtype: DType, out: usize, inner: usize) -> (HostTensor, Vec<f64>) {
    let n = out * inner;
    let plain = reals(7, n);
    let (bytes, values): (Vec<u8>, Vec<f64>) = match dtype {
        DType::F32 => {
            (plain.iter().flat_map(|v| v.to_le_bytes()).collect(), plain.iter().map(|&v| v.into()).collect())
        }
        DType::F16 => {
            let h: Vec<f16> = plain.iter().map(|&v| f16::from_f32(v)).collect();
            (h.iter().flat_map(|v| v.to_le_bytes()).collect(), h.iter().map(|v| v.to_f64()).collect())
        }
        DType::Bf16 => {
            let h: Vec<bf16> = plain.iter().map(|&v| bf16::from_f32(v)).collect();
            (h.iter().flat_map(|v| v.to_le_bytes()).collect(), h.iter().map(|v| v.to_f64()).collect())
        }
        DType::Q8_0 => q8_0(&plain),
        DType::Q4K => q4_k(n),
        DType::Fp8E4m3 | DType::Fp8E5m2 => {
            // Every code but NaN and infinity.
            let finite = |b: &u8| if dtype == DType::Fp8E4m3 { b & 0x7f != 0x7f } else { b & 0x7c != 0x7c };
            let bytes: Vec<u8> = (0..=255u8).filter(finite).cycle().take(n).collect();
            let values = bytes.iter().map(|&b| fp8(dtype, b)).collect();
            (bytes, values)
        }
        DType::I8 | DType::I4 => unreachable!("integers have a test of their own"),
    };
    (HostTensor::from_bytes(&[out, inner], dtype, bytes).unwrap(), values)
}

fn q8_0(plain: &[f32]) -> (Vec<u8>, Vec<f64>) {
    let (mut bytes, mut values) = (Vec::new(), Vec::new());
    for block in plain.chunks(32) {
        let amax = block.iter().fold(0f32, |m, v| m.max(v.abs()));
        let d = f16::from_f32(amax / 127.0);
        bytes.extend(d.to_le_bytes());
        for v in block {
            let code = (v / d.to_f32()).round().clamp(-127.0, 127.0) as i8;
            bytes.push(code as u8);
            values.push(d.to_f64() * f64::from(code));
        }
    }
    (bytes, values)
}

/// Super-blocks with arbitrary scales, minima and codes; the GGUF packing is written out here independently.
fn q4_k(n: usize) -> (Vec<u8>, Vec<f64>) {
    let (mut bytes, mut values) = (Vec::new(), Vec::new());
    for block in 0..n / 256 {
        let (d, dmin) = (f16::from_f32(0.01 + block as f32 * 0.003), f16::from_f32(0.02));
        let scales: Vec<u8> = (0..8).map(|i| ((i * 11 + block * 5 + 1) % 64) as u8).collect();
        let mins: Vec<u8> = (0..8).map(|i| ((i * 23 + block * 3 + 2) % 64) as u8).collect();
        let codes: Vec<u8> = (0..256).map(|i| ((i * 7 + i / 16 + block) % 16) as u8).collect();
        bytes.extend(d.to_le_bytes());
        bytes.extend(dmin.to_le_bytes());
        bytes.extend((0..4).map(|j| (scales[j] & 63) | ((scales[j + 4] >> 4) << 6)));
        bytes.extend((0..4).map(|j| (mins[j] & 63) | ((mins[j + 4] >> 4) << 6)));
        bytes.extend((0..4).map(|j| (scales[j + 4] & 15) | ((mins[j + 4] & 15) << 4)));
        for pair in codes.chunks(64) {
            bytes.extend((0..32).map(|i| pair[i] | (pair[i + 32] << 4)));
        }
        for (i, &code) in codes.iter().enumerate() {
            let (scale, min) = (f64::from(scales[i / 32]), f64::from(mins[i / 32]));
            values.push(d.to_f64() * scale * f64::from(code) - dmin.to_f64() * min);
        }
    }
    (bytes, values)
}

fn fp8(dtype: DType, b: u8) -> f64 {
    let (mantissa_bits, bias) = if dtype == DType::Fp8E4m3 { (3, 7) } else { (2, 15) };
    let sign = if b & 0x80 != 0 { -1.0 } else { 1.0 };
    let exponent = i32::from((b & 0x7f) >> mantissa_bits);
    let fraction = f64::from(b & ((1 << mantissa_bits) - 1)) / f64::from(1 << mantissa_bits);
    let (significand, power) =
        if exponent == 0 { (fraction, 1 - bias) } else { (1.0 + fraction, exponent - bias) };
    sign * significand * f64::from(power).exp2()
}

const DTYPES: [DType; 7] =
    [DType::F32, DType::F16, DType::Bf16, DType::Q8_0, DType::Q4K, DType::Fp8E4m3, DType::Fp8E5m2];

#[test]
fn weights_read_back_as_the_values_of_their_bytes() {
    let mut b = subject();
    for dtype in DTYPES {
        let (host, values) = weight(dtype, 3, 512);
        let tensor = b.upload(&host, dtype).unwrap();
        assert_eq!(tensor.desc(), host.desc());
        for (i, (got, want)) in b.read(&tensor).unwrap().into_iter().zip(&values).enumerate() {
            // Only q4_k rounds: one f32 subtraction of two exact products.
            let bound = if dtype == DType::Q4K { U * want.abs() } else { 0.0 };
            close(dtype.as_str(), i, got, *want, bound);
        }
        assert_eq!(b.host(&tensor).unwrap().is_some(), ON_HOST && dtype == DType::F32, "{dtype}");
    }
}

#[test]
fn products_stay_within_the_bound_for_every_weight_and_row_count() {
    let mut b = subject();
    for dtype in DTYPES {
        for (out, inner, p) in
            [(1, 256, 1), (3, 512, 1), (17, 768, 1), (3, 256, 2), (33, 512, 7), (5, 256, 65)]
        {
            let (host, values) = weight(dtype, out, inner);
            let w = b.upload(&host, dtype).unwrap();
            let x = reals(11, p * inner);
            let xt = up(&mut b, &[p, inner], &x);
            let y = b.batched_matmul(&w, &xt).unwrap();
            assert_eq!(y.desc().shape, [p, out]);
            let mut got = vec![b.read(&y).unwrap()];
            if p == 1 {
                let xt = up(&mut b, &[inner], &x);
                let y = b.matmul(&w, &xt).unwrap();
                assert_eq!((y.desc().shape.as_slice(), y.desc().dtype), ([out].as_slice(), DType::F32));
                got.push(b.read(&y).unwrap());
            }
            for (i, element) in got.iter().flat_map(|y| y.iter().enumerate()) {
                let (row, col) = (i / out, i % out);
                let terms = (0..inner).map(|k| values[col * inner + k] * f64::from(x[row * inner + k]));
                let (sum, magnitude) = terms.fold((0.0, 0.0), |(s, m), t| (s + t, m + t.abs()));
                // One more unit for the rounding of a q4_k value.
                close(dtype.as_str(), i, *element, sum, gamma(inner + 1) * magnitude);
            }
        }
    }
}

#[test]
fn integer_products_are_exact_at_every_tail() {
    let mut b = subject();
    for inner in [1, 2, 3, 7, 8, 9, 63, 64, 65, 127, 128, 129, 257, 1023] {
        for p in [1, 3, 16] {
            let out = 5;
            let w: Vec<f32> = (0..out * inner).map(|i| ((i * 37) % 21) as f32 - 10.0).collect();
            let x: Vec<f32> = (0..p * inner).map(|i| ((i * 53) % 19) as f32 - 9.0).collect();
            let want: Vec<f32> = (0..p * out)
                .map(|i| (0..inner).map(|k| w[(i % out) * inner + k] * x[(i / out) * inner + k]).sum())
                .collect();
            let (w, x) = (up(&mut b, &[out, inner], &w), up(&mut b, &[p, inner], &x));
            let y = b.batched_matmul(&w, &x).unwrap();
            assert_eq!(b.read(&y).unwrap(), want, "inner {inner}, p {p}");
        }
    }
}

fn spec(block: usize, axis: usize, bits: u8, scales: &[f32], zero_points: &[i32]) -> QuantSpec {
    QuantSpec {
        block,
        axis,
        bits,
        symmetric: zero_points.is_empty(),
        scales: scales.to_vec(),
        zero_points: zero_points.to_vec(),
        static_activation: None,
    }
}

#[test]
fn integer_codes_take_scale_and_zero_point_of_their_block() {
    let mut b = subject();
    let mut values = |shape: &[usize], dtype, bytes: &[u8], spec| {
        let host = HostTensor::from_bytes(shape, dtype, bytes).unwrap().with_quant(spec);
        let t = b.upload(&host, dtype).unwrap();
        b.read(&t).unwrap()
    };
    let bytes = [1u8, 2, 0xff, 0x80, 5, 6, 7, 8];
    let along_rows = values(&[2, 4], DType::I8, &bytes, spec(2, 1, 8, &[0.5, 2.0, 1.0, 4.0], &[]));
    assert_eq!(along_rows, [0.5, 1.0, -2.0, -256.0, 5.0, 6.0, 28.0, 32.0]);
    let along_columns =
        values(&[2, 4], DType::I8, &bytes, spec(2, 0, 8, &[1.0, 2.0, 3.0, 4.0], &[1, 0, -1, 0]));
    assert_eq!(along_columns, [0.0, 4.0, 0.0, -512.0, 4.0, 12.0, 24.0, 32.0]);
    let nibbles = values(&[1, 4], DType::I4, &[0x81, 0x7f], spec(4, 1, 4, &[0.5], &[]));
    assert_eq!(nibbles, [0.5, -4.0, -0.5, 3.5]);
}

#[test]
fn integer_codes_without_a_fitting_spec_are_refused() {
    let mut b = subject();
    let host = || HostTensor::from_bytes(&[1, 4], DType::I8, vec![0u8; 4]).unwrap();
    let mut kind = |host: HostTensor| b.upload(&host, host.dtype()).unwrap_err().kind;
    assert_eq!(kind(host()), ErrorKind::InvalidArgument);
    for bad in [
        spec(3, 1, 8, &[1.0], &[]),
        spec(0, 1, 8, &[], &[]),
        spec(4, 2, 8, &[1.0], &[]),
        spec(4, 1, 4, &[1.0], &[]),
        spec(4, 1, 8, &[1.0, 1.0], &[]),
        spec(4, 1, 8, &[1.0], &[1, 2]),
    ] {
        assert_eq!(kind(host().with_quant(bad.clone())), ErrorKind::InvalidArgument, "{bad:?}");
    }
    let fixed = QuantSpec { static_activation: Some(0.1), ..spec(4, 1, 8, &[1.0], &[]) };
    assert_eq!(kind(host().with_quant(fixed)), ErrorKind::Unimplemented);
    let out_of_place = HostTensor::from_f32(&[4], &[0.0; 4]).unwrap().with_quant(spec(4, 0, 8, &[1.0], &[]));
    assert_eq!(kind(out_of_place), ErrorKind::InvalidArgument);
}

#[test]
fn the_same_call_gives_the_same_bits_and_changes_no_input() {
    let mut b = subject();
    for p in [1, 40] {
        let (w, x) = (reals(1, 300 * 257), reals(2, p * 257));
        let (wt, xt) = (up(&mut b, &[300, 257], &w), up(&mut b, &[p, 257], &x));
        let first = b.batched_matmul(&wt, &xt).unwrap();
        let first = bits(&b.read(&first).unwrap());
        for _ in 0..5 {
            let again = b.batched_matmul(&wt, &xt).unwrap();
            assert_eq!(bits(&b.read(&again).unwrap()), first);
        }
        assert_eq!(bits(&b.read(&wt).unwrap()), bits(&w));
        assert_eq!(bits(&b.read(&xt).unwrap()), bits(&x));
    }
}
