//! The models that a run judges: the one under test, and the two random ones that come with the kit.

use std::collections::BTreeMap;
use std::path::Path;

use modelbench_evidence::record::ModelRef;

use crate::inputs::Stream;
use crate::model::{GoldenError, Model, ModelError, ModelGolden, bundled, bundled_golden};

/// Tokens that are made up for a model without a stored golden.
const MADE_UP: usize = 24;

/// The default model under test.
pub const DEFAULT_MODEL: &str = "kjv";

/// Why a model cannot be judged.
#[derive(Debug, thiserror::Error)]
pub enum SubjectError {
    /// It cannot be opened.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Its stored golden cannot be read, which is a defect of the kit.
    #[error(transparent)]
    Golden(#[from] GoldenError),
    /// There is no bundled model of this name.
    #[error("no model {0:?} comes with the kit")]
    NotBundled(String),
}

/// A model with the tokens that it is judged on.
#[derive(Debug)]
pub struct Subject {
    /// The model.
    pub model: Model,
    /// What an independent producer says it gives, if there is a stored golden for these very weights.
    pub golden: Option<ModelGolden>,
}

impl Subject {
    /// The model at a path, or the default one.
    ///
    /// # Errors
    /// [`SubjectError`] naming the file, the tensor, the offset and what was expected.
    pub fn open(path: Option<&Path>) -> Result<Subject, SubjectError> {
        match path {
            None => Subject::bundled(DEFAULT_MODEL),
            Some(path) => Subject::with_golden(Model::open(path)?),
        }
    }

    /// A bundled model.
    ///
    /// # Errors
    /// As [`Subject::open`]; for a bundled model that is a defect of the program.
    pub fn bundled(name: &str) -> Result<Subject, SubjectError> {
        let found = bundled(name).ok_or_else(|| SubjectError::NotBundled(name.to_owned()))?;
        Subject::with_golden(found?)
    }

    fn with_golden(model: Model) -> Result<Subject, SubjectError> {
        let golden = bundled_golden(model.digest()).transpose()?;
        Ok(Subject { model, golden })
    }

    /// The tokens of the golden, or random ones from the seed.
    pub fn tokens(&self, seed: u64) -> Vec<usize> {
        if let Some(golden) = &self.golden {
            return golden.input_ids.clone();
        }
        let stream = Stream::new(seed, self.model.digest(), "tokens");
        let config = self.model.config();
        let count = MADE_UP.min(config.max_positions);
        (0..count as u64).map(|i| stream.below(i, config.vocab as u64) as usize).collect()
    }

    /// How the record names the model.
    pub fn reference(&self) -> ModelRef {
        let config = self.model.config();
        let sizes = [
            ("layers", config.layers),
            ("hidden", config.hidden),
            ("heads", config.heads),
            ("kv_heads", config.kv_heads),
            ("head_dim", config.head_dim),
            ("ffn", config.ffn),
            ("vocab", config.vocab),
        ];
        ModelRef {
            name: self.model.name().to_owned(),
            sha256: self.model.digest().to_owned(),
            family: config.family.as_str().to_owned(),
            parameters: self.model.parameters(),
            shape: sizes.iter().map(|(name, n)| ((*name).to_owned(), *n as u64)).collect::<BTreeMap<_, _>>(),
            golden: if self.golden.is_some() { "stored" } else { "computed" }.to_owned(),
        }
    }
}
