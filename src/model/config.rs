//! What a model's configuration comes down to, and which sizes are believable.

/// Which architecture; they differ in the biases of q, k and v and in how GGUF stores q and k.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// Llama and everything stored as such.
    Llama,
    /// Qwen2: a bias on q, k and v.
    Qwen2,
}

impl Family {
    /// The name that `model_type` and `general.architecture` use.
    pub fn as_str(self) -> &'static str {
        match self {
            Family::Llama => "llama",
            Family::Qwen2 => "qwen2",
        }
    }

    pub(super) fn parse(name: &str) -> Option<Self> {
        [Family::Llama, Family::Qwen2].into_iter().find(|family| family.as_str() == name)
    }
}

/// A configuration that is broken or asks for something unsupported.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {key}: expected {expected}, found {found}")]
pub struct ConfigError {
    /// The file.
    pub file: String,
    /// The key in it.
    pub key: String,
    /// What was expected.
    pub expected: String,
    /// What was found.
    pub found: String,
}

/// Shape and constants of a model. Every size has been checked to be plausible and consistent.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// Architecture.
    pub family: Family,
    /// Transformer layers.
    pub layers: usize,
    /// Elements of a hidden state.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Elements of a head, even.
    pub head_dim: usize,
    /// Elements of the feed-forward block.
    pub ffn: usize,
    /// Tokens of the vocabulary.
    pub vocab: usize,
    /// RoPE base.
    pub theta: f64,
    /// Added to the mean square in the norms.
    pub eps: f32,
    /// True when the output matrix is the token embedding.
    pub tied: bool,
    /// True when q, k and v have a bias.
    pub qkv_bias: bool,
    /// Largest context the model was made for, in tokens.
    pub max_positions: usize,
}

impl ModelConfig {
    /// Elements of a query row: `heads * head_dim`.
    pub fn q_dim(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Elements of a key or value row: `kv_heads * head_dim`.
    pub fn kv_dim(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Query heads for each KV head.
    pub fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Refuses sizes that no model has, so that later products cannot overflow. `key` maps a field to its name in
    /// the file.
    pub(super) fn check(&self, file: &str, key: impl Fn(&str) -> String) -> Result<(), ConfigError> {
        let wrong = |field: &str, expected: String, found: String| {
            Err(ConfigError { file: file.into(), key: key(field), expected, found })
        };
        let sizes = [
            ("layers", self.layers, 1 << 12),
            ("hidden", self.hidden, 1 << 20),
            ("heads", self.heads, 1 << 14),
            ("kv_heads", self.kv_heads, 1 << 14),
            ("head_dim", self.head_dim, 1 << 14),
            ("ffn", self.ffn, 1 << 22),
            ("vocab", self.vocab, 1 << 24),
            ("max_positions", self.max_positions, 1 << 30),
        ];
        for (field, size, limit) in sizes {
            if size == 0 || size > limit {
                return wrong(field, format!("1 to {limit}"), size.to_string());
            }
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            let expected = format!("a divisor of the {} query heads", self.heads);
            return wrong("kv_heads", expected, self.kv_heads.to_string());
        }
        if !self.head_dim.is_multiple_of(2) {
            return wrong("head_dim", "an even number".into(), self.head_dim.to_string());
        }
        if !(self.theta.is_finite() && self.theta >= 1.0 && self.theta <= f64::from(f32::MAX)) {
            return wrong("theta", "a finite number of at least 1".into(), self.theta.to_string());
        }
        if !(self.eps > 0.0 && self.eps < 1.0) {
            return wrong("eps", "a number between 0 and 1".into(), self.eps.to_string());
        }
        Ok(())
    }
}
