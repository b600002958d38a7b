//! Models: Hugging Face folders and GGUF files, the bundled checkpoints, and the forward pass over a backend.
//!
//! A [`Model`] is an open, validated file: it yields any weight as f32 on demand and never holds the whole
//! checkpoint in memory. [`Resident`] is the same model uploaded to a backend, [`Session`] runs it.

mod bundled;
mod config;
mod config_gguf;
mod config_hf;
mod dequant;
mod forward;
mod gguf;
mod golden;
mod names;
mod open;
mod resident;
mod safetensors;
mod scratch;
mod source;
mod stored;
mod unique_map;
mod weights;

#[cfg(test)]
mod tests;

pub use bundled::{BUNDLED, bundled, bundled_golden};
pub use config::{ConfigError, Family, ModelConfig};
pub use dequant::Encoding;
pub use forward::{Capture, ForwardError, ForwardOutput, Session};
pub use gguf::GgufError;
pub use golden::{GoldenError, Matrix, ModelGolden};
pub use names::{LayerWeight, Weight};
pub use resident::Resident;
pub use safetensors::SafeTensorsError;
pub use source::{Source, SourceError};
pub use weights::{Model, ModelError, ModelFile};
