//! Whole models in the slow evaluator, from the files themselves and without the kit's loader, against their goldens.
//! (`tests/models.rs` and the tests of the oracle compare cpu-ref and the oracle with the same goldens.)

use std::path::Path;

use safetensors::SafeTensors;

use crate::file::{self, Fields};
use crate::limits::{self, Limit};
use crate::slow::{self, Heads, wide};

const MODELS: [&str; 3] = ["kjv", "tied", "untied"];

struct Llama<'a> {
    config: serde_json::Value,
    file: SafeTensors<'a>,
}

impl Llama<'_> {
    fn size(&self, key: &str) -> usize {
        self.config[key].as_u64().unwrap() as usize
    }

    fn real(&self, key: &str) -> f64 {
        self.config[key].as_f64().unwrap()
    }

    fn weight(&self, name: &str) -> Vec<f64> {
        wide(&file::f32s(self.file.tensor(name).unwrap_or_else(|e| panic!("{name}: {e}")).data()))
    }

    /// The hidden states in front of the first layer and behind each, then the logits, each `[tokens, n]`.
    fn forward(&self, tokens: &[usize]) -> Vec<Vec<f64>> {
        let hidden = self.size("hidden_size");
        let (all, kv) = (self.size("num_attention_heads"), self.size("num_key_value_heads"));
        let heads = Heads { kv, group: all / kv, dim: hidden / all };
        let (eps, theta) = (self.real("rms_norm_eps"), self.real("rope_theta"));
        let embedding = self.weight("model.embed_tokens.weight");
        let mut x: Vec<f64> =
            tokens.iter().flat_map(|t| embedding[t * hidden..][..hidden].to_vec()).collect();
        let mut states = vec![x.clone()];
        for layer in 0..self.size("num_hidden_layers") {
            let w = |name: &str| self.weight(&format!("model.layers.{layer}.{name}.weight"));
            let h = slow::rms_norm(&x, &w("input_layernorm"), eps);
            let [q, k, v] =
                ["q", "k", "v"].map(|n| slow::matmul(&w(&format!("self_attn.{n}_proj")), &h, hidden));
            let q = slow::rope(&q, 0, all, heads.dim, theta);
            let k = slow::rope(&k, 0, kv, heads.dim, theta);
            let mixed = slow::attention(&q, &k, &v, heads, true, 1.0 / (heads.dim as f64).sqrt());
            x = slow::add(&x, &slow::matmul(&w("self_attn.o_proj"), &mixed, hidden));
            let h = slow::rms_norm(&x, &w("post_attention_layernorm"), eps);
            let [gate, up] = ["gate", "up"].map(|n| slow::matmul(&w(&format!("mlp.{n}_proj")), &h, hidden));
            let gated = slow::swiglu(&gate, &up);
            x = slow::add(&x, &slow::matmul(&w("mlp.down_proj"), &gated, self.size("intermediate_size")));
            states.push(x.clone());
        }
        let tied = self.config["tie_word_embeddings"].as_bool().unwrap();
        let head = if tied { embedding } else { self.weight("lm_head.weight") };
        states.push(slow::matmul(&head, &slow::rms_norm(&x, &self.weight("model.norm.weight"), eps), hidden));
        states
    }
}

/// The largest difference as a share of the limit, or where it is exceeded, in words.
fn compare(what: &str, got: &[f64], want: &[f64], limit: &Limit) -> Result<f64, String> {
    if got.len() != want.len() {
        return Err(format!("defect of the kit: {what} has {} values, the golden {}", got.len(), want.len()));
    }
    let size = want.iter().fold(0.0f64, |size, v| size.max(v.abs()));
    let allowed = limit.relative * size + limit.absolute;
    let mut worst = 0.0f64;
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let error = (got - want).abs();
        if error.is_nan() || error > allowed {
            return Err(format!(
                "defect of the kit: the slow evaluator answers {got:e} for {what}[{i}], the golden says {want:e}, {allowed:e} is allowed"
            ));
        }
        worst = worst.max(error / allowed);
    }
    Ok(worst)
}

#[test]
fn the_slow_evaluator_meets_the_goldens_of_the_bundled_models() {
    let limit = &limits::read()["whole_model"];
    for name in MODELS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/models").join(name);
        let config = serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap();
        let weights = std::fs::read(folder.join("model.safetensors")).unwrap();
        let model = Llama { config, file: SafeTensors::deserialize(&weights).unwrap() };
        let bytes = file::read(&format!("models/{name}.safetensors"));
        let golden = SafeTensors::deserialize(&bytes).unwrap();
        let ids = golden.tensor("input_ids").unwrap().data().as_chunks().0.iter();
        let tokens: Vec<usize> = ids.map(|b| i32::from_le_bytes(*b) as usize).collect();
        let states = model.forward(&tokens);
        let (logits, hidden) = states.split_last().unwrap();
        assert_eq!(golden.names().len(), states.len() + 1, "{name}: tensors that were not compared");
        let mut worst = 0.0f64;
        for (layer, state) in hidden.iter().enumerate() {
            let want = Fields { file: &golden, prefix: "hidden_f64" }.f64s(&layer.to_string());
            worst = worst.max(compare(&format!("{name} hidden {layer}"), state, &want, limit).unwrap());
        }
        let want: Vec<f64> = file::f64s(golden.tensor("logits_f64").unwrap().data());
        worst = worst.max(compare(&format!("{name} logits"), logits, &want, limit).unwrap());
        println!("{name}: {worst:.3} of the limit");
        let mut other = want.clone();
        other[7] += 1e-9;
        assert!(compare("planted", logits, &other, limit).unwrap_err().contains("planted[7]"));
    }
}
