//! Whole models: goldens of an independent float64 producer, and the ensemble.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

use super::data::Data;
use crate::oracle::{ModelShape, ModelWeights, Perturbation, WeightError, WeightName, ensemble, forward_f64};

/// A model in memory, loaded without the kit's own loader.
struct Loaded {
    shape: ModelShape,
    tensors: HashMap<String, Vec<f32>>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn numbers<const N: usize, T>(bytes: &[u8], of: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.chunks_exact(N).map(|c| of(c.try_into().unwrap())).collect()
}

impl Loaded {
    fn open(name: &str) -> Loaded {
        let folder = root().join("fixtures/models").join(name);
        let config: serde_json::Value =
            serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap();
        let bytes = std::fs::read(folder.join("model.safetensors")).unwrap();
        let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let tensors =
            file.iter().map(|(n, t)| (n.to_owned(), numbers(t.data(), f32::from_le_bytes))).collect();
        let size = |key: &str| config[key].as_u64().unwrap() as usize;
        let shape = ModelShape {
            layers: size("num_hidden_layers"),
            hidden: size("hidden_size"),
            heads: size("num_attention_heads"),
            kv_heads: size("num_key_value_heads"),
            head_dim: size("hidden_size") / size("num_attention_heads"),
            ffn: size("intermediate_size"),
            vocab: size("vocab_size"),
            theta: config["rope_theta"].as_f64().unwrap(),
            eps: config["rms_norm_eps"].as_f64().unwrap(),
            qkv_bias: false,
        };
        Loaded { shape, tensors }
    }

    fn key(&self, layer: usize, name: WeightName) -> String {
        let part = match name {
            WeightName::AttnNorm => "input_layernorm.weight",
            WeightName::AttnQ => "self_attn.q_proj.weight",
            WeightName::AttnK => "self_attn.k_proj.weight",
            WeightName::AttnV => "self_attn.v_proj.weight",
            WeightName::AttnQBias => "self_attn.q_proj.bias",
            WeightName::AttnKBias => "self_attn.k_proj.bias",
            WeightName::AttnVBias => "self_attn.v_proj.bias",
            WeightName::AttnOutput => "self_attn.o_proj.weight",
            WeightName::FfnNorm => "post_attention_layernorm.weight",
            WeightName::FfnGate => "mlp.gate_proj.weight",
            WeightName::FfnUp => "mlp.up_proj.weight",
            WeightName::FfnDown => "mlp.down_proj.weight",
            WeightName::OutputNorm => return "model.norm.weight".to_owned(),
            WeightName::Head if self.tensors.contains_key("lm_head.weight") => {
                return "lm_head.weight".to_owned();
            }
            WeightName::Head => return "model.embed_tokens.weight".to_owned(),
        };
        format!("model.layers.{layer}.{part}")
    }
}

impl ModelWeights for Loaded {
    fn shape(&self) -> ModelShape {
        self.shape
    }

    fn embedding(&self, token: u32) -> Result<Cow<'_, [f32]>, WeightError> {
        let all = self.tensors.get("model.embed_tokens.weight").ok_or("no embedding")?;
        Ok(Cow::Borrowed(&all[token as usize * self.shape.hidden..][..self.shape.hidden]))
    }

    fn weight(&self, layer: usize, name: WeightName) -> Result<Cow<'_, [f32]>, WeightError> {
        let key = self.key(layer, name);
        self.tensors.get(&key).map(|t| Cow::Borrowed(&t[..])).ok_or_else(|| format!("no tensor {key}").into())
    }
}

struct Golden {
    tokens: Vec<u32>,
    logits: Vec<f64>,
    hidden: Vec<Vec<f64>>,
}

fn golden(name: &str) -> Golden {
    let bytes = std::fs::read(root().join("golden/models").join(format!("{name}.safetensors"))).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let ids = file.tensor("input_ids").unwrap();
    let tokens = match ids.dtype() {
        safetensors::Dtype::I64 => numbers(ids.data(), |b| i64::from_le_bytes(b) as u32),
        _ => numbers(ids.data(), |b| i32::from_le_bytes(b) as u32),
    };
    let f64s = |key: &str| file.tensor(key).ok().map(|t| numbers(t.data(), f64::from_le_bytes));
    let hidden = (0..).map_while(|i| f64s(&format!("hidden_f64.{i}"))).collect();
    Golden { tokens, logits: f64s("logits_f64").unwrap(), hidden }
}

fn largest_difference(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).fold(0.0, |m, (a, b)| m.max((a - b).abs()))
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// About a billionth: float64 against float64.
fn billionth() -> f64 {
    (-30f64).exp2()
}

#[test]
fn goldens_of_another_producer_agree() {
    for name in ["kjv", "tied", "untied"] {
        let golden = golden(name);
        let got = forward_f64(&Loaded::open(name), &golden.tokens, None).unwrap();
        let difference = largest_difference(&got.logits, &golden.logits);
        assert!(difference < billionth(), "{name}: {difference:e}");
        assert_eq!(got.hidden.len(), golden.hidden.len(), "{name}");
        for (layer, (a, b)) in got.hidden.iter().zip(&golden.hidden).enumerate() {
            assert!(largest_difference(a, b) < billionth(), "{name} layer {layer}");
        }
    }
}

#[test]
fn the_spread_is_that_of_the_published_ensemble() {
    // Median and largest spread, in units of u = 2^-24, that the independent numpy ensemble prints for 16 runs. The
    // random numbers differ, so that the figures agree only roughly.
    let u = (-24f64).exp2();
    for (name, typical, most) in [("kjv", 186.0, 663.0), ("untied", 252.0, 867.0)] {
        let golden = golden(name);
        let spread = ensemble(&Loaded::open(name), &golden.tokens, 16, u, 1).unwrap();
        assert!(largest_difference(&spread.reference.logits, &golden.logits) < billionth());
        let ratio = median(&spread.logits) / (typical * u);
        assert!((0.9..1.1).contains(&ratio), "{name} median {ratio}");
        let ratio = spread.logits.iter().fold(0.0f64, |m, &v| m.max(v)) / (most * u);
        assert!((0.5..1.5).contains(&ratio), "{name} largest {ratio}");
        assert_eq!(spread.hidden.len(), spread.reference.hidden.len());
        assert!(spread.hidden[0].iter().all(|&v| v == 0.0), "the embedding is exact");
        assert!(spread.hidden[1..].iter().all(|h| median(h) > 0.0));
    }
}

#[test]
fn runs_are_the_same_alone_and_together_on_any_number_of_threads() {
    let (model, tokens, u) = (Loaded::open("tied"), [1, 5, 9, 2], (-24f64).exp2());
    let together = ensemble(&model, &tokens, 3, u, 7).unwrap();
    let mut most = vec![0.0f64; together.logits.len()];
    for run in 0..3 {
        let alone = forward_f64(&model, &tokens, Some(Perturbation { seed: 7, run, u })).unwrap();
        for (m, (a, b)) in most.iter_mut().zip(alone.logits.iter().zip(&together.reference.logits)) {
            *m = m.max((a - b).abs());
        }
    }
    assert_eq!(most, together.logits);
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    assert_eq!(one.install(|| ensemble(&model, &tokens, 3, u, 7)).unwrap(), together);
    assert_ne!(ensemble(&model, &tokens, 3, u, 8).unwrap().logits, together.logits);
}

#[test]
fn the_limit_separates_right_from_wrong() {
    let golden = golden("kjv");
    let tokens = &golden.tokens[..16];
    let model = Loaded::open("kjv");
    let spread = ensemble(&model, tokens, 16, (-24f64).exp2(), 1).unwrap();
    let ratio = |logits: &[f64]| {
        let pairs = logits.iter().zip(&spread.reference.logits).zip(&spread.logits);
        pairs.fold(0.0f64, |m, ((a, b), s)| m.max((a - b).abs() / s))
    };
    let fresh =
        forward_f64(&model, tokens, Some(Perturbation { seed: 99, run: 0, u: (-24f64).exp2() })).unwrap();
    assert!(ratio(&fresh.logits) < 2.5, "another run: {}", ratio(&fresh.logits));
    let mut rounded = Loaded::open("kjv");
    for tensor in rounded.tensors.values_mut() {
        tensor.iter_mut().for_each(|v| *v = half::f16::from_f32(*v).to_f32());
    }
    let no_eps = Loaded { shape: ModelShape { eps: 0.0, ..model.shape }, ..Loaded::open("kjv") };
    for (wrong, why) in [(rounded, "f16 weights"), (no_eps, "no eps")] {
        let got = forward_f64(&wrong, tokens, None).unwrap();
        assert!(ratio(&got.logits) > 20.0, "{why}: {}", ratio(&got.logits));
    }
}

#[test]
fn a_head_in_parts_keeps_its_places() {
    // More outputs than the head multiplies at once, all with the same weights: exact logits are all equal, and two
    // perturbed ones of a token are equal only if they got the same random number.
    let (mut data, vocab, n) = (Data::new(2), 4100, 8);
    let shape = ModelShape {
        layers: 1,
        hidden: n,
        heads: 1,
        kv_heads: 1,
        head_dim: n,
        ffn: n,
        vocab,
        ..Loaded::open("tied").shape
    };
    let mut model = Loaded { shape, tensors: HashMap::new() };
    model.tensors.insert("model.embed_tokens.weight".to_owned(), data.reals(vocab * n, 1.0));
    model.tensors.insert("lm_head.weight".to_owned(), data.reals(n, 1.0).repeat(vocab));
    for name in [WeightName::AttnNorm, WeightName::FfnNorm, WeightName::OutputNorm] {
        model.tensors.insert(model.key(0, name), data.reals(n, 1.0));
    }
    use WeightName::{AttnK, AttnOutput, AttnQ, AttnV, FfnDown, FfnGate, FfnUp};
    for name in [AttnQ, AttnK, AttnV, AttnOutput, FfnGate, FfnUp, FfnDown] {
        model.tensors.insert(model.key(0, name), data.reals(n * n, 1.0));
    }
    let spread = ensemble(&model, &[7, 4099], 1, (-8f64).exp2(), 3).unwrap();
    let run =
        forward_f64(&model, &[7, 4099], Some(Perturbation { seed: 3, run: 0, u: (-8f64).exp2() })).unwrap();
    for (exact, moved) in spread.reference.logits.chunks(vocab).zip(run.logits.chunks(vocab)) {
        assert!(exact.iter().all(|&v| v == exact[0] && v != 0.0));
        let mut bits: Vec<u64> = moved.iter().map(|v| v.to_bits()).collect();
        bits.sort_unstable();
        bits.dedup();
        assert_eq!(bits.len(), vocab);
    }
    let moved = run.logits.iter().zip(&spread.reference.logits).map(|(a, b)| (a - b).abs());
    assert_eq!(moved.collect::<Vec<f64>>(), spread.logits);
}

#[test]
fn biases_take_part() {
    let (mut data, tokens) = (Data::new(1), [3, 1, 4]);
    let plain = forward_f64(&Loaded::open("tied"), &tokens, None).unwrap();
    let mut model = Loaded::open("tied");
    model.shape.qkv_bias = true;
    let missing = forward_f64(&model, &tokens, None).unwrap_err().to_string();
    assert!(missing.contains("attn_q_bias of layer 0") && missing.contains("no tensor"), "{missing}");
    let (q, kv) = (model.shape.heads * model.shape.head_dim, model.shape.kv_heads * model.shape.head_dim);
    for (name, n) in [(WeightName::AttnQBias, q), (WeightName::AttnKBias, kv), (WeightName::AttnVBias, kv)] {
        for layer in 0..model.shape.layers {
            model.tensors.insert(model.key(layer, name), vec![0.0; n]);
        }
    }
    assert_eq!(forward_f64(&model, &tokens, None).unwrap(), plain);
    for (name, n) in [(WeightName::AttnQBias, q), (WeightName::AttnKBias, kv), (WeightName::AttnVBias, kv)] {
        let key = model.key(1, name);
        let zeros = model.tensors.insert(key.clone(), data.reals(n, 1.0)).unwrap();
        assert_ne!(forward_f64(&model, &tokens, None).unwrap().logits, plain.logits, "{key}");
        model.tensors.insert(key, zeros);
    }
}

#[test]
fn unusable_models_and_tokens_are_named() {
    let mut model = Loaded::open("tied");
    let message = |m: &Loaded, tokens: &[u32]| forward_f64(m, tokens, None).unwrap_err().to_string();
    assert!(message(&model, &[]).contains("no tokens"));
    assert!(message(&model, &[128]).contains("token 128 is outside the vocabulary of 128"));
    assert!(ensemble(&model, &[1], 0, (-24f64).exp2(), 1).is_err());
    assert!(ensemble(&model, &[1], 1, f64::NAN, 1).is_err());
    model.shape.ffn += 1;
    assert!(message(&model, &[1]).contains("ffn_gate of layer 0"), "{}", message(&model, &[1]));
    model.shape.ffn = 0;
    assert!(message(&model, &[1]).contains("a size of the model is zero"));
}
