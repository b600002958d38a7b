//! The weights of a model by canonical name, with their shapes and what each file format calls them.

use std::fmt;

use super::config::ModelConfig;

/// A weight of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LayerWeight {
    /// Norm in front of attention, `[hidden]`.
    AttnNorm,
    /// Query projection, `[heads*head_dim, hidden]`, rows in rotate-half order.
    AttnQ,
    /// Key projection, `[kv_heads*head_dim, hidden]`, rows in rotate-half order.
    AttnK,
    /// Value projection, `[kv_heads*head_dim, hidden]`.
    AttnV,
    /// Query bias, `[heads*head_dim]`.
    AttnQBias,
    /// Key bias, `[kv_heads*head_dim]`.
    AttnKBias,
    /// Value bias, `[kv_heads*head_dim]`.
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
}

impl LayerWeight {
    /// The weights of a layer in the order of the computation, with or without biases.
    pub fn all(biased: bool) -> impl Iterator<Item = LayerWeight> {
        use LayerWeight::*;
        [
            AttnNorm, AttnQ, AttnK, AttnV, AttnQBias, AttnKBias, AttnVBias, AttnOutput, FfnNorm, FfnGate,
            FfnUp, FfnDown,
        ]
        .into_iter()
        .filter(move |w| biased || !matches!(w, AttnQBias | AttnKBias | AttnVBias))
    }

    /// Canonical name and the name inside a layer of a Hugging Face file.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            LayerWeight::AttnNorm => ("attn_norm.weight", "input_layernorm.weight"),
            LayerWeight::AttnQ => ("attn_q.weight", "self_attn.q_proj.weight"),
            LayerWeight::AttnK => ("attn_k.weight", "self_attn.k_proj.weight"),
            LayerWeight::AttnV => ("attn_v.weight", "self_attn.v_proj.weight"),
            LayerWeight::AttnQBias => ("attn_q.bias", "self_attn.q_proj.bias"),
            LayerWeight::AttnKBias => ("attn_k.bias", "self_attn.k_proj.bias"),
            LayerWeight::AttnVBias => ("attn_v.bias", "self_attn.v_proj.bias"),
            LayerWeight::AttnOutput => ("attn_output.weight", "self_attn.o_proj.weight"),
            LayerWeight::FfnNorm => ("ffn_norm.weight", "post_attention_layernorm.weight"),
            LayerWeight::FfnGate => ("ffn_gate.weight", "mlp.gate_proj.weight"),
            LayerWeight::FfnUp => ("ffn_up.weight", "mlp.up_proj.weight"),
            LayerWeight::FfnDown => ("ffn_down.weight", "mlp.down_proj.weight"),
        }
    }
}

/// A weight of a model. Its `Display` form is the canonical name, which is also the name in GGUF.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Weight {
    /// Token embedding, `[vocab, hidden]`.
    TokenEmbedding,
    /// A weight of the layer with this index.
    Layer(usize, LayerWeight),
    /// The last norm, `[hidden]`.
    OutputNorm,
    /// The output matrix, `[vocab, hidden]`; the token embedding when tied.
    Output,
}

impl Weight {
    /// Every weight of a model that is stored: a tied output is not.
    pub fn all(config: &ModelConfig) -> impl Iterator<Item = Weight> {
        let (layers, biased) = (config.layers, config.qkv_bias);
        let layers =
            (0..layers).flat_map(move |n| LayerWeight::all(biased).map(move |w| Weight::Layer(n, w)));
        let output = (!config.tied).then_some(Weight::Output);
        std::iter::once(Weight::TokenEmbedding).chain(layers).chain([Weight::OutputNorm]).chain(output)
    }

    /// Shape in the model, outermost dimension first; matrices are `[out, in]`.
    pub fn shape(self, config: &ModelConfig) -> Vec<usize> {
        let (hidden, q, kv, ffn) = (config.hidden, config.q_dim(), config.kv_dim(), config.ffn);
        match self {
            Weight::TokenEmbedding | Weight::Output => vec![config.vocab, hidden],
            Weight::OutputNorm => vec![hidden],
            Weight::Layer(_, weight) => match weight {
                LayerWeight::AttnNorm | LayerWeight::FfnNorm => vec![hidden],
                LayerWeight::AttnQ => vec![q, hidden],
                LayerWeight::AttnK | LayerWeight::AttnV => vec![kv, hidden],
                LayerWeight::AttnQBias => vec![q],
                LayerWeight::AttnKBias | LayerWeight::AttnVBias => vec![kv],
                LayerWeight::AttnOutput => vec![hidden, q],
                LayerWeight::FfnGate | LayerWeight::FfnUp => vec![ffn, hidden],
                LayerWeight::FfnDown => vec![hidden, ffn],
            },
        }
    }

    /// The name in a Hugging Face file.
    pub(super) fn hf_name(self) -> String {
        match self {
            Weight::TokenEmbedding => "model.embed_tokens.weight".into(),
            Weight::OutputNorm => "model.norm.weight".into(),
            Weight::Output => "lm_head.weight".into(),
            Weight::Layer(n, weight) => format!("model.layers.{n}.{}", weight.names().1),
        }
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Weight::TokenEmbedding => f.write_str("token_embd.weight"),
            Weight::OutputNorm => f.write_str("output_norm.weight"),
            Weight::Output => f.write_str("output.weight"),
            Weight::Layer(n, weight) => write!(f, "blk.{n}.{}", weight.names().0),
        }
    }
}
