//! Identity, residency, in-place ops, threads, and the refusal of bad arguments.

use modelbench_contract::{
    AttentionSpec, Backend, Cap, Class, DType, DeviceTensor, ErrorKind, HostTensor, KvConfig, KvStore, Op,
    QuantSpec, RopeSpec, is_backend_id,
};
use modelbench_reference::{CpuRef, RefTensor, ops};

fn host(shape: &[usize], values: &[f32]) -> HostTensor {
    HostTensor::from_f32(shape, values).expect("a good tensor")
}

fn on(cpu: &mut CpuRef, shape: &[usize], values: &[f32]) -> RefTensor {
    cpu.upload(&host(shape, values), DType::F32).expect("uploaded")
}

/// Reproducible values in -1..1.
fn noise(n: usize, seed: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919 + seed * 104_729) % 20_011) as f32 / 10_005.5 - 1.0).collect()
}

#[test]
fn identity_is_stable_and_honest() {
    let mut cpu = CpuRef::new();
    let id = cpu.identity();
    assert!(is_backend_id(&id.name));
    assert_eq!((id.name.as_str(), id.class, id.tier.as_str()), ("cpu-ref", Class::Reference, "scalar"));
    assert_eq!(id.caps, [Cap::UploadDtype, Cap::Collective].into());
    assert!(!id.device.hardware.is_empty());
    assert_eq!(id, CpuRef::default().identity());
    assert!(cpu.kv_store().is_some() && cpu.collectives().is_some());
    assert!(cpu.graph_compile().is_none() && cpu.device_capacity().is_none());
}

#[test]
fn f32_is_viewed_and_every_narrowing_reads_back_as_its_values() {
    let mut cpu = CpuRef::new();
    let values = noise(64, 1);
    let tensor = on(&mut cpu, &[2, 32], &values);
    assert_eq!(cpu.host(&tensor).expect("a view").as_deref(), Some(values.as_slice()));
    assert_eq!(cpu.read(&tensor).expect("read"), values);
    for dtype in [DType::F16, DType::Bf16, DType::Fp8E4m3, DType::Fp8E5m2, DType::Q8_0] {
        let narrowed = cpu.upload(&host(&[2, 32], &values), dtype).expect("narrowed");
        assert_eq!((narrowed.desc().dtype, narrowed.desc().shape.as_slice()), (dtype, &[2, 32][..]));
        assert!(cpu.host(&narrowed).expect("no view").is_none());
        let read = cpu.read(&narrowed).expect("read");
        assert_ne!(read, values, "{dtype} loses bits");
        assert!(read.iter().zip(&values).all(|(r, v)| (r - v).abs() < 0.13), "{dtype} stays near");
        // What was narrowed once is on the grid. An 8-bit code times its scale need not be, after a new amax.
        if dtype != DType::Q8_0 {
            let again = cpu.upload(&host(&[2, 32], &read), dtype).expect("narrowed");
            assert_eq!(cpu.read(&again).expect("read"), read, "{dtype}");
        }
        cpu.free(narrowed).expect("freed");
    }
}

#[test]
fn q8_0_reads_back_as_code_times_scale() {
    let mut cpu = CpuRef::new();
    let values = noise(96, 4);
    let narrowed = cpu.upload(&host(&[3, 32], &values), DType::Q8_0).expect("narrowed");
    let q8 = ops::quantise_q8_0(&values).expect("quantised");
    assert_eq!(cpu.read(&narrowed).expect("read"), ops::dequantise_q8_0(&q8).expect("values"));
}

#[test]
fn uploads_that_cannot_be_honoured_are_refused() {
    let mut cpu = CpuRef::new();
    let values = host(&[1, 256], &noise(256, 2));
    let spec = QuantSpec {
        block: 2,
        axis: 0,
        bits: 8,
        symmetric: true,
        scales: vec![1.0],
        zero_points: vec![],
        static_activation: None,
    };
    let i8s = HostTensor::from_bytes(&[2], DType::I8, vec![1u8, 2]).expect("good");
    let f16 = HostTensor::from_bytes(&[2], DType::F16, vec![0u8; 4]).expect("good");
    let cases = [
        (values.clone(), DType::Q4K, ErrorKind::Unimplemented),
        (values.clone(), DType::I8, ErrorKind::Unimplemented),
        (values.clone(), DType::I4, ErrorKind::Unimplemented),
        (host(&[2, 33], &[0.0; 66]), DType::Q8_0, ErrorKind::InvalidArgument),
        (f16, DType::Bf16, ErrorKind::InvalidArgument),
        (i8s.clone(), DType::I8, ErrorKind::InvalidArgument),
        (values.with_quant(spec.clone()), DType::F32, ErrorKind::InvalidArgument),
    ];
    for (tensor, dtype, kind) in cases {
        let error = cpu.upload(&tensor, dtype).expect_err("refused");
        assert_eq!((error.kind, error.op), (kind, Some(Op::Upload)), "{dtype}: {error}");
    }
    // A static activation scale can be stored and read, but no product honours it yet.
    let matrix = HostTensor::from_bytes(&[1, 2], DType::I8, vec![1u8, 2]).expect("good");
    let spec = QuantSpec { axis: 1, static_activation: Some(0.5), ..spec };
    let w = cpu.upload(&matrix.with_quant(spec), DType::I8).expect("uploaded");
    let x = on(&mut cpu, &[2], &[1.0, 1.0]);
    assert_eq!(cpu.matmul(&w, &x).expect_err("static").kind, ErrorKind::Unimplemented);
}

#[test]
fn in_place_ops_write_their_target_only() {
    let mut cpu = CpuRef::new();
    let mut dst = on(&mut cpu, &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let shared = dst.clone();
    let bias = on(&mut cpu, &[3], &[10.0, 20.0, 30.0]);
    cpu.add_bias(&mut dst, &bias).expect("added");
    assert_eq!(cpu.read(&dst).expect("read"), [11.0, 22.0, 33.0, 14.0, 25.0, 36.0]);
    assert_eq!(cpu.read(&shared).expect("read"), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "a clone keeps its values");
    cpu.add_in_place(&mut dst, &shared).expect("added");
    assert_eq!(cpu.read(&dst).expect("read"), [12.0, 24.0, 36.0, 18.0, 30.0, 42.0]);
    assert_eq!(cpu.read(&bias).expect("read"), [10.0, 20.0, 30.0]);
}

#[test]
fn threads_do_not_change_bits() {
    let mut cpu = CpuRef::new();
    let (out, n, p) = (70, 512, 3);
    let (values, xs) = (noise(out * n, 5), noise(p * n, 6));
    for dtype in [DType::F32, DType::F16, DType::Q8_0] {
        let w = cpu.upload(&host(&[out, n], &values), dtype).expect("uploaded");
        let x = on(&mut cpu, &[p, n], &xs);
        assert!(out * n * p >= 1 << 16, "this product runs on threads");
        let y = cpu.batched_matmul(&w, &x).expect("multiplied");
        let y = cpu.read(&y).expect("read");
        for row in 0..out {
            // A single row is far below the threshold and runs on this thread.
            let one = cpu.upload(&host(&[1, n], &values[row * n..(row + 1) * n]), dtype).expect("uploaded");
            let single = cpu.batched_matmul(&one, &x).expect("multiplied");
            let single = cpu.read(&single).expect("read");
            let column: Vec<f32> = (0..p).map(|i| y[i * out + row]).collect();
            assert_eq!(column, single, "{dtype} row {row}");
        }
    }
}

#[test]
fn bad_arguments_are_refused_with_both_shapes_named() {
    let mut cpu = CpuRef::new();
    let w = on(&mut cpu, &[3, 4], &[1.0; 12]);
    let (v4, v3) = (on(&mut cpu, &[4], &[1.0; 4]), on(&mut cpu, &[3], &[1.0; 3]));
    let batch = on(&mut cpu, &[2, 4], &[1.0; 8]);
    let deep = on(&mut cpu, &[1, 2, 4], &[1.0; 8]);
    let half = cpu.upload(&host(&[4], &[1.0; 4]), DType::F16).expect("narrowed");
    let rope = RopeSpec { pos: 0, n_heads: 1, head_dim: 4, theta: 1e4 };
    let mut dst = v4.clone();
    let mut half_dst = half.clone();
    let config = KvConfig { layers: 1, kv_heads: 1, head_dim: 4, capacity: 2, theta: 1e4 };
    let mut kv = cpu.new_kv(&config).expect("a store");
    let spec = AttentionSpec { group: 1, scale: 1.0, causal: true };
    let empty = cpu.attention(&v4, &kv, 0, spec).expect_err("an empty store");
    cpu.append(&mut kv, 0, &v4, &v4, &v4, 0).expect("appended");
    let refused = [
        (Op::Matmul, cpu.matmul(&w, &v3).err(), "[3, 4] and x [3]"),
        (Op::Matmul, cpu.matmul(&w, &batch).err(), "[3, 4] and x [2, 4]"),
        (Op::Matmul, cpu.matmul(&v4, &v4).err(), "[4] and x [4]"),
        (Op::Matmul, cpu.matmul(&w, &half).err(), "f16"),
        (Op::BatchedMatmul, cpu.batched_matmul(&w, &v4).err(), "[3, 4] and x [4]"),
        (Op::BatchedMatmul, cpu.batched_matmul(&batch, &v3).err(), "x [3]"),
        (Op::RmsNorm, cpu.rms_norm(&batch, &v3, 1e-5).err(), "[3] and x has shape [2, 4]"),
        (Op::RmsNorm, cpu.rms_norm(&deep, &v4, 1e-5).err(), "[1, 2, 4]"),
        (Op::RmsNorm, cpu.rms_norm(&batch, &v4, -1.0).err(), "eps is -1"),
        (Op::RmsNorm, cpu.rms_norm(&batch, &half, 1e-5).err(), "f16"),
        (Op::Rope, cpu.rope(&v3, rope).err(), "3 elements"),
        (Op::Rope, cpu.rope(&v4, RopeSpec { head_dim: 3, ..rope }).err(), "head_dim is 3"),
        (Op::Swiglu, cpu.swiglu(&v4, &v3).err(), "[4] and up has shape [3]"),
        (Op::Swiglu, cpu.swiglu(&half, &v4).err(), "f16"),
        (Op::AddInPlace, cpu.add_in_place(&mut dst, &v3).err(), "[4] and src has shape [3]"),
        (Op::AddInPlace, cpu.add_in_place(&mut half_dst, &v4).err(), "dst is f16"),
        (Op::AddBias, cpu.add_bias(&mut dst, &v3).err(), "[3] and dst has shape [4]"),
        (Op::AddBias, cpu.add_bias(&mut dst, &batch).err(), "[2, 4] and dst has shape [4]"),
        (Op::Attention, Some(empty), "append positions first"),
        (Op::Attention, cpu.attention(&v3, &kv, 0, spec).err(), "[3]"),
        (Op::Attention, cpu.attention(&v4, &kv, 1, spec).err(), "layer 1"),
        (Op::Attention, cpu.attention(&v4, &kv, 0, AttentionSpec { group: 2, ..spec }).err(), "group 2"),
        (
            Op::Attention,
            cpu.attention(&v4, &kv, 0, AttentionSpec { group: usize::MAX, ..spec }).err(),
            "memory",
        ),
        (Op::Attention, cpu.attention(&batch, &kv, 0, spec).err(), "2 query rows over 1 positions"),
        (Op::Argmax, cpu.argmax(&batch).err(), "[2, 4]"),
        (Op::Argmax, cpu.argmax(&half).err(), "f16"),
    ];
    for (op, error, message) in refused {
        let error = error.unwrap_or_else(|| panic!("{op} should refuse ({message})"));
        assert_eq!((error.kind, error.op), (ErrorKind::InvalidArgument, Some(op)), "{error}");
        assert!(error.message.contains(message), "{error} should contain {message:?}");
    }
    assert_eq!(cpu.read(&dst).expect("read"), [1.0; 4], "a refused op leaves its target alone");
}

#[test]
fn slices_have_the_bits_of_the_ops_and_refuse_what_does_not_fit() {
    let mut cpu = CpuRef::new();
    let (w, x) = (noise(2 * 64, 7), noise(64, 8));
    let (wt, xt) = (on(&mut cpu, &[2, 64], &w), on(&mut cpu, &[64], &x));
    let y = cpu.matmul(&wt, &xt).expect("multiplied");
    let slices = [ops::dot_f32(&w[..64], &x), ops::dot_f32(&w[64..], &x)].map(|v| v.expect("a dot"));
    assert_eq!(cpu.read(&y).expect("read"), slices);
    let q8 = cpu.upload(&host(&[2, 64], &w), DType::Q8_0).expect("narrowed");
    let y = cpu.matmul(&q8, &xt).expect("multiplied");
    let (qw, qx) = (ops::quantise_q8_0(&w[..64]).expect("codes"), ops::quantise_q8_0(&x).expect("codes"));
    assert_eq!(cpu.read(&y).expect("read")[0], ops::q8_dot(&qw, &qx).expect("a dot"));
    let spec = RopeSpec { pos: 9, n_heads: 4, head_dim: 16, theta: 1e4 };
    let turned = cpu.rope(&xt, spec).expect("rotated");
    assert_eq!(cpu.read(&turned).expect("read"), ops::rope(&x, spec).expect("rotated"));
    let refused = [
        ops::dot_f32(&w, &x).err(),
        ops::quantise_q8_0(&x[..33]).err(),
        ops::q8_0_from_gguf(&[0; 33]).err(),
        ops::q8_cell(&qw, &ops::quantise_q8_0(&x[..32]).expect("codes")).err(),
        ops::dequantise_q4_k(&[0; 143]).err(),
        ops::q4_k_dot(&[0; 144], &x).err(),
        ops::rms_norm(&w, &x, 1e-5).err(),
        ops::rope(&x[..40], spec).err(),
        ops::swiglu(&w, &x).err(),
        ops::argmax(&[]).err(),
    ];
    for (i, error) in refused.into_iter().enumerate() {
        assert_eq!(error.unwrap_or_else(|| panic!("case {i}")).kind, ErrorKind::InvalidArgument, "case {i}");
    }
}
