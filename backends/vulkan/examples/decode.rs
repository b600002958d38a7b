//! Speed of decoding with the shape of SmolLM2-135M, token by token, and what each token costs the device.
//!
//! Run it as `cargo run --release -p modelbench-vulkan --example decode -- [-times] [f32|f16|q8_0] [TOKENS]
//! [WEIGHTS FIRST]`. It decodes greedily from token FIRST on, or from token 0. Weights are pseudo-random, because speed
//! does not depend on them, unless a file of them is named: all tensors as little-endian f32, one after the other in the
//! order in which they are made below. `benches/decode-vulkan` makes such a file and compares the tokens with llama.cpp's.
//!
//! `-times` in front adds the time of each kernel on the device. It slows the decode down: a software device waits for
//! everything before it writes a timestamp.

// A benchmark that meets an unexpected error has failed; its message is in the panic.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::File;
use std::io::{BufReader, Read};
use std::time::Instant;

use modelbench_contract::{AttentionSpec, Backend, DType, HostTensor, KvConfig, KvStore, RopeSpec};
use modelbench_vulkan::{Options, Vulkan, VulkanTensor};

const LAYERS: usize = 30;
const DIM: usize = 576;
const HIDDEN: usize = 1536;
const KV_HEADS: usize = 3;
const GROUP: usize = 3;
const HEAD: usize = 64;
const VOCABULARY: usize = 49_152;
const THETA: f32 = 1e5;
const EPS: f32 = 1e-5;

struct Layer {
    norms: [VulkanTensor; 2],
    qkvo: [VulkanTensor; 4],
    gate_up_down: [VulkanTensor; 3],
}

/// Where the weights come from.
enum Source {
    Pseudorandom,
    File(BufReader<File>),
}

impl Source {
    /// The values of the next tensor, `[out, inner]`.
    fn values(&mut self, out: usize, inner: usize) -> Vec<f32> {
        match self {
            Source::Pseudorandom if out == 1 => vec![1.0; inner],
            Source::Pseudorandom => {
                let scale = 1.0 / (inner as f32).sqrt();
                let value = |i: usize| ((i.wrapping_mul(2_654_435_761) >> 8) % 2001) as f32 / 1000.0 - 1.0;
                (0..out * inner).map(|i| value(i) * scale).collect()
            }
            Source::File(file) => {
                let mut bytes = vec![0; 4 * out * inner];
                file.read_exact(&mut bytes).unwrap();
                bytes.as_chunks::<4>().0.iter().map(|&word| f32::from_le_bytes(word)).collect()
            }
        }
    }

    fn norm(&mut self, b: &mut Vulkan) -> VulkanTensor {
        let values = self.values(1, DIM);
        b.upload(&HostTensor::from_f32(&[DIM], &values).unwrap(), DType::F32).unwrap()
    }

    fn matrix(&mut self, b: &mut Vulkan, out: usize, inner: usize, dtype: DType) -> VulkanTensor {
        let values = self.values(out, inner);
        b.upload(&HostTensor::from_f32(&[out, inner], &values).unwrap(), dtype).unwrap()
    }
}

fn main() {
    let mut args = std::env::args().skip(1).peekable();
    let timing = args.next_if(|arg| arg == "-times").is_some();
    let dtype = match args.next().as_deref() {
        None | Some("f32") => DType::F32,
        Some("f16") => DType::F16,
        Some("q8_0") => DType::Q8_0,
        Some(other) => panic!("{other}: expected f32, f16 or q8_0"),
    };
    let tokens: usize = args.next().map_or(16, |n| n.parse().unwrap());
    let (mut source, first) = match args.next() {
        None => (Source::Pseudorandom, 0),
        Some(path) => {
            let first: usize = args.next().expect("the first token's number after the file").parse().unwrap();
            (Source::File(BufReader::new(File::open(path).unwrap())), first)
        }
    };
    let options = Options { timing, ..Options::from_environment().unwrap() };
    let mut b = Vulkan::new(&options).unwrap();
    println!("device     {}", b.device().hardware);
    println!("driver     {}", b.device().driver);
    let layers: Vec<Layer> = (0..LAYERS)
        .map(|_| Layer {
            norms: [source.norm(&mut b), source.norm(&mut b)],
            qkvo: [DIM, KV_HEADS * HEAD, KV_HEADS * HEAD, DIM]
                .map(|out| source.matrix(&mut b, out, DIM, dtype)),
            gate_up_down: [(HIDDEN, DIM), (HIDDEN, DIM), (DIM, HIDDEN)]
                .map(|(out, inner)| source.matrix(&mut b, out, inner, dtype)),
        })
        .collect();
    let last = source.norm(&mut b);
    // The host looks a token's row up, the device multiplies with all of them.
    let rows = source.values(VOCABULARY, DIM);
    let embedding = b.upload(&HostTensor::from_f32(&[VOCABULARY, DIM], &rows).unwrap(), dtype).unwrap();
    let config =
        KvConfig { layers: LAYERS, kv_heads: KV_HEADS, head_dim: HEAD, capacity: 2048, theta: THETA };
    let mut kv = b.new_kv(&config).unwrap();

    let step = |b: &mut Vulkan, kv: &mut _, token: usize, pos: usize| {
        let row = &rows[token * DIM..][..DIM];
        let mut x = b.upload(&HostTensor::from_f32(&[DIM], row).unwrap(), DType::F32).unwrap();
        let rope = |n_heads| RopeSpec { pos, n_heads, head_dim: HEAD, theta: THETA };
        for (index, layer) in layers.iter().enumerate() {
            let h = b.rms_norm(&x, &layer.norms[0], EPS).unwrap();
            let [q, k, v] = [0, 1, 2].map(|i| b.matmul(&layer.qkvo[i], &h).unwrap());
            let (q, turned) =
                (b.rope(&q, rope(KV_HEADS * GROUP)).unwrap(), b.rope(&k, rope(KV_HEADS)).unwrap());
            b.append(kv, index, &k, &turned, &v, pos).unwrap();
            let a = b.attention(&q, kv, index, AttentionSpec::causal(GROUP, HEAD)).unwrap();
            let o = b.matmul(&layer.qkvo[3], &a).unwrap();
            b.add_in_place(&mut x, &o).unwrap();
            let h = b.rms_norm(&x, &layer.norms[1], EPS).unwrap();
            let [gate, up] = [0, 1].map(|i| b.matmul(&layer.gate_up_down[i], &h).unwrap());
            let h = b.swiglu(&gate, &up).unwrap();
            let down = b.matmul(&layer.gate_up_down[2], &h).unwrap();
            b.add_in_place(&mut x, &down).unwrap();
        }
        let h = b.rms_norm(&x, &last, EPS).unwrap();
        let logits = b.matmul(&embedding, &h).unwrap();
        b.argmax(&logits).unwrap()
    };
    // The first token compiles the kernels.
    let begun = Instant::now();
    let mut made = vec![step(&mut b, &mut kv, first, 0)];
    println!("first      {:.1} ms, kernels compiled on the way", begun.elapsed().as_secs_f64() * 1e3);
    let (before, timed) = (b.counts(), b.times().clone());
    let begun = Instant::now();
    for pos in 1..=tokens {
        made.push(step(&mut b, &mut kv, made[pos - 1], pos));
    }
    let spent = begun.elapsed().as_secs_f64();
    println!(
        "decode     {:.2} tokens/s, {:.1} ms each, {dtype} weights",
        tokens as f64 / spent,
        spent * 1e3 / tokens as f64
    );
    if let Source::File(_) = source {
        println!("tokens     {made:?}");
    }
    let per_token = |i: usize| (b.counts()[i] - before[i]) as f64 / tokens as f64;
    println!(
        "per token  {:.1} kernels, {:.1} submissions, {:.1} barriers",
        per_token(0),
        per_token(1),
        per_token(2)
    );
    for (name, (calls, ns)) in b.times() {
        let (calls_before, ns_before) = timed.get(name).copied().unwrap_or_default();
        let (calls, ns) = (calls - calls_before, ns - ns_before);
        if calls > 0 {
            let per = |n: u64| n as f64 / tokens as f64;
            println!("  {name:<12} {:>6.1} calls {:>9.2} ms", per(calls), per(ns) / 1e6);
        }
    }
}
