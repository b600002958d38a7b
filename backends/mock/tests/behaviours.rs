//! Each behaviour does what its line says; those that would end the process are checked by the worker's tests.

use modelbench_contract::{
    AttentionSpec, Backend, Cap, Class, DType, DeviceTensor, ErrorKind, HostTensor, KvConfig, KvStore, Op,
    RopeSpec,
};
use modelbench_mock::{Mock, MockTensor};
use modelbench_reference::CpuRef;

const ROPE: RopeSpec = RopeSpec { pos: 3, n_heads: 2, head_dim: 4, theta: 10_000.0 };

/// Awkward values: no two equal, none a power of two, different magnitudes.
fn values(n: usize, salt: u32) -> Vec<f32> {
    (0..n as u32)
        .map(|i| {
            let bits = (i * 2 + salt).wrapping_mul(0x9e37_79b9).rotate_left(11).wrapping_mul(0x85eb_ca6b);
            (f64::from(bits) / f64::from(u32::MAX) * 4.0 - 2.0) as f32
        })
        .collect()
}

fn host(shape: &[usize], salt: u32) -> HostTensor {
    HostTensor::from_f32(shape, &values(shape.iter().product(), salt)).expect("shape")
}

fn mock(name: &str) -> Mock {
    Mock::by_name(name).expect(name)
}

/// Every op once, as (op, values), on the same inputs for whatever backend.
fn everything<B>(backend: &mut B) -> Vec<(&'static str, Vec<f32>)>
where
    B: Backend + KvStore<Tensor = <B as Backend>::Tensor, Kv = <B as Backend>::Kv>,
{
    let mut up = |shape: &[usize], salt| backend.upload(&host(shape, salt), DType::F32).expect("upload");
    let (w, x, rows) = (up(&[5, 100], 1), up(&[100], 2), up(&[3, 100], 3));
    let (weight, r, bias) = (up(&[100], 4), up(&[3, 8], 5), up(&[8], 6));
    let (q, k_raw, k, v) = (up(&[3, 8], 7), up(&[3, 4], 8), up(&[3, 4], 9), up(&[3, 4], 10));
    let (mut dst, mut dst2) = (up(&[3, 8], 11), up(&[3, 8], 12));
    let spec = AttentionSpec { group: 2, scale: 0.5, causal: true };
    let config = KvConfig { layers: 1, kv_heads: 1, head_dim: 4, capacity: 8, theta: 10_000.0 };
    let mut kv = backend.new_kv(&config).expect("kv");
    backend.append(&mut kv, 0, &k_raw, &k, &v, 0).expect("append");
    let tensors = [
        ("matmul", backend.matmul(&w, &x).expect("matmul")),
        ("batched_matmul", backend.batched_matmul(&w, &rows).expect("batched")),
        ("rms_norm", backend.rms_norm(&rows, &weight, 1e-5).expect("norm")),
        ("rope", backend.rope(&r, ROPE).expect("rope")),
        ("swiglu", backend.swiglu(&rows, &rows).expect("swiglu")),
        ("attention", backend.attention(&q, &kv, 0, spec).expect("attention")),
    ];
    backend.add_in_place(&mut dst, &r).expect("add");
    backend.add_bias(&mut dst2, &bias).expect("bias");
    let mut got: Vec<_> = tensors.iter().map(|(name, t)| (*name, backend.read(t).expect("read"))).collect();
    got.push(("add_in_place", backend.read(&dst).expect("read")));
    got.push(("add_bias", backend.read(&dst2).expect("read")));
    let logits = backend.matmul(&w, &x).expect("logits");
    got.push(("argmax", vec![backend.argmax(&logits).expect("argmax") as f32]));
    backend.evict(&mut kv, 0, 1).expect("evict");
    got.push(("keys after evict", backend.keys(&kv, 0).expect("keys")));
    got
}

fn expected() -> Vec<(&'static str, Vec<f32>)> {
    everything(&mut CpuRef::new())
}

fn close(got: &[f32], want: &[f32]) -> bool {
    got.len() == want.len() && got.iter().zip(want).all(|(g, w)| (g - w).abs() <= 1e-4 * w.abs().max(1.0))
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// Names of the ops whose values are not close to cpu-ref's.
fn wrong_ops(name: &str) -> Vec<&'static str> {
    let got = everything(&mut mock(name));
    got.iter().zip(expected()).filter(|(got, want)| !close(&got.1, &want.1)).map(|(got, _)| got.0).collect()
}

#[test]
fn honest_is_close_everywhere_and_its_bits_are_its_own() {
    let got = everything(&mut mock("honest"));
    let mut differing = Vec::new();
    for ((op, got), (_, want)) in got.iter().zip(expected()) {
        assert!(close(got, &want), "{op}: {got:?} {want:?}");
        if bits(got) != bits(&want) {
            differing.push(*op);
        }
    }
    for op in ["matmul", "batched_matmul", "rms_norm", "swiglu", "attention"] {
        assert!(differing.contains(&op), "{op} has cpu-ref's bits; differing: {differing:?}");
    }
}

#[test]
fn honest_takes_every_dtype_of_weights_and_narrows_as_promised() {
    for dtype in [DType::F16, DType::Bf16, DType::Q8_0] {
        let tensor = host(&[4, 64], 1);
        let (mut mock, mut cpu) = (mock("honest"), CpuRef::new());
        let (m, c) =
            (mock.upload(&tensor, dtype).expect("upload"), cpu.upload(&tensor, dtype).expect("upload"));
        assert_eq!(m.desc().dtype, dtype);
        assert_eq!(bits(&mock.read(&m).expect("read")), bits(&cpu.read(&c).expect("read")), "{dtype}");
        let x = host(&[64], 2);
        let (mx, cx) = (mock.upload(&x, DType::F32).expect("x"), cpu.upload(&x, DType::F32).expect("x"));
        let (my, cy) = (mock.matmul(&m, &mx).expect("y"), cpu.matmul(&c, &cx).expect("y"));
        let (got, want) = (mock.read(&my).expect("y"), cpu.read(&cy).expect("y"));
        // cpu-ref also quantises the activation of q8_0, to about one part in 250.
        assert!(got.iter().zip(&want).all(|(g, w)| (g - w).abs() < 0.3), "{dtype}: {got:?} {want:?}");
    }
}

#[test]
fn special_values_go_the_way_of_cpu_ref() {
    let specials = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-42, 3e38, -100.0];
    let tensor = HostTensor::from_f32(&[8], &specials).expect("tensor");
    let ones = HostTensor::from_f32(&[8], &[1.0; 8]).expect("ones");
    let (mut mock, mut cpu) = (mock("honest"), CpuRef::new());
    let (mx, mo) =
        (mock.upload(&tensor, DType::F32).expect("up"), mock.upload(&ones, DType::F32).expect("up"));
    let (cx, co) = (cpu.upload(&tensor, DType::F32).expect("up"), cpu.upload(&ones, DType::F32).expect("up"));
    let (m, c) = (mock.swiglu(&mx, &mo).expect("swiglu"), cpu.swiglu(&cx, &co).expect("swiglu"));
    let (got, want) = (mock.read(&m).expect("read"), cpu.read(&c).expect("read"));
    for ((x, g), w) in specials.iter().zip(&got).zip(&want) {
        assert!(g == w || (g.is_nan() && w.is_nan()), "swiglu({x}) = {g}, cpu-ref {w}");
    }
    assert_eq!(mock.argmax(&mx).expect("argmax"), cpu.argmax(&cx).expect("argmax"));
}

#[test]
fn bad_calls_are_refused_and_name_what_they_got() {
    let mut mock = mock("honest");
    let w = mock.upload(&host(&[5, 7], 1), DType::F32).expect("w");
    let x = mock.upload(&host(&[6], 1), DType::F32).expect("x");
    let refused = [
        mock.matmul(&w, &x).expect_err("matmul"),
        mock.batched_matmul(&w, &x).expect_err("batched"),
        mock.rms_norm(&w, &x, 1e-5).expect_err("norm"),
        mock.rope(&x, ROPE).expect_err("rope"),
        mock.swiglu(&w, &x).expect_err("swiglu"),
        mock.argmax(&w).expect_err("argmax"),
    ];
    for error in refused {
        assert_eq!(error.kind, ErrorKind::InvalidArgument, "{error}");
        let names_a_shape = ["[6]", "[5, 7]"].iter().any(|shape| error.message.contains(shape));
        assert!(error.op.is_some() && names_a_shape, "{error}");
    }
    let huge = KvConfig { layers: 2, kv_heads: 8, head_dim: 128, capacity: usize::MAX / 1000, theta: 1e4 };
    assert!(mock.new_kv(&huge).is_err());
}

#[test]
fn wrong_values_are_wrong_where_they_should_be_and_nowhere_else() {
    for (name, ops) in [
        ("nan", &["matmul", "batched_matmul"][..]),
        ("huge-element", &["matmul", "batched_matmul"]),
        ("off-by-one-element", &["matmul", "batched_matmul"]),
        ("drops-tail", &["matmul", "batched_matmul"]),
        ("low-precision", &["matmul", "batched_matmul"]),
        ("wrong-shape", &["swiglu"]),
        ("short-read", &["rms_norm"]),
        ("gelu-for-silu", &["swiglu"]),
        ("interleaved-rope", &["rope"]),
        ("ignores-mask", &["attention"]),
        ("ignores-scale", &["attention"]),
        ("evict-keeps-keys", &["keys after evict"]),
        ("returns-reference-bits", &[]),
        ("noisy", &[]),
        ("lies-about-class", &[]),
    ] {
        // The argmax is taken of a product, so it may be wrong as a consequence.
        let wrong: Vec<_> = wrong_ops(name).into_iter().filter(|op| *op != "argmax").collect();
        assert_eq!(wrong, ops, "{name}");
    }
}

#[test]
fn reference_bits_are_reference_bits() {
    for ((op, got), (_, want)) in everything(&mut mock("returns-reference-bits")).iter().zip(expected()) {
        if *op != "keys after evict" {
            assert_eq!(bits(got), bits(&want), "{op}");
        }
    }
    let mock = mock("returns-reference-bits");
    assert_eq!(mock.class(), Class::Approx);
}

#[test]
fn eps_outside_the_root_shows_where_eps_matters() {
    let small: Vec<f32> = values(8, 1).iter().map(|v| v * 1e-3).collect();
    let norm = |mock: &mut Mock| {
        let x = mock.upload(&HostTensor::from_f32(&[8], &small).expect("x"), DType::F32).expect("x");
        let w = mock.upload(&HostTensor::from_f32(&[8], &[1.0; 8]).expect("w"), DType::F32).expect("w");
        let y = mock.rms_norm(&x, &w, 1e-5).expect("norm");
        mock.read(&y).expect("read")
    };
    assert!(!close(&norm(&mut mock("eps-outside-root")), &norm(&mut mock("honest"))));
}

fn matmul_of(mock: &mut Mock) -> (MockTensor, MockTensor) {
    let w = mock.upload(&host(&[5, 9], 1), DType::F32).expect("w");
    let x = mock.upload(&host(&[9], 2), DType::F32).expect("x");
    let y = mock.matmul(&w, &x).expect("matmul");
    (x, y)
}

#[test]
fn the_input_changes_only_where_promised() {
    for (name, changes) in [("honest", false), ("input-modified", true)] {
        let mut mock = mock(name);
        let (x, _) = matmul_of(&mut mock);
        assert_eq!(bits(&mock.read(&x).expect("read")) != bits(&values(9, 2)), changes, "{name}");
    }
}

#[test]
fn nondeterminism_shows_in_the_second_call() {
    let mut mock = mock("nondeterministic");
    let (_, first) = matmul_of(&mut mock);
    let (_, second) = matmul_of(&mut mock);
    assert_ne!(bits(&mock.read(&first).expect("read")), bits(&mock.read(&second).expect("read")));
    assert!(mock.numerics().deterministic);
}

#[test]
fn stale_rope_repeats_the_call_before() {
    let mut mock = mock("stale-output");
    let a = mock.upload(&host(&[8], 1), DType::F32).expect("a");
    let b = mock.upload(&host(&[8], 2), DType::F32).expect("b");
    let first = mock.rope(&a, ROPE).expect("rope");
    let second = mock.rope(&b, ROPE).expect("rope");
    assert_eq!(mock.read(&first).expect("read"), mock.read(&second).expect("read"));
}

#[test]
fn argmax_last_differs_on_a_tie_only() {
    let tie = HostTensor::from_f32(&[4], &[1.0, 3.0, 3.0, 2.0]).expect("tie");
    for (name, index) in [("honest", 1), ("argmax-last", 2)] {
        let mut mock = mock(name);
        let logits = mock.upload(&tie, DType::F32).expect("upload");
        assert_eq!(mock.argmax(&logits).expect("argmax"), index, "{name}");
    }
}

#[test]
fn missing_ops_answer_unimplemented_and_the_rest_works() {
    for (name, missing, present) in [
        ("delegates-matmul", Op::Matmul, true),
        ("delegates-everything", Op::Matmul, false),
        ("delegates-swiglu", Op::Swiglu, true),
    ] {
        let mut mock = mock(name);
        let t = mock.upload(&host(&[4, 4], 1), DType::F32).expect("residency works");
        let x = mock.upload(&host(&[4], 2), DType::F32).expect("residency works");
        let refused = if missing == Op::Matmul { mock.matmul(&t, &x) } else { mock.swiglu(&x, &x) };
        let error = refused.expect_err(name);
        assert_eq!((error.kind, error.op), (ErrorKind::Unimplemented, Some(missing)), "{name}");
        assert_eq!(mock.rms_norm(&t, &x, 1e-5).is_ok(), present, "{name}");
        assert_eq!(mock.kv_store().is_some(), present, "{name}");
    }
}

#[test]
fn lies_are_told() {
    let lie = |name: &str, cap| mock(name).caps().contains(&cap);
    assert!(lie("lies-about-device-memory", Cap::DeviceMemory));
    assert!(lie("lies-about-collective", Cap::Collective));
    let mut device = mock("lies-about-device-memory");
    let t = device.upload(&host(&[4], 1), DType::F32).expect("upload");
    assert!(device.host(&t).expect("host").is_some(), "the view contradicts the cap");
    assert!(mock("lies-about-collective").collectives().is_none());
    let mut narrow = mock("lies-about-upload-dtype");
    assert!(narrow.caps().contains(&Cap::UploadDtype));
    let t = narrow.upload(&host(&[4], 1), DType::F16).expect("upload");
    assert_eq!(t.desc().dtype, DType::F16);
    assert_eq!(narrow.read(&t).expect("read"), values(4, 1));
    assert_eq!(mock("lies-about-class").class(), Class::Reference);
    assert_ne!(mock("lies-about-device").device(), mock("honest").device());
}

#[test]
fn the_identity_changes_after_a_while() {
    let mut mock = mock("changing-identity");
    let before = mock.identity();
    for _ in 0..21 {
        mock.upload(&host(&[1], 1), DType::F32).expect("upload");
    }
    let after = mock.identity();
    assert_ne!(before.tier, after.tier);
    assert_ne!(before.caps, after.caps);
    assert_eq!(before.name, after.name);
}

#[test]
fn flaky_refuses_the_tenth_call() {
    let mut mock = mock("flaky");
    let answers: Vec<bool> = (0..10).map(|_| mock.upload(&host(&[1], 1), DType::F32).is_ok()).collect();
    assert_eq!(answers, [true, true, true, true, true, true, true, true, true, false]);
}

#[test]
fn names_are_unique_and_unknown_ones_are_refused_with_the_list() {
    let mut names: Vec<_> = Mock::BEHAVIOURS.iter().map(|b| b.name).collect();
    for behaviour in Mock::BEHAVIOURS {
        assert_eq!(mock(behaviour.name).name(), format!("mock:{}", behaviour.name));
        assert!(!behaviour.about.is_empty());
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Mock::BEHAVIOURS.len());
    assert_eq!(mock("mock:honest").name(), "mock:honest");
    let message = Mock::by_name("hones").expect_err("no prefix match").to_string();
    assert!(message.contains("\"hones\"") && message.contains("crash-segv"), "{message}");
}

#[test]
#[should_panic(expected = "panics in rope on purpose")]
fn panic_panics_in_rope() {
    let mut mock = mock("panic");
    let x = mock.upload(&host(&[8], 1), DType::F32).expect("upload");
    let _ = mock.rope(&x, ROPE);
}
