//! An open model: its configuration and any of its weights as f32, on demand.

use std::collections::BTreeMap;
use std::sync::Arc;

use modelbench_contract::{BackendError, DType, HostTensor};

use super::config::{ConfigError, ModelConfig};
use super::gguf::GgufError;
use super::names::{LayerWeight, Weight};
use super::safetensors::SafeTensorsError;
use super::source::SourceError;
use super::stored::Stored;

/// A model that cannot be opened or asked as it was.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A file cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The configuration is broken or unsupported.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A safetensors file is broken or unsupported.
    #[error(transparent)]
    SafeTensors(#[from] SafeTensorsError),
    /// A GGUF file is broken or unsupported.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The path holds no model.
    #[error("{path}: expected {expected}, found {found}")]
    NotAModel {
        /// The path.
        path: String,
        /// What would be accepted.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// A tensor that the configuration calls for is not in the file, or one that it knows nothing of is.
    #[error("{file}: tensor {tensor:?}: expected {expected}, found {found}")]
    Tensor {
        /// The file.
        file: String,
        /// Its name in the file.
        tensor: String,
        /// What the configuration calls for.
        expected: String,
        /// What the file has.
        found: String,
    },
    /// A token outside the vocabulary.
    #[error("token {token}: expected less than {vocab}, the vocabulary of {model}")]
    Token {
        /// The token.
        token: usize,
        /// Tokens in the vocabulary.
        vocab: usize,
        /// The model.
        model: String,
    },
    /// A weight that this model does not have.
    #[error("{model} has no weight {weight}")]
    NoSuchWeight {
        /// The model.
        model: String,
        /// Canonical name.
        weight: String,
    },
    /// A tensor could not be made.
    #[error(transparent)]
    Host(BackendError),
}

/// One file of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFile {
    /// File name without its folder.
    pub name: String,
    /// SHA-256, lower-case hexadecimal.
    pub sha256: String,
}

/// An open, validated model. Weights stay in the file until they are asked for.
#[derive(Debug)]
pub struct Model {
    name: String,
    config: ModelConfig,
    tensors: BTreeMap<Weight, Stored>,
    files: Vec<ModelFile>,
    digest: String,
    parameters: u64,
    /// True when rows of q and k are stored for interleaved RoPE, as llama.cpp does for Llama.
    permuted: bool,
}

impl Model {
    /// Takes the tensors that `config` calls for out of `found`, which maps a file's own names; anything missing,
    /// of another shape or left over is refused. `ignored` tells names that may be left over.
    pub(super) fn assemble(
        parts: Parts,
        config: ModelConfig,
        mut found: BTreeMap<String, Stored>,
        name_of: impl Fn(Weight) -> String,
        ignored: impl Fn(&str) -> bool,
    ) -> Result<Self, ModelError> {
        let file = parts.file;
        let mut tensors = BTreeMap::new();
        let mut parameters = 0u64;
        for weight in Weight::all(&config) {
            let (name, shape) = (name_of(weight), weight.shape(&config));
            let expected = format!("{weight} of shape {shape:?}");
            let Some(stored) = found.remove(&name) else {
                return Err(ModelError::Tensor {
                    file,
                    tensor: name,
                    expected,
                    found: "no such tensor".into(),
                });
            };
            if stored.shape != shape {
                let found = format!("shape {:?}", stored.shape);
                let file = stored.source.name().to_owned();
                return Err(ModelError::Tensor { file, tensor: name, expected, found });
            }
            parameters += shape.iter().map(|&d| d as u64).product::<u64>();
            tensors.insert(weight, stored);
        }
        if let Some((name, stored)) = found.into_iter().find(|(name, _)| !ignored(name)) {
            return Err(ModelError::Tensor {
                file: stored.source.name().into(),
                tensor: name,
                expected: format!(
                    "only the tensors of a {} model with this configuration",
                    config.family.as_str()
                ),
                found: format!("this one, of shape {:?}", stored.shape),
            });
        }
        let Parts { name, files, digest, permuted, .. } = parts;
        Ok(Model { name, config, tensors, files, digest, parameters, permuted })
    }

    /// What people call it: the name of the folder or file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Shape and constants.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// SHA-256 of the file with the weights; of a sharded model, of the lines `<sha256>  <name>` of its shards in
    /// name order. Goldens are matched by it.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Every file that was read, the configuration included.
    pub fn files(&self) -> &[ModelFile] {
        &self.files
    }

    /// Number of parameters; a tied output counts once.
    pub fn parameters(&self) -> u64 {
        self.parameters
    }

    /// A weight as f32, `[out, in]` or `[n]`, q and k rows in rotate-half order. A tied output is the embedding.
    ///
    /// # Errors
    /// [`ModelError::NoSuchWeight`], [`ModelError::Source`] if the file cannot be read any more.
    pub fn tensor(&self, weight: Weight) -> Result<HostTensor, ModelError> {
        let weight =
            if weight == Weight::Output && self.config.tied { Weight::TokenEmbedding } else { weight };
        let stored = self.tensors.get(&weight).ok_or_else(|| ModelError::NoSuchWeight {
            model: self.name.clone(),
            weight: weight.to_string(),
        })?;
        let rows: usize = stored.shape.iter().rev().skip(1).product();
        let row_bytes = stored.row_len() * 4;
        let head = self.permuted_head(weight);
        // Built in its final place: a second copy of a large embedding would double the peak memory.
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, rows * row_bytes).collect();
        if let Some(out) = Arc::get_mut(&mut bytes) {
            stored.rows(0, rows, |row, values| {
                let row = head.map_or(row, |head| rotate_half_row(row, head));
                let out = &mut out[row * row_bytes..][..row_bytes];
                for (out, value) in out.chunks_exact_mut(4).zip(values) {
                    out.copy_from_slice(&value.to_le_bytes());
                }
            })?;
        }
        HostTensor::from_bytes(&stored.shape, DType::F32, bytes).map_err(ModelError::Host)
    }

    /// The embedding of a token, `[hidden]`; only its row is read.
    ///
    /// # Errors
    /// [`ModelError::Token`] if the token is not in the vocabulary, [`ModelError::Source`].
    pub fn embed(&self, token: usize) -> Result<Vec<f32>, ModelError> {
        let stored = self.tensors.get(&Weight::TokenEmbedding).filter(|_| token < self.config.vocab);
        let stored = stored.ok_or_else(|| ModelError::Token {
            token,
            vocab: self.config.vocab,
            model: self.name.clone(),
        })?;
        let mut out = Vec::new();
        stored.rows(token, 1, |_, values| out.extend_from_slice(values))?;
        Ok(out)
    }

    /// Head size of a weight whose rows are stored for interleaved RoPE.
    fn permuted_head(&self, weight: Weight) -> Option<usize> {
        let rotated = matches!(weight, Weight::Layer(_, LayerWeight::AttnQ | LayerWeight::AttnK));
        (self.permuted && rotated).then_some(self.config.head_dim)
    }
}

/// What the opener knows about a model apart from its tensors.
pub(super) struct Parts {
    pub(super) name: String,
    /// Named when a tensor is missing.
    pub(super) file: String,
    pub(super) files: Vec<ModelFile>,
    pub(super) digest: String,
    pub(super) permuted: bool,
}

/// Where a row stored for interleaved RoPE belongs: of each head, even rows are the first half, odd the second.
fn rotate_half_row(row: usize, head: usize) -> usize {
    let (base, inside) = (row / head * head, row % head);
    base + (inside % 2) * (head / 2) + inside / 2
}
