//! Reads the configuration out of GGUF metadata.

use super::config::{ConfigError, Family, ModelConfig};
use super::gguf::{Gguf, Value};

/// Derives the configuration; the vocabulary and whether the output is tied follow from the tensors.
pub(super) fn parse(file: &str, gguf: &Gguf) -> Result<ModelConfig, ConfigError> {
    let keys = Keys { file, gguf };
    let family = match keys.value("general.architecture") {
        Some(Value::String(name)) => {
            Family::parse(name).ok_or_else(|| keys.wrong("general.architecture", "llama or qwen2", name))?
        }
        other => return Err(keys.wrong("general.architecture", "a string", shown(other))),
    };
    if keys.size_or("split.count", 1)? > 1 {
        return Err(keys.wrong("split.count", "one file; merge the parts first", "several"));
    }
    let arch = family.as_str();
    let key = |name: &str| format!("{arch}.{name}");
    for (name, neutral) in [("rope.scaling.factor", 1.0), ("rope.scale_linear", 1.0)] {
        let factor = keys.float_or(&key(name), neutral)?;
        if factor != neutral {
            return Err(keys.wrong(&key(name), "1 (no scaling)", factor));
        }
    }
    match keys.value(&key("rope.scaling.type")) {
        None => {}
        Some(Value::String(kind)) if kind == "none" => {}
        other => return Err(keys.wrong(&key("rope.scaling.type"), "none", shown(other))),
    }
    for name in ["expert_count", "attention.sliding_window"] {
        let n = keys.size_or(&key(name), 0)?;
        if n != 0 {
            return Err(keys.wrong(&key(name), "0 (not supported)", n));
        }
    }
    if let Some(Value::Bool(false)) = keys.value(&key("attention.causal")) {
        return Err(keys.wrong(&key("attention.causal"), "true", "false"));
    }
    let hidden = keys.size(&key("embedding_length"))?;
    let heads = keys.size(&key("attention.head_count"))?;
    let head_dim = match keys.value(&key("attention.key_length")) {
        Some(_) => keys.size(&key("attention.key_length"))?,
        None if heads > 0 && hidden.is_multiple_of(heads) => hidden / heads,
        None => {
            let expected = format!("a divisor of the embedding length {hidden}");
            return Err(keys.wrong(&key("attention.head_count"), &expected, heads));
        }
    };
    for name in ["rope.dimension_count", "attention.value_length"] {
        let dim = keys.size_or(&key(name), head_dim)?;
        if dim != head_dim {
            return Err(keys.wrong(&key(name), &format!("the head size {head_dim}"), dim));
        }
    }
    let embedding = gguf.tensors.get("token_embd.weight");
    let vocab = embedding.and_then(|t| t.shape.first().copied());
    let vocab = vocab.ok_or_else(|| keys.wrong("token_embd.weight", "this tensor", "none"))?;
    let stated = keys.size_or(&key("vocab_size"), vocab)?;
    if stated != vocab {
        let expected = format!("the {vocab} rows of token_embd.weight");
        return Err(keys.wrong(&key("vocab_size"), &expected, stated));
    }
    let config = ModelConfig {
        family,
        layers: keys.size(&key("block_count"))?,
        hidden,
        heads,
        kv_heads: keys.size_or(&key("attention.head_count_kv"), heads)?,
        head_dim,
        ffn: keys.size(&key("feed_forward_length"))?,
        vocab,
        theta: keys.float_or(&key("rope.freq_base"), 10_000.0)?,
        eps: keys.float(&key("attention.layer_norm_rms_epsilon"))? as f32,
        tied: !gguf.tensors.contains_key("output.weight"),
        qkv_bias: family == Family::Qwen2,
        max_positions: keys.size(&key("context_length"))?,
    };
    config.check(file, |field| match field {
        "layers" => key("block_count"),
        "hidden" => key("embedding_length"),
        "heads" => key("attention.head_count"),
        "kv_heads" => key("attention.head_count_kv"),
        "head_dim" => key("attention.key_length"),
        "ffn" => key("feed_forward_length"),
        "vocab" => "token_embd.weight".to_owned(),
        "theta" => key("rope.freq_base"),
        "eps" => key("attention.layer_norm_rms_epsilon"),
        _ => key("context_length"),
    })?;
    Ok(config)
}

struct Keys<'a> {
    file: &'a str,
    gguf: &'a Gguf,
}

impl<'a> Keys<'a> {
    fn value(&self, key: &str) -> Option<&'a Value> {
        self.gguf.values.get(key)
    }

    fn wrong(&self, key: &str, expected: &str, found: impl ToString) -> ConfigError {
        let found = found.to_string();
        ConfigError { file: self.file.into(), key: key.into(), expected: expected.into(), found }
    }

    fn size(&self, key: &str) -> Result<usize, ConfigError> {
        let value = self.value(key);
        let size = value.and_then(Value::as_unsigned).and_then(|n| usize::try_from(n).ok());
        size.ok_or_else(|| self.wrong(key, "a whole number", shown(value)))
    }

    fn size_or(&self, key: &str, default: usize) -> Result<usize, ConfigError> {
        if self.value(key).is_some() { self.size(key) } else { Ok(default) }
    }

    fn float(&self, key: &str) -> Result<f64, ConfigError> {
        match self.value(key) {
            Some(Value::Float(x)) => Ok(*x),
            other => Err(self.wrong(key, "a float", shown(other))),
        }
    }

    fn float_or(&self, key: &str, default: f64) -> Result<f64, ConfigError> {
        if self.value(key).is_some() { self.float(key) } else { Ok(default) }
    }
}

fn shown(value: Option<&Value>) -> String {
    value.map_or("nothing".to_owned(), Value::to_string)
}
