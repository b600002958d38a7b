//! A model's weights on a backend.

use modelbench_contract::{Backend, BackendError, DType};

use super::forward::ForwardError;
use super::names::{LayerWeight, Weight};
use super::weights::Model;

/// The weights of one layer; biases are all present or all absent.
pub(super) struct Layer<T> {
    pub(super) attn_norm: T,
    pub(super) q: T,
    pub(super) k: T,
    pub(super) v: T,
    pub(super) bias: Option<[T; 3]>,
    pub(super) output: T,
    pub(super) ffn_norm: T,
    pub(super) gate: T,
    pub(super) up: T,
    pub(super) down: T,
}

/// All weights of a model as f32 on a backend, except the token embedding, whose rows the host looks up. A tied
/// output matrix is uploaded. Dropping it without [`Resident::free`] leaves the tensors with the backend.
pub struct Resident<B: Backend> {
    pub(super) layers: Vec<Layer<B::Tensor>>,
    pub(super) norm: B::Tensor,
    pub(super) output: B::Tensor,
}

impl<B: Backend> Resident<B> {
    /// Uploads one tensor at a time; the host copy of each is dropped before the next is read.
    ///
    /// # Errors
    /// The backend's error unchanged, or the model's; what was uploaded before is freed.
    pub fn upload(backend: &mut B, model: &Model) -> Result<Self, ForwardError> {
        let mut done = Vec::new();
        match Self::upload_all(backend, model, &mut done) {
            Ok(resident) => Ok(resident),
            Err(error) => {
                // The first error is the one to report; freeing is only tidying up behind it.
                for tensor in done {
                    let _ = backend.free(tensor);
                }
                Err(error)
            }
        }
    }

    fn upload_all(backend: &mut B, model: &Model, done: &mut Vec<B::Tensor>) -> Result<Self, ForwardError> {
        let config = model.config();
        for layer in 0..config.layers {
            for weight in LayerWeight::all(config.qkv_bias) {
                let tensor = model.tensor(Weight::Layer(layer, weight))?;
                done.push(backend.upload(&tensor, DType::F32)?);
            }
        }
        for weight in [Weight::OutputNorm, Weight::Output] {
            let tensor = model.tensor(weight)?;
            done.push(backend.upload(&tensor, DType::F32)?);
        }
        let mut uploaded = std::mem::take(done).into_iter();
        let mut next = || uploaded.next().ok_or_else(|| BackendError::internal("a weight was not uploaded"));
        let mut layers = Vec::new();
        for _ in 0..config.layers {
            layers.push(Layer {
                attn_norm: next()?,
                q: next()?,
                k: next()?,
                v: next()?,
                bias: if config.qkv_bias { Some([next()?, next()?, next()?]) } else { None },
                output: next()?,
                ffn_norm: next()?,
                gate: next()?,
                up: next()?,
                down: next()?,
            });
        }
        Ok(Resident { layers, norm: next()?, output: next()? })
    }

    /// Releases every tensor.
    ///
    /// # Errors
    /// The first error of the backend, after trying all.
    pub fn free(self, backend: &mut B) -> Result<(), BackendError> {
        let layers = self.layers.into_iter().flat_map(|l| {
            let bias = l.bias.into_iter().flatten();
            [l.attn_norm, l.q, l.k, l.v, l.output, l.ffn_norm, l.gate, l.up, l.down].into_iter().chain(bias)
        });
        let mut first = Ok(());
        for tensor in layers.chain([self.norm, self.output]) {
            first = first.and(backend.free(tensor));
        }
        first
    }
}
