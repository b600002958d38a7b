//! Writers of small model files, and models to write.

use std::collections::BTreeMap;

use serde_json::json;

use crate::model::{BUNDLED, Family, LayerWeight, Model, ModelConfig, Weight, bundled};

/// A GGUF file under construction; wrong files are made by writing wrong parts.
#[derive(Clone)]
pub(super) struct GgufWriter {
    pub(super) values: Vec<(String, Vec<u8>)>,
    /// Name, dimensions with the contiguous one first, type, bytes.
    pub(super) tensors: Vec<(String, Vec<u64>, u32, Vec<u8>)>,
    pub(super) version: u32,
    pub(super) alignment: usize,
}

pub(super) fn text(s: &str) -> Vec<u8> {
    [(s.len() as u64).to_le_bytes().as_slice(), s.as_bytes()].concat()
}

impl GgufWriter {
    pub(super) fn new() -> Self {
        GgufWriter { values: Vec::new(), tensors: Vec::new(), version: 3, alignment: 32 }
    }

    pub(super) fn value(&mut self, key: &str, kind: u32, bytes: &[u8]) {
        self.values.retain(|(k, _)| k != key);
        self.values.push((key.into(), [&kind.to_le_bytes(), bytes].concat()));
    }

    pub(super) fn tensor(&mut self, name: &str, dims: &[u64], kind: u32, bytes: Vec<u8>) {
        self.tensors.push((name.into(), dims.to_vec(), kind, bytes));
    }

    /// The file and the offsets at which its parts begin.
    pub(super) fn write(&self) -> (Vec<u8>, Vec<usize>) {
        let mut out = b"GGUF".to_vec();
        let mut marks = vec![0, out.len()];
        out.extend(self.version.to_le_bytes());
        for count in [self.tensors.len(), self.values.len()] {
            marks.push(out.len());
            out.extend((count as u64).to_le_bytes());
        }
        for (key, value) in &self.values {
            marks.push(out.len());
            out.extend(text(key));
            marks.push(out.len());
            out.extend(value);
        }
        let mut offset = 0;
        for (name, dims, kind, bytes) in &self.tensors {
            marks.push(out.len());
            out.extend(text(name));
            marks.push(out.len());
            out.extend((dims.len() as u32).to_le_bytes());
            dims.iter().for_each(|d| out.extend(d.to_le_bytes()));
            marks.push(out.len());
            out.extend(kind.to_le_bytes());
            out.extend((offset as u64).to_le_bytes());
            offset += bytes.len().next_multiple_of(self.alignment);
        }
        for (.., bytes) in &self.tensors {
            out.resize(out.len().next_multiple_of(self.alignment), 0);
            marks.push(out.len());
            out.extend(bytes);
        }
        (out, marks)
    }
}

/// Tensors of a model by their Hugging Face names: shape and values.
pub(super) type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// The configuration and weights of an open model.
pub(super) fn tensors_of(model: &Model) -> Tensors {
    let each = Weight::all(model.config()).map(|weight| {
        let tensor = model.tensor(weight).unwrap();
        let values = tensor.bytes().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
        (weight.hf_name(), (tensor.shape().to_vec(), values.collect()))
    });
    each.collect()
}

pub(super) fn open_bundled(name: &str) -> Model {
    assert!(BUNDLED.contains(&name));
    bundled(name).unwrap().unwrap()
}

/// A one-layer model small enough to damage byte by byte.
pub(super) fn tiny(family: Family, tied: bool) -> (ModelConfig, Tensors) {
    let config = ModelConfig {
        family,
        layers: 1,
        hidden: 32,
        heads: 4,
        kv_heads: 2,
        head_dim: 8,
        ffn: 32,
        vocab: 16,
        theta: 10_000.0,
        eps: 1e-5,
        tied,
        qkv_bias: family == Family::Qwen2,
        max_positions: 64,
    };
    let mut state = 0x2545_F491_4F6C_DD1Du64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f32 / (1u32 << 23) as f32 - 1.0) * 0.5
    };
    let tensors = Weight::all(&config).map(|weight| {
        let shape = weight.shape(&config);
        let values = (0..shape.iter().product::<usize>()).map(|_| next()).collect();
        (weight.hf_name(), (shape, values))
    });
    let tensors = tensors.collect();
    (config, tensors)
}

/// `config.json` of a configuration.
pub(super) fn config_json(c: &ModelConfig) -> serde_json::Value {
    json!({
        "model_type": c.family.as_str(), "num_hidden_layers": c.layers, "hidden_size": c.hidden,
        "num_attention_heads": c.heads, "num_key_value_heads": c.kv_heads, "head_dim": c.head_dim,
        "intermediate_size": c.ffn, "vocab_size": c.vocab, "rms_norm_eps": 1e-5, "rope_theta": c.theta,
        "max_position_embeddings": c.max_positions, "tie_word_embeddings": c.tied,
    })
}

/// A safetensors file, written by the format's own library.
pub(super) fn safetensors_bytes<'a>(
    tensors: impl IntoIterator<Item = (&'a String, &'a (Vec<usize>, Vec<f32>))>,
) -> Vec<u8> {
    let raw: Vec<_> = tensors
        .into_iter()
        .map(|(name, (shape, values))| {
            (name.clone(), shape.clone(), values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>())
        })
        .collect();
    let views = raw.iter().map(|(name, shape, bytes)| {
        let view =
            ::safetensors::tensor::TensorView::new(::safetensors::Dtype::F32, shape.clone(), bytes).unwrap();
        (name.clone(), view)
    });
    ::safetensors::serialize(views, None).unwrap()
}

/// The file that llama.cpp's converter would write in f32: q and k rows of Llama permuted for interleaved RoPE.
pub(super) fn gguf_of(config: &ModelConfig, tensors: &Tensors) -> GgufWriter {
    let mut gguf = GgufWriter::new();
    let arch = config.family.as_str();
    gguf.value("general.architecture", 8, &text(arch));
    let sizes = [
        ("block_count", config.layers),
        ("embedding_length", config.hidden),
        ("feed_forward_length", config.ffn),
        ("attention.head_count", config.heads),
        ("attention.head_count_kv", config.kv_heads),
        ("rope.dimension_count", config.head_dim),
        ("context_length", config.max_positions),
    ];
    for (key, size) in sizes {
        gguf.value(&format!("{arch}.{key}"), 4, &(size as u32).to_le_bytes());
    }
    gguf.value(&format!("{arch}.rope.freq_base"), 6, &(config.theta as f32).to_le_bytes());
    gguf.value(&format!("{arch}.attention.layer_norm_rms_epsilon"), 6, &config.eps.to_le_bytes());
    let tokens = [8u32.to_le_bytes().as_slice(), &2u64.to_le_bytes(), &text("a"), &text("b")].concat();
    gguf.value("tokenizer.ggml.tokens", 9, &tokens);
    for weight in Weight::all(config) {
        let (shape, values) = &tensors[&weight.hf_name()];
        let dims: Vec<u64> = shape.iter().rev().map(|&d| d as u64).collect();
        let rotated = matches!(weight, Weight::Layer(_, LayerWeight::AttnQ | LayerWeight::AttnK));
        let values = if rotated && config.family == Family::Llama {
            permute(values, shape, config.head_dim)
        } else {
            values.clone()
        };
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        gguf.tensor(&weight.to_string(), &dims, 0, bytes);
    }
    gguf
}

/// `reshape(heads, 2, head/2, columns).swapaxes(1, 2)`, as the converter does.
fn permute(values: &[f32], shape: &[usize], head: usize) -> Vec<f32> {
    let (rows, columns) = (shape[0], shape[1]);
    let mut out = Vec::new();
    for h in 0..rows / head {
        for j in 0..head / 2 {
            for half in 0..2 {
                let row = h * head + half * (head / 2) + j;
                out.extend(&values[row * columns..(row + 1) * columns]);
            }
        }
    }
    out
}
