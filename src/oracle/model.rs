//! What the whole-model oracle needs to know of a model.

use std::borrow::Cow;

/// Sizes and constants of a Llama or Qwen2 model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelShape {
    /// Transformer layers.
    pub layers: usize,
    /// Length of a hidden state.
    pub hidden: usize,
    /// Query heads; a multiple of `kv_heads`.
    pub heads: usize,
    /// KV heads.
    pub kv_heads: usize,
    /// Elements of a head, even.
    pub head_dim: usize,
    /// Length of the feed-forward block's inner vector.
    pub ffn: usize,
    /// Number of tokens.
    pub vocab: usize,
    /// RoPE base.
    pub theta: f64,
    /// Added to the mean square in every norm.
    pub eps: f64,
    /// True if the q, k and v projections have a bias (Qwen2).
    pub qkv_bias: bool,
}

/// A weight by its canonical name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WeightName {
    /// Norm in front of attention, `[hidden]`.
    AttnNorm,
    /// Query projection, `[heads*head_dim, hidden]`, rotate-half order.
    AttnQ,
    /// Key projection, `[kv_heads*head_dim, hidden]`, rotate-half order.
    AttnK,
    /// Value projection, `[kv_heads*head_dim, hidden]`.
    AttnV,
    /// Bias of the query projection.
    AttnQBias,
    /// Bias of the key projection.
    AttnKBias,
    /// Bias of the value projection.
    AttnVBias,
    /// Output projection of attention, `[hidden, heads*head_dim]`.
    AttnOutput,
    /// Norm in front of the feed-forward block, `[hidden]`.
    FfnNorm,
    /// Gate projection, `[ffn, hidden]`.
    FfnGate,
    /// Up projection, `[ffn, hidden]`.
    FfnUp,
    /// Down projection, `[hidden, ffn]`.
    FfnDown,
    /// Norm in front of the head, `[hidden]`; not in a layer.
    OutputNorm,
    /// The head, `[vocab, hidden]`, also where it is tied to the embedding; not in a layer.
    Head,
}

impl WeightName {
    /// Canonical name, as in GGUF files.
    pub fn as_str(self) -> &'static str {
        match self {
            WeightName::AttnNorm => "attn_norm",
            WeightName::AttnQ => "attn_q",
            WeightName::AttnK => "attn_k",
            WeightName::AttnV => "attn_v",
            WeightName::AttnQBias => "attn_q_bias",
            WeightName::AttnKBias => "attn_k_bias",
            WeightName::AttnVBias => "attn_v_bias",
            WeightName::AttnOutput => "attn_output",
            WeightName::FfnNorm => "ffn_norm",
            WeightName::FfnGate => "ffn_gate",
            WeightName::FfnUp => "ffn_up",
            WeightName::FfnDown => "ffn_down",
            WeightName::OutputNorm => "output_norm",
            WeightName::Head => "output",
        }
    }
}

/// Any error of a source of weights.
pub type WeightError = Box<dyn std::error::Error + Send + Sync>;

/// A source of weights, dequantised to f32 one at a time, so that a large model is never held whole.
pub trait ModelWeights {
    /// Sizes and constants.
    fn shape(&self) -> ModelShape;
    /// The embedding of a token, `[hidden]`.
    ///
    /// # Errors
    /// Whatever the source says, such as a token outside the vocabulary.
    fn embedding(&self, token: u32) -> Result<Cow<'_, [f32]>, WeightError>;
    /// A weight, row-major. `layer` is 0 for those that are not in a layer.
    ///
    /// # Errors
    /// Whatever the source says, such as a tensor that cannot be read.
    fn weight(&self, layer: usize, name: WeightName) -> Result<Cow<'_, [f32]>, WeightError>;
}
