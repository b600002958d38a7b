//! Finding out what a path holds and opening it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::gguf::Gguf;
use super::source::Source;
use super::stored::Stored;
use super::weights::{Model, ModelError, ModelFile, Parts};
use super::{Family, Weight, config_gguf, config_hf, safetensors};

/// Largest `config.json` that is read.
const MAX_CONFIG: u64 = 1 << 20;
const ACCEPTED: &str = "a folder with config.json and model.safetensors (or its index), a .safetensors file with \
                        config.json or <stem>.config.json beside it, or a .gguf file";

impl Model {
    /// Opens a Hugging Face folder, a safetensors file with its configuration beside it, or a GGUF file. What a file
    /// is follows from its content, not its name. Everything is checked except the values of the weights.
    ///
    /// # Errors
    /// Any of [`ModelError`] but `Token` and `NoSuchWeight`; the message names file, tensor and offset.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        if path.is_dir() {
            return open_folder(path);
        }
        let source = Arc::new(Source::open(path)?);
        let start = source.read_at(0, source.total().min(9))?;
        let stem = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        if start.starts_with(b"GGUF") {
            return open_gguf(stem, &source);
        }
        if start.get(8) == Some(&b'{') {
            let own = path.with_file_name(format!("{stem}.config.json"));
            let config = if own.is_file() { own } else { path.with_file_name("config.json") };
            let config = Source::open(&config)?;
            let tensors = safetensors::read_file(&source)?;
            return open_hf(stem, &config, tensors, &[source]);
        }
        let found = format!("a file that starts with {start:02x?}");
        Err(ModelError::NotAModel { path: path.display().to_string(), expected: ACCEPTED, found })
    }

    /// Opens a Hugging Face model that is built into the program: the text of its `config.json` and the bytes of
    /// its safetensors file.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn from_embedded(
        name: &str,
        config_json: &'static [u8],
        weights: &'static [u8],
    ) -> Result<Self, ModelError> {
        let config = Source::embedded(format!("{name}/config.json"), config_json);
        let source = Arc::new(Source::embedded(format!("{name}/model.safetensors"), weights));
        let tensors = safetensors::read_file(&source)?;
        open_hf(name.to_owned(), &config, tensors, &[source])
    }
}

fn open_folder(folder: &Path) -> Result<Model, ModelError> {
    let single = folder.join("model.safetensors");
    let index = folder.join("model.safetensors.index.json");
    let missing = |found: String| ModelError::NotAModel {
        path: folder.display().to_string(),
        expected: ACCEPTED,
        found,
    };
    let config = folder.join("config.json");
    if !config.is_file() {
        return Err(missing("a folder without config.json".into()));
    }
    let config = Source::open(&config)?;
    let full: PathBuf = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let name = full.file_name().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    // As in transformers, the single file wins over an index beside it.
    if single.is_file() {
        let source = Arc::new(Source::open(&single)?);
        let tensors = safetensors::read_file(&source)?;
        open_hf(name, &config, tensors, &[source])
    } else if index.is_file() {
        let (tensors, shards) = safetensors::read_sharded(folder, &index)?;
        open_hf(name, &config, tensors, &shards)
    } else {
        Err(missing("neither model.safetensors nor model.safetensors.index.json".into()))
    }
}

fn open_hf(
    name: String,
    config_source: &Source,
    tensors: BTreeMap<String, Stored>,
    sources: &[Arc<Source>],
) -> Result<Model, ModelError> {
    let config = config_hf::parse(config_source.name(), &config_source.read_all(MAX_CONFIG)?)?;
    let mut files = sources.iter().map(|source| hashed(source)).collect::<Result<Vec<_>, _>>()?;
    let digest = match files.as_slice() {
        [one] => one.sha256.clone(),
        many => {
            let lines: String = many.iter().map(|f| format!("{}  {}\n", f.sha256, f.name)).collect();
            hex::encode(Sha256::digest(lines.as_bytes()))
        }
    };
    files.push(hashed(config_source)?);
    let file = sources.first().map_or(config_source.name(), |s| s.name()).to_owned();
    let tied = config.tied;
    let parts = Parts { name, file, files, digest, permuted: false };
    Model::assemble(parts, config, tensors, Weight::hf_name, |left| {
        // Old exports repeat the RoPE frequencies and a tied output; both follow from the rest.
        left.ends_with(".rotary_emb.inv_freq") || (tied && left == "lm_head.weight")
    })
}

fn open_gguf(name: String, source: &Arc<Source>) -> Result<Model, ModelError> {
    let gguf = Gguf::read(source)?;
    let config = config_gguf::parse(source.name(), &gguf)?;
    let file = hashed(source)?;
    let parts = Parts {
        name,
        file: source.name().to_owned(),
        digest: file.sha256.clone(),
        files: vec![file],
        permuted: config.family == Family::Llama,
    };
    Model::assemble(parts, config, gguf.tensors, |weight| weight.to_string(), |_| false)
}

fn hashed(source: &Source) -> Result<ModelFile, ModelError> {
    let name = Path::new(source.name()).file_name();
    let name = name.map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(ModelFile { name, sha256: source.sha256()? })
}
