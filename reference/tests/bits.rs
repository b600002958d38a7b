//! cpu-ref equals the independent numpy reading of its arithmetic, bit for bit, on every value of the golden.

use std::path::Path;

use modelbench_contract::{
    AttentionSpec, Backend, DType, HostTensor, KvConfig, KvStore, QuantSpec, RopeSpec,
};
use modelbench_reference::{CpuRef, RefTensor, ops};
use safetensors::{Dtype, SafeTensors};

/// Values of each kind in the golden, as its generator printed them.
const COUNTS: [(&str, usize); 20] = [
    ("argmax", 12),
    ("attention", 618),
    ("matmul_bf16", 63),
    ("matmul_f16", 63),
    ("matmul_f32", 197),
    ("matmul_fp8_e4m3", 63),
    ("matmul_fp8_e5m2", 63),
    ("matmul_i4", 412),
    ("matmul_i8", 588),
    ("narrow_bf16", 2832),
    ("narrow_f16", 2778),
    ("narrow_fp8_e4m3", 1572),
    ("narrow_fp8_e5m2", 1554),
    ("q4_k", 33),
    ("q8_gguf", 206),
    ("q8_narrowed", 206),
    ("q8_quant", 990),
    ("rms_norm", 5148),
    ("rope", 4986),
    ("swiglu", 5518),
];

/// One case of the golden and the number of values that were compared in it.
struct Case<'a> {
    golden: &'a SafeTensors<'a>,
    prefix: String,
    compared: usize,
}

impl Case<'_> {
    fn view(&self, field: &str) -> safetensors::tensor::TensorView<'_> {
        let name = format!("{}.{field}", self.prefix);
        self.golden.tensor(&name).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    fn shape(&self, field: &str) -> Vec<usize> {
        self.view(field).shape().to_vec()
    }

    fn bytes(&self, field: &str) -> Vec<u8> {
        self.view(field).data().to_vec()
    }

    fn f32s(&self, field: &str) -> Vec<f32> {
        let view = self.view(field);
        assert_eq!(view.dtype(), Dtype::F32, "{}.{field}", self.prefix);
        view.data().as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
    }

    fn params(&self, field: &str) -> Vec<usize> {
        let view = self.view(field);
        assert_eq!(view.dtype(), Dtype::I64, "{}.{field}", self.prefix);
        let words = view.data().as_chunks::<8>().0;
        words.iter().map(|b| usize::try_from(i64::from_le_bytes(*b)).expect("not negative")).collect()
    }

    /// An f32 tensor of the golden on the backend.
    fn on(&self, cpu: &mut CpuRef, field: &str) -> RefTensor {
        upload(cpu, &self.shape(field), DType::F32, self.bytes(field))
    }

    /// Compares with a field; NaN equals NaN only with the same bits, and the goldens of sums hold none.
    fn equal(&mut self, field: &str, got: &[f32]) {
        let want = self.f32s(field);
        assert_eq!(got.len(), want.len(), "{}.{field}", self.prefix);
        for (i, (g, w)) in got.iter().zip(&want).enumerate() {
            assert_eq!(g.to_bits(), w.to_bits(), "{}.{field}[{i}]: got {g:e}, want {w:e}", self.prefix);
        }
        self.compared += got.len();
    }
}

fn upload(cpu: &mut CpuRef, shape: &[usize], dtype: DType, bytes: Vec<u8>) -> RefTensor {
    let tensor = HostTensor::from_bytes(shape, dtype, bytes).expect("a good tensor");
    cpu.upload(&tensor, dtype).expect("uploaded")
}

/// `matmul` of every row of `x`, one after another.
fn singles(cpu: &mut CpuRef, w: &RefTensor, case: &Case<'_>) -> Vec<f32> {
    let n = case.shape("x")[1];
    let mut all = Vec::new();
    for row in case.f32s("x").chunks_exact(n) {
        let x = HostTensor::from_f32(&[n], row).expect("a row");
        let x = cpu.upload(&x, DType::F32).expect("uploaded");
        let y = cpu.matmul(w, &x).expect("multiplied");
        all.extend(cpu.read(&y).expect("read"));
    }
    all
}

fn batched(cpu: &mut CpuRef, w: &RefTensor, case: &Case<'_>) -> Vec<f32> {
    let x = case.on(cpu, "x");
    let y = cpu.batched_matmul(w, &x).expect("multiplied");
    cpu.read(&y).expect("read")
}

/// A dtype for which `batched_matmul` has the bits of `matmul`.
fn float_matmul(case: &mut Case<'_>, cpu: &mut CpuRef, w: &RefTensor) {
    let y = batched(cpu, w, case);
    case.equal("y", &y);
    assert_eq!(singles(cpu, w, case), y, "{}: singles equal the batch", case.prefix);
}

fn q8_matmul(case: &mut Case<'_>, cpu: &mut CpuRef, w: &RefTensor) {
    let (dot, cell) = (singles(cpu, w, case), batched(cpu, w, case));
    case.equal("dot", &dot);
    case.equal("cell", &cell);
}

fn integer_matmul(case: &mut Case<'_>, cpu: &mut CpuRef, dtype: DType, bits: u8) {
    let params = case.params("params");
    let zeros = case.bytes("zeros");
    let quant = QuantSpec {
        block: params[2],
        axis: params[3],
        bits,
        symmetric: params[4] == 1,
        scales: case.f32s("scales"),
        zero_points: zeros.as_chunks::<4>().0.iter().map(|b| i32::from_le_bytes(*b)).collect(),
        static_activation: None,
    };
    let tensor = HostTensor::from_bytes(&params[..2], dtype, case.bytes("w")).expect("a good tensor");
    let w = cpu.upload(&tensor.with_quant(quant), dtype).expect("uploaded");
    let values = cpu.read(&w).expect("read");
    case.equal("dequantised", &values);
    float_matmul(case, cpu, &w);
}

/// Narrowing: the codes themselves are not visible, but distinct codes have distinct values.
fn narrowing(case: &mut Case<'_>, cpu: &mut CpuRef, dtype: DType) {
    let tensor =
        HostTensor::from_bytes(&case.shape("x"), DType::F32, case.bytes("x")).expect("a good tensor");
    let narrowed = cpu.upload(&tensor, dtype).expect("narrowed");
    let expected = upload(cpu, &case.shape("x"), dtype, case.bytes("y"));
    let (got, want) = (cpu.read(&narrowed).expect("read"), cpu.read(&expected).expect("read"));
    for (i, (g, w)) in got.iter().zip(&want).enumerate() {
        let same = g.to_bits() == w.to_bits() || (g.is_nan() && w.is_nan());
        assert!(same, "{}[{i}] of {:e}: got {g:e}, want {w:e}", case.prefix, case.f32s("x")[i]);
    }
    case.compared += got.len();
}

fn attention(case: &mut Case<'_>, cpu: &mut CpuRef) {
    let (p, scale) = (case.params("params"), case.f32s("scale")[0]);
    let spec = AttentionSpec { group: p[1], scale, causal: p[3] == 1 };
    let config =
        KvConfig { layers: 1, kv_heads: p[0], head_dim: p[2], capacity: case.shape("k")[0], theta: 1e4 };
    let (q, k, v) = (case.on(cpu, "q"), case.on(cpu, "k"), case.on(cpu, "v"));
    let mut kv = cpu.new_kv(&config).expect("a store");
    cpu.append(&mut kv, 0, &k, &k, &v, 0).expect("appended");
    let y = cpu.attention(&q, &kv, 0, spec).expect("attended");
    let y = cpu.read(&y).expect("read");
    case.equal("y", &y);
}

fn run(kind: &str, case: &mut Case<'_>, cpu: &mut CpuRef) {
    let plain = |name: &str| match name {
        "f32" => DType::F32,
        "f16" => DType::F16,
        "bf16" => DType::Bf16,
        "fp8_e4m3" => DType::Fp8E4m3,
        "fp8_e5m2" => DType::Fp8E5m2,
        other => panic!("the golden has an unknown kind {kind} ({other})"),
    };
    match kind {
        "matmul_i8" => integer_matmul(case, cpu, DType::I8, 8),
        "matmul_i4" => integer_matmul(case, cpu, DType::I4, 4),
        "q8_gguf" => {
            let (out, n) = (case.shape("w")[0], case.shape("x")[1]);
            let w = upload(cpu, &[out, n], DType::Q8_0, case.bytes("w"));
            q8_matmul(case, cpu, &w);
        }
        "q8_narrowed" => {
            let w = HostTensor::from_bytes(&case.shape("w"), DType::F32, case.bytes("w")).expect("good");
            let w = cpu.upload(&w, DType::Q8_0).expect("narrowed");
            q8_matmul(case, cpu, &w);
        }
        "q8_quant" => {
            let q8 = ops::quantise_q8_0(&case.f32s("x")).expect("quantised");
            let want: Vec<i8> = case.bytes("codes").iter().map(|b| *b as i8).collect();
            assert_eq!(q8.codes, want, "{}", case.prefix);
            case.compared += want.len();
            case.equal("scales", &q8.scales);
        }
        "q4_k" => {
            let (out, n) = (case.shape("w")[0], case.shape("x")[1]);
            let w = upload(cpu, &[out, n], DType::Q4K, case.bytes("w"));
            float_matmul(case, cpu, &w);
        }
        "rms_norm" => {
            let (x, w, eps) = (case.on(cpu, "x"), case.on(cpu, "w"), case.f32s("eps")[0]);
            let y = cpu.rms_norm(&x, &w, eps).expect("normed");
            case.equal("y", y.as_f32().expect("f32"));
        }
        "swiglu" => {
            let (gate, up) = (case.on(cpu, "gate"), case.on(cpu, "up"));
            let y = cpu.swiglu(&gate, &up).expect("gated");
            case.equal("y", y.as_f32().expect("f32"));
        }
        "rope" => {
            let (x, p) = (case.on(cpu, "x"), case.params("params"));
            let spec = RopeSpec { pos: p[0], n_heads: p[1], head_dim: p[2], theta: case.f32s("theta")[0] };
            let y = cpu.rope(&x, spec).expect("rotated");
            case.equal("y", y.as_f32().expect("f32"));
        }
        "attention" => attention(case, cpu),
        "argmax" => {
            let x = case.on(cpu, "x");
            assert_eq!(cpu.argmax(&x).expect("an index"), case.params("y")[0], "{}", case.prefix);
            case.compared += 1;
        }
        _ => match kind.split_once('_') {
            Some(("matmul", name)) => {
                let w = upload(cpu, &case.shape("w"), plain(name), case.bytes("w"));
                float_matmul(case, cpu, &w);
            }
            Some(("narrow", name)) => narrowing(case, cpu, plain(name)),
            _ => panic!("the golden has an unknown kind {kind}"),
        },
    }
}

#[test]
fn every_value_of_the_golden_is_equal() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden/reference_bits.safetensors");
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let golden = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    let mut prefixes: Vec<String> =
        golden.names().into_iter().filter_map(|n| Some(n.rsplit_once('.')?.0.to_owned())).collect();
    prefixes.sort();
    prefixes.dedup();
    let mut counts = std::collections::BTreeMap::new();
    for prefix in prefixes {
        let kind = prefix.split('.').next().unwrap_or_default().to_owned();
        let mut case = Case { golden: &golden, prefix, compared: 0 };
        run(&kind, &mut case, &mut CpuRef::new());
        *counts.entry(kind).or_insert(0) += case.compared;
    }
    let counts: Vec<(&str, usize)> = counts.iter().map(|(kind, n)| (kind.as_str(), *n)).collect();
    assert_eq!(counts, COUNTS, "every value of every kind was compared");
}
