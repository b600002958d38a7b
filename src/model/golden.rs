//! Goldens of whole models: logits and hidden states in float64 from an independent producer.

use super::safetensors::{RawEntry, SafeTensorsError, read_header};
use super::source::{Source, SourceError};

/// A golden that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GoldenError {
    /// The file is broken.
    #[error(transparent)]
    File(#[from] SafeTensorsError),
    /// The file cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A tensor is missing or of another kind.
    #[error("{file}: tensor {tensor:?}: expected {expected}, found {found}")]
    Tensor {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// What was expected.
        expected: String,
        /// What was found.
        found: String,
    },
}

/// Values of one kind, `[rows, columns]` row-major.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix<T> {
    /// Values of a row.
    pub columns: usize,
    /// All values.
    pub values: Vec<T>,
}

impl<T> Matrix<T> {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.values.len() / self.columns
    }

    /// Row `index`, or `None` past the end.
    pub fn row(&self, index: usize) -> Option<&[T]> {
        self.values.chunks_exact(self.columns).nth(index)
    }
}

/// What a model must give for `input_ids`. Small models carry every logit and hidden state, large ones a digest.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelGolden {
    /// The tokens.
    pub input_ids: Vec<usize>,
    /// Logits, `[tokens, vocab]`.
    pub logits: Option<Matrix<f64>>,
    /// Hidden states, `[tokens, hidden]` each: the embedding, then after each layer. Empty for a large model.
    pub hidden: Vec<Matrix<f64>>,
    /// Index of the largest logit of each position.
    pub argmax: Option<Vec<usize>>,
    /// Difference of the two largest logits of each position.
    pub margin: Option<Vec<f64>>,
    /// Indices of the eight largest logits, `[tokens, 8]`.
    pub top8_ids: Option<Matrix<usize>>,
    /// The eight largest logits, `[tokens, 8]`.
    pub top8_logits: Option<Matrix<f64>>,
    /// Logits of the last position, `[vocab]`.
    pub last_logits: Option<Vec<f64>>,
    /// Hidden state after the last layer, before the last norm, `[tokens, hidden]`.
    pub final_hidden: Option<Matrix<f64>>,
}

impl ModelGolden {
    /// Reads a golden from the bytes of its safetensors file; `file` is its name in errors.
    ///
    /// # Errors
    /// See [`GoldenError`]; every tensor must have a row for each token, and there must be logits of some kind.
    pub fn read(file: &str, bytes: &'static [u8]) -> Result<Self, GoldenError> {
        Self::from_source(&Source::embedded(file, bytes))
    }

    /// The same from a file on disk.
    ///
    /// # Errors
    /// As [`ModelGolden::read`].
    pub fn open(path: &std::path::Path) -> Result<Self, GoldenError> {
        Self::from_source(&Source::open(path)?)
    }

    pub(super) fn from_source(source: &Source) -> Result<Self, GoldenError> {
        let mut tensors = read_header(source)?;
        let mut take = |name: &str| tensors.remove(name);
        let ids = take("input_ids").ok_or_else(|| wrong(source, "input_ids", "this tensor", "none"))?;
        let input_ids = integers(source, "input_ids", &ids)?.values;
        let tokens = input_ids.len();
        let mut floats_of = |name: &str, rows: Option<usize>| match take(name) {
            Some(entry) => checked(source, name, floats(source, name, &entry)?, rows).map(Some),
            None => Ok(None),
        };
        let logits = floats_of("logits_f64", Some(tokens))?;
        let top8_logits = floats_of("top8_logits_f64", Some(tokens))?;
        let final_hidden = floats_of("final_hidden_f64", Some(tokens))?;
        let margin = floats_of("margin_f64", None)?.map(|m| m.values);
        let last_logits = floats_of("last_logits_f64", None)?.map(|m| m.values);
        let mut hidden = Vec::new();
        while let Some(state) = floats_of(&format!("hidden_f64.{}", hidden.len()), Some(tokens))? {
            hidden.push(state);
        }
        let mut integers_of = |name: &str| match tensors.remove(name) {
            Some(entry) => integers(source, name, &entry).map(Some),
            None => Ok(None),
        };
        let argmax = integers_of("argmax")?.map(|m| m.values);
        let top8_ids = match integers_of("top8_ids")? {
            Some(ids) => Some(checked(source, "top8_ids", ids, Some(tokens))?),
            None => None,
        };
        if let Some(name) = tensors.keys().next() {
            return Err(wrong(source, name, "only the tensors of a model golden", "this one"));
        }
        let lengths =
            [("argmax", argmax.as_ref().map(Vec::len)), ("margin_f64", margin.as_ref().map(Vec::len))];
        for (name, len) in lengths {
            if len.is_some_and(|len| len != tokens) {
                return Err(wrong(source, name, &format!("{tokens} values"), &format!("{len:?}")));
            }
        }
        if logits.is_none() && (argmax.is_none() || last_logits.is_none()) {
            let expected = "this tensor, or argmax and last_logits_f64";
            return Err(wrong(source, "logits_f64", expected, "neither"));
        }
        Ok(ModelGolden {
            input_ids,
            logits,
            hidden,
            argmax,
            margin,
            top8_ids,
            top8_logits,
            last_logits,
            final_hidden,
        })
    }
}

fn wrong(source: &Source, tensor: &str, expected: &str, found: &str) -> GoldenError {
    GoldenError::Tensor {
        file: source.name().into(),
        tensor: tensor.into(),
        expected: expected.into(),
        found: found.into(),
    }
}

/// The raw bytes of a tensor of the wanted dtype and one or two dimensions, none of them zero.
fn raw(source: &Source, name: &str, entry: &RawEntry, dtype: &str) -> Result<(usize, Vec<u8>), GoldenError> {
    let columns = match entry.shape.as_slice() {
        [n] | [_, n] if entry.dtype == dtype && !entry.shape.contains(&0) => *n,
        _ => {
            let found = format!("{} {:?}", entry.dtype, entry.shape);
            return Err(wrong(source, name, &format!("{dtype} of one or two dimensions, not empty"), &found));
        }
    };
    Ok((columns, source.read_at(entry.offset, entry.bytes)?))
}

fn floats(source: &Source, name: &str, entry: &RawEntry) -> Result<Matrix<f64>, GoldenError> {
    let (columns, bytes) = raw(source, name, entry, "F64")?;
    let mut values = Vec::with_capacity(bytes.len() / 8);
    for b in bytes.chunks_exact(8) {
        let value = f64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]);
        if !value.is_finite() {
            return Err(wrong(source, name, "finite values", &value.to_string()));
        }
        values.push(value);
    }
    Ok(Matrix { columns, values })
}

fn integers(source: &Source, name: &str, entry: &RawEntry) -> Result<Matrix<usize>, GoldenError> {
    let (columns, bytes) = raw(source, name, entry, "I32")?;
    let mut values = Vec::with_capacity(bytes.len() / 4);
    for b in bytes.chunks_exact(4) {
        let value = i32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        let index = usize::try_from(value);
        values.push(index.map_err(|_| wrong(source, name, "no negative values", &value.to_string()))?);
    }
    Ok(Matrix { columns, values })
}

fn checked<T>(
    source: &Source,
    name: &str,
    matrix: Matrix<T>,
    rows: Option<usize>,
) -> Result<Matrix<T>, GoldenError> {
    match rows {
        Some(rows) if rows != matrix.rows() => Err(wrong(
            source,
            name,
            &format!("a row for each of {rows} tokens"),
            &format!("{} rows", matrix.rows()),
        )),
        _ => Ok(matrix),
    }
}
