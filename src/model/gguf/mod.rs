//! Reader of GGUF files, versions 2 and 3. Every count, length and offset is checked against the file before use;
//! tensors and long arrays stay on disk.

mod reader;
mod tensor;
mod value;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::source::{Source, SourceError};
use super::stored::Stored;
use reader::Reader;
pub(super) use value::Value;

/// A GGUF file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// The file cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A part of the file is wrong.
    #[error("{file}: at byte {at}: {what}: expected {expected}, found {found}")]
    Structure {
        /// The file.
        file: String,
        /// Offset in the file.
        at: u64,
        /// Which part.
        what: String,
        /// What belongs there.
        expected: String,
        /// What is there.
        found: String,
    },
    /// One tensor is wrong.
    #[error("{file}: tensor {tensor:?} at byte {at}: expected {expected}, found {found}")]
    Tensor {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// Offset in the file.
        at: u64,
        /// What was expected.
        expected: String,
        /// What was found.
        found: String,
    },
}

/// The metadata and tensors of a file.
pub(super) struct Gguf {
    pub(super) values: BTreeMap<String, Value>,
    pub(super) tensors: BTreeMap<String, Stored>,
}

/// Shortest entry of the metadata: an empty key, its type, a one-byte value.
const MIN_VALUE: u64 = 8 + 4 + 1;
/// Shortest entry of the tensor table: an empty name, no dimensions, type and offset.
const MIN_TENSOR: u64 = 8 + 4 + 4 + 8;

impl Gguf {
    /// Reads everything in front of the data and checks that the tensors fill it without overlap.
    pub(super) fn read(source: &Arc<Source>) -> Result<Self, GgufError> {
        let mut reader = Reader::new(source);
        let magic = reader.bytes("magic", 4)?;
        if magic != b"GGUF" {
            return Err(reader.error(0, "magic", "\"GGUF\"", format!("{magic:02x?}")));
        }
        let version = reader.u32("version")?;
        if !(2..=3).contains(&version) {
            let found = if (2..=3).contains(&version.swap_bytes()) {
                "a big-endian file".to_owned()
            } else {
                version.to_string()
            };
            return Err(reader.error(4, "version", "2 or 3, little-endian", found));
        }
        let tensor_count = reader.count("tensor count", MIN_TENSOR)?;
        let value_count = reader.count("metadata count", MIN_VALUE)?;
        let mut values = BTreeMap::new();
        for _ in 0..value_count {
            let at = reader.position();
            let key = reader.name("metadata key")?;
            let value = value::read(&mut reader, &key)?;
            if values.contains_key(&key) {
                return Err(reader.error(at, "metadata key", "every key once", format!("{key:?} again")));
            }
            values.insert(key, value);
        }
        let alignment = match values.get("general.alignment") {
            None => 32,
            Some(Value::U32(n)) if n.is_power_of_two() => u64::from(*n),
            Some(other) => {
                let at = reader.position();
                return Err(reader.error(
                    at,
                    "general.alignment",
                    "a power of two as u32",
                    other.to_string(),
                ));
            }
        };
        let tensors = tensor::read_table(source, &mut reader, tensor_count, alignment)?;
        Ok(Gguf { values, tensors })
    }
}
