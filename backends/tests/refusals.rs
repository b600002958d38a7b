//! Bad shapes and dtypes are refused by every op, by name, and change nothing.

use modelbench_contract::{
    AttentionSpec, Backend, BackendError, DType, ErrorKind, HostTensor, KvConfig, KvStore, Op, RopeSpec,
};

use crate::kit::up;
use crate::subject::{Tensor, subject};

#[track_caller]
fn refused<T>(op: Op, result: Result<T, BackendError>, words: &[&str]) {
    let Err(error) = result else { panic!("{op} accepted a bad call") };
    assert_eq!((error.kind, error.op), (ErrorKind::InvalidArgument, Some(op)), "{error}");
    for word in words {
        assert!(error.message.contains(word), "{error}: expected it to name {word}");
    }
}

#[test]
fn every_op_refuses_bad_shapes_and_dtypes() {
    let mut b = subject();
    let zeros = |b: &mut _, shape: &[usize]| up(b, shape, &vec![0.0; shape.iter().product()]);
    let w = zeros(&mut b, &[2, 4]);
    let (v4, v3, m4, m3, cube) = (
        zeros(&mut b, &[4]),
        zeros(&mut b, &[3]),
        zeros(&mut b, &[5, 4]),
        zeros(&mut b, &[5, 3]),
        zeros(&mut b, &[1, 5, 4]),
    );
    let half = HostTensor::from_bytes(&[4], DType::F16, [0u8; 8]).unwrap();
    let half = b.upload(&half, DType::F16).unwrap();

    refused(Op::Matmul, b.matmul(&w, &v3), &["[2, 4]", "[3]"]);
    refused(Op::Matmul, b.matmul(&w, &m4), &["[5, 4]", "[4]"]);
    refused(Op::Matmul, b.matmul(&v4, &v4), &["[4]", "[out, in]"]);
    refused(Op::Matmul, b.matmul(&cube, &v4), &["[1, 5, 4]"]);
    refused(Op::Matmul, b.matmul(&w, &half), &["f16"]);
    refused(Op::BatchedMatmul, b.batched_matmul(&w, &m3), &["[2, 4]", "[5, 3]"]);
    refused(Op::BatchedMatmul, b.batched_matmul(&w, &v4), &["[4]", "[P, 4]"]);
    refused(Op::BatchedMatmul, b.batched_matmul(&w, &cube), &["[1, 5, 4]"]);

    refused(Op::RmsNorm, b.rms_norm(&m4, &v3, 1e-5), &["[5, 4]", "[3]"]);
    refused(Op::RmsNorm, b.rms_norm(&cube, &v4, 1e-5), &["[1, 5, 4]"]);
    refused(Op::RmsNorm, b.rms_norm(&v4, &half, 1e-5), &["weight", "f16"]);
    refused(Op::RmsNorm, b.rms_norm(&half, &v4, 1e-5), &["x", "f16"]);
    refused(Op::RmsNorm, b.rms_norm(&v4, &v4, -1.0), &["eps", "-1"]);
    refused(Op::RmsNorm, b.rms_norm(&v4, &v4, f32::NAN), &["eps", "NaN"]);

    let spec = RopeSpec { pos: 0, n_heads: 2, head_dim: 2, theta: 1e4 };
    refused(Op::Rope, b.rope(&v3, spec), &["[3]"]);
    refused(Op::Rope, b.rope(&cube, spec), &["[1, 5, 4]"]);
    refused(Op::Rope, b.rope(&half, spec), &["f16"]);
    refused(Op::Rope, b.rope(&v3, RopeSpec { n_heads: 1, head_dim: 3, ..spec }), &["even"]);
    refused(Op::Rope, b.rope(&v4, RopeSpec { n_heads: 0, ..spec }), &["0 heads"]);
    refused(Op::Rope, b.rope(&v4, RopeSpec { n_heads: usize::MAX, ..spec }), &["heads"]);
    refused(Op::Rope, b.rope(&v4, RopeSpec { theta: -1.0, ..spec }), &["theta", "-1"]);
    refused(Op::Rope, b.rope(&m4, RopeSpec { pos: usize::MAX, ..spec }), &["pos"]);

    refused(Op::Swiglu, b.swiglu(&v4, &v3), &["[4]", "[3]"]);
    refused(Op::Swiglu, b.swiglu(&v4, &half), &["up", "f16"]);
    refused(Op::Argmax, b.argmax(&m4), &["[5, 4]"]);
    refused(Op::Argmax, b.argmax(&half), &["f16"]);
}

#[test]
fn sums_in_place_refuse_without_touching_dst() {
    let mut b = subject();
    let mut dst = up(&mut b, &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let (other, short) = (up(&mut b, &[3, 2], &[1.0; 6]), up(&mut b, &[2], &[1.0; 2]));
    refused(Op::AddInPlace, b.add_in_place(&mut dst, &other), &["[2, 3]", "[3, 2]"]);
    refused(Op::AddBias, b.add_bias(&mut dst, &short), &["[2, 3]", "[2]"]);
    refused(Op::AddBias, b.add_bias(&mut dst, &other), &["[3, 2]"]);
    assert_eq!(b.read(&dst).unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let half = HostTensor::from_bytes(&[2], DType::F16, [0u8; 4]).unwrap();
    let mut half = b.upload(&half, DType::F16).unwrap();
    refused(Op::AddInPlace, b.add_in_place(&mut half, &short), &["dst", "f16"]);
    refused(Op::AddBias, b.add_bias(&mut half, &short), &["dst", "f16"]);
}

#[test]
fn attention_refuses_what_does_not_fit_the_store() {
    let mut b = subject();
    let config = KvConfig { layers: 1, kv_heads: 2, head_dim: 2, capacity: 8, theta: 1e4 };
    let mut kv = b.new_kv(&config).unwrap();
    let spec = AttentionSpec { group: 2, scale: 1.0, causal: true };
    let q = |b: &mut _, shape: &[usize]| -> Tensor { up(b, shape, &vec![0.0; shape.iter().product()]) };
    let (q8, q4) = (q(&mut b, &[8]), q(&mut b, &[4]));
    refused(Op::Attention, b.attention(&q8, &kv, 0, spec), &["0 positions"]);
    let row = q(&mut b, &[4]);
    b.append(&mut kv, 0, &row, &row, &row, 0).unwrap();
    assert!(b.attention(&q8, &kv, 0, spec).is_ok());
    refused(Op::Attention, b.attention(&q4, &kv, 0, spec), &["[4]"]);
    refused(Op::Attention, b.attention(&q8, &kv, 1, spec), &["layer", "1"]);
    refused(Op::Attention, b.attention(&q8, &kv, 0, AttentionSpec { group: 0, ..spec }), &["group"]);
    refused(Op::Attention, b.attention(&q8, &kv, 0, AttentionSpec { group: usize::MAX, ..spec }), &["heads"]);
    refused(
        Op::Attention,
        b.attention(&q8, &kv, 0, AttentionSpec { scale: f32::INFINITY, ..spec }),
        &["scale"],
    );
    let two = q(&mut b, &[2, 8]);
    refused(Op::Attention, b.attention(&two, &kv, 0, spec), &["2 query rows", "1 positions"]);
    assert!(b.attention(&two, &kv, 0, AttentionSpec { causal: false, ..spec }).is_ok());
}

#[test]
fn a_result_too_large_for_memory_is_refused_and_the_backend_lives_on() {
    let mut b = subject();
    let n = 1 << 23;
    let (w, x) = (up(&mut b, &[n, 1], &vec![1.0; n]), up(&mut b, &[n, 1], &vec![1.0; n]));
    let error = b.batched_matmul(&w, &x).unwrap_err();
    assert_eq!((error.kind, error.op), (ErrorKind::ResourceExhausted, Some(Op::BatchedMatmul)), "{error}");
    let one = up(&mut b, &[1], &[2.0]);
    let y = b.matmul(&w, &one).unwrap();
    assert_eq!(b.argmax(&y).unwrap(), 0);
}
