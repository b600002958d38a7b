//! A model as the oracle wants to see it.

use std::borrow::Cow;

use modelbench_contract::HostTensor;

use crate::model::{LayerWeight, Model, Weight};
use crate::oracle::{ModelShape, ModelWeights, WeightError, WeightName};

/// The oracle's view of a model's weights.
#[derive(Debug, Clone, Copy)]
pub struct OracleWeights<'m>(pub &'m Model);

fn values(tensor: &HostTensor) -> Vec<f32> {
    tensor.bytes().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

impl ModelWeights for OracleWeights<'_> {
    fn shape(&self) -> ModelShape {
        let c = self.0.config();
        ModelShape {
            layers: c.layers,
            hidden: c.hidden,
            heads: c.heads,
            kv_heads: c.kv_heads,
            head_dim: c.head_dim,
            ffn: c.ffn,
            vocab: c.vocab,
            theta: c.theta,
            eps: f64::from(c.eps),
            qkv_bias: c.qkv_bias,
        }
    }

    fn embedding(&self, token: u32) -> Result<Cow<'_, [f32]>, WeightError> {
        Ok(Cow::Owned(self.0.embed(token as usize)?))
    }

    fn weight(&self, layer: usize, name: WeightName) -> Result<Cow<'_, [f32]>, WeightError> {
        let weight = match name {
            WeightName::AttnNorm => Weight::Layer(layer, LayerWeight::AttnNorm),
            WeightName::AttnQ => Weight::Layer(layer, LayerWeight::AttnQ),
            WeightName::AttnK => Weight::Layer(layer, LayerWeight::AttnK),
            WeightName::AttnV => Weight::Layer(layer, LayerWeight::AttnV),
            WeightName::AttnQBias => Weight::Layer(layer, LayerWeight::AttnQBias),
            WeightName::AttnKBias => Weight::Layer(layer, LayerWeight::AttnKBias),
            WeightName::AttnVBias => Weight::Layer(layer, LayerWeight::AttnVBias),
            WeightName::AttnOutput => Weight::Layer(layer, LayerWeight::AttnOutput),
            WeightName::FfnNorm => Weight::Layer(layer, LayerWeight::FfnNorm),
            WeightName::FfnGate => Weight::Layer(layer, LayerWeight::FfnGate),
            WeightName::FfnUp => Weight::Layer(layer, LayerWeight::FfnUp),
            WeightName::FfnDown => Weight::Layer(layer, LayerWeight::FfnDown),
            WeightName::OutputNorm => Weight::OutputNorm,
            WeightName::Head => Weight::Output,
        };
        Ok(Cow::Owned(values(&self.0.tensor(weight)?)))
    }
}
