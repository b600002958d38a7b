//! Reads a Hugging Face `config.json`.

use serde::Deserialize;
use serde_json::Value;

use super::config::{ConfigError, Family, ModelConfig};

/// The keys that decide what is computed; everything else in the file is about training or generation.
#[derive(Deserialize)]
struct Raw {
    model_type: String,
    num_hidden_layers: usize,
    hidden_size: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    intermediate_size: usize,
    vocab_size: usize,
    rms_norm_eps: f64,
    max_position_embeddings: usize,
    rope_theta: Option<f64>,
    rope_parameters: Option<Rope>,
    rope_scaling: Option<Rope>,
    tie_word_embeddings: Option<bool>,
    hidden_act: Option<String>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    use_sliding_window: Option<bool>,
    sliding_window: Option<u64>,
    layer_types: Option<Vec<String>>,
    partial_rotary_factor: Option<f64>,
    quantization_config: Option<Value>,
}

#[derive(Deserialize)]
struct Rope {
    rope_theta: Option<f64>,
    rope_type: Option<String>,
    #[serde(rename = "type")]
    legacy_type: Option<String>,
    partial_rotary_factor: Option<f64>,
}

impl Rope {
    fn kind(&self) -> &str {
        self.rope_type.as_deref().or(self.legacy_type.as_deref()).unwrap_or("default")
    }
}

/// Parses `json`; `file` is its name in errors.
pub(super) fn parse(file: &str, json: &[u8]) -> Result<ModelConfig, ConfigError> {
    let wrong = |key: &str, expected: &str, found: String| ConfigError {
        file: file.into(),
        key: key.into(),
        expected: expected.into(),
        found,
    };
    let raw: Raw = serde_json::from_slice(json).map_err(|e| {
        wrong("config", "a JSON object with the sizes of a Llama or Qwen2 model", e.to_string())
    })?;
    let family = Family::parse(&raw.model_type)
        .ok_or_else(|| wrong("model_type", "llama or qwen2", format!("{:?}", raw.model_type)))?;
    for (key, rope) in [("rope_scaling", &raw.rope_scaling), ("rope_parameters", &raw.rope_parameters)] {
        let kind = rope.as_ref().map_or("default", Rope::kind);
        if kind != "default" {
            return Err(wrong(key, "none or the type \"default\" (no scaling)", format!("{kind:?}")));
        }
    }
    let nested = raw.rope_parameters.as_ref();
    for factor in
        [raw.partial_rotary_factor, nested.and_then(|r| r.partial_rotary_factor)].into_iter().flatten()
    {
        if factor != 1.0 {
            return Err(wrong("partial_rotary_factor", "1 (all of a head rotates)", factor.to_string()));
        }
    }
    let act = raw.hidden_act.as_deref().unwrap_or("silu");
    if act != "silu" {
        return Err(wrong("hidden_act", "\"silu\"", format!("{act:?}")));
    }
    // Qwen2 always has the bias on q, k and v; Llama's `attention_bias` puts one on the output as well.
    let biased = family == Family::Qwen2;
    if raw.attention_bias.is_some_and(|bias| bias != biased) {
        return Err(wrong(
            "attention_bias",
            &format!("{biased} for {}", family.as_str()),
            (!biased).to_string(),
        ));
    }
    if raw.mlp_bias == Some(true) {
        return Err(wrong("mlp_bias", "false", "true".into()));
    }
    // Qwen2 states a window that is off unless the switch is on; elsewhere a stated window is meant.
    let windowed = raw.use_sliding_window.unwrap_or(family != Family::Qwen2);
    if let Some(window) = raw.sliding_window.filter(|_| windowed) {
        return Err(wrong("sliding_window", "no active sliding window", window.to_string()));
    }
    if let Some(kind) = raw.layer_types.iter().flatten().find(|kind| *kind != "full_attention") {
        return Err(wrong("layer_types", "\"full_attention\" only", format!("{kind:?}")));
    }
    if raw.quantization_config.is_some() {
        return Err(wrong(
            "quantization_config",
            "none; quantised models are read from GGUF",
            "a value".into(),
        ));
    }
    let heads = raw.num_attention_heads;
    let head_dim = match raw.head_dim {
        Some(dim) => dim,
        None if heads > 0 && raw.hidden_size.is_multiple_of(heads) => raw.hidden_size / heads,
        None => {
            let expected = format!("a divisor of hidden_size {}", raw.hidden_size);
            return Err(wrong("num_attention_heads", &expected, heads.to_string()));
        }
    };
    let config = ModelConfig {
        family,
        layers: raw.num_hidden_layers,
        hidden: raw.hidden_size,
        heads,
        kv_heads: raw.num_key_value_heads.unwrap_or(heads),
        head_dim,
        ffn: raw.intermediate_size,
        vocab: raw.vocab_size,
        theta: nested.and_then(|r| r.rope_theta).or(raw.rope_theta).unwrap_or(10_000.0),
        eps: raw.rms_norm_eps as f32,
        tied: raw.tie_word_embeddings.unwrap_or(false),
        qkv_bias: biased,
        max_positions: raw.max_position_embeddings,
    };
    config.check(file, |field| key_of(field).to_owned())?;
    Ok(config)
}

fn key_of(field: &str) -> &str {
    match field {
        "layers" => "num_hidden_layers",
        "hidden" => "hidden_size",
        "heads" => "num_attention_heads",
        "kv_heads" => "num_key_value_heads",
        "ffn" => "intermediate_size",
        "vocab" => "vocab_size",
        "max_positions" => "max_position_embeddings",
        "theta" => "rope_theta",
        "eps" => "rms_norm_eps",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn base() -> Value {
        json!({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
            "intermediate_size": 160, "vocab_size": 128, "rms_norm_eps": 1e-5, "max_position_embeddings": 128})
    }

    fn with(changes: Value) -> Result<ModelConfig, ConfigError> {
        let mut config = base();
        for (key, value) in changes.as_object().unwrap() {
            config[key] = value.clone();
        }
        parse("config.json", config.to_string().as_bytes())
    }

    #[test]
    fn reads_defaults_and_both_places_of_theta() {
        let config = with(json!({})).unwrap();
        assert_eq!((config.kv_heads, config.head_dim, config.theta, config.tied), (4, 16, 10_000.0, false));
        assert_eq!(config.eps, 1e-5f32);
        assert_eq!(with(json!({"rope_theta": 5e5})).unwrap().theta, 5e5);
        let nested =
            json!({"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}, "rope_scaling": null});
        assert_eq!(with(nested).unwrap().theta, 1e6);
        let qwen = json!({"model_type": "qwen2", "use_sliding_window": false, "sliding_window": 4096});
        assert!(with(qwen).unwrap().qkv_bias);
        assert_eq!(with(json!({"head_dim": 32})).unwrap().q_dim(), 128);
    }

    #[test]
    fn refuses_what_would_be_computed_wrongly() {
        let cases = [
            (json!({"model_type": "gemma"}), "model_type: expected llama or qwen2, found \"gemma\""),
            (json!({"rope_scaling": {"rope_type": "llama3"}}), "rope_scaling: expected none"),
            (json!({"rope_scaling": {"type": "linear"}}), "found \"linear\""),
            (json!({"rope_parameters": {"rope_type": "yarn"}}), "rope_parameters"),
            (json!({"partial_rotary_factor": 0.5}), "partial_rotary_factor"),
            (json!({"hidden_act": "gelu"}), "hidden_act: expected \"silu\", found \"gelu\""),
            (json!({"attention_bias": true}), "attention_bias: expected false for llama"),
            (json!({"mlp_bias": true}), "mlp_bias"),
            (json!({"sliding_window": 4096}), "sliding_window"),
            (
                json!({"model_type": "qwen2", "use_sliding_window": true, "sliding_window": 4096}),
                "sliding_window: expected no active sliding window, found 4096",
            ),
            (json!({"layer_types": ["full_attention", "sliding_attention"]}), "layer_types"),
            (json!({"quantization_config": {"bits": 4}}), "quantization_config"),
            (
                json!({"num_key_value_heads": 3}),
                "num_key_value_heads: expected a divisor of the 4 query heads",
            ),
            (json!({"num_attention_heads": 0}), "num_attention_heads"),
            (json!({"num_attention_heads": 5}), "a divisor of hidden_size 64"),
            (json!({"head_dim": 15}), "head_dim: expected an even number"),
            (json!({"num_hidden_layers": 0}), "num_hidden_layers: expected 1 to 4096, found 0"),
            (json!({"vocab_size": 1u64 << 40}), "vocab_size"),
            (json!({"vocab_size": -1}), "config: expected a JSON object"),
            (json!({"rope_theta": 0.0}), "rope_theta"),
            (json!({"rms_norm_eps": 0.0}), "rms_norm_eps"),
            (json!({"hidden_size": null}), "config: expected a JSON object"),
        ];
        for (changes, message) in cases {
            let error = with(changes.clone()).expect_err(&changes.to_string()).to_string();
            assert!(error.starts_with("config.json: ") && error.contains(message), "{changes}: {error}");
        }
        assert!(parse("c", b"{").unwrap_err().to_string().contains("EOF"));
    }
}
