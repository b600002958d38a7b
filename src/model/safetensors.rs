//! Reader of safetensors files, single and sharded. Only the header is read; tensors stay on disk.

use std::collections::BTreeMap;
use std::path::{Component, Path};
use std::sync::Arc;

use serde::Deserialize;

use super::Encoding;
use super::source::{Source, SourceError};
use super::stored::Stored;
use super::unique_map::UniqueMap;

/// Largest header that is read, as in the format's own library.
const MAX_HEADER: u64 = 100_000_000;
/// Largest index of a sharded model that is read.
const MAX_INDEX: u64 = 100_000_000;
/// Bytes in front of the header: its length.
const PREFIX: u64 = 8;

/// A safetensors file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SafeTensorsError {
    /// The file cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The file as a whole is wrong.
    #[error("{file}: at byte {at}: {what}: expected {expected}, found {found}")]
    Structure {
        /// The file.
        file: String,
        /// Offset in the file.
        at: u64,
        /// Which part.
        what: &'static str,
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
    /// The index of a sharded model is wrong.
    #[error("{file}: {entry:?}: expected {expected}, found {found}")]
    Index {
        /// The index.
        file: String,
        /// Tensor or key.
        entry: String,
        /// What was expected.
        expected: String,
        /// What was found.
        found: String,
    },
}

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// Element type of a tensor of any kind, with its name and size in bytes.
pub(super) struct RawEntry {
    pub(super) dtype: String,
    pub(super) shape: Vec<usize>,
    /// Absolute offset in the file.
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// Reads and checks a header: every tensor by name.
pub(super) fn read_header(source: &Source) -> Result<BTreeMap<String, RawEntry>, SafeTensorsError> {
    let file = source.name();
    let structure = |at, what, expected: String, found: String| SafeTensorsError::Structure {
        file: file.into(),
        at,
        what,
        expected,
        found,
    };
    let mut prefix = [0; PREFIX as usize];
    source.read_exact_at(&mut prefix, 0)?;
    let header_len = u64::from_le_bytes(prefix);
    let room = (source.total() - PREFIX).min(MAX_HEADER);
    if header_len > room {
        let expected = format!("at most {room} bytes");
        return Err(structure(0, "header length", expected, header_len.to_string()));
    }
    let header = source.read_at(PREFIX, header_len)?;
    let UniqueMap(items) = serde_json::from_slice::<UniqueMap<Entry>>(&header).map_err(|e| {
        structure(
            PREFIX,
            "header",
            "a JSON object of tensors {dtype, shape, data_offsets}".into(),
            e.to_string(),
        )
    })?;
    let start = PREFIX + header_len;
    let data = source.total() - start;
    let mut spans = Vec::new();
    let mut entries = BTreeMap::new();
    for (name, entry) in items {
        let tensor = |expected: String, found: String| SafeTensorsError::Tensor {
            file: file.into(),
            tensor: name.clone(),
            at: start,
            expected,
            found,
        };
        let [from, to] = entry.data_offsets;
        let bits = dtype_bits(&entry.dtype)
            .ok_or_else(|| tensor("a dtype of the format".into(), format!("{:?}", entry.dtype)))?;
        let bytes = entry
            .shape
            .iter()
            .try_fold(bits, |n, &d| n.checked_mul(d))
            .filter(|bits| bits % 8 == 0)
            .map(|bits| bits / 8);
        let described = format!("{} {:?}", entry.dtype, entry.shape);
        if from > to || to > data {
            let expected = format!("data_offsets inside the {data} bytes of data");
            return Err(tensor(expected, format!("[{from}, {to}]")));
        }
        let at = start + from;
        if bytes != Some(to - from) {
            let need = bytes.map_or("whole bytes that fit 64 bits".into(), |n| format!("{n} bytes"));
            return Err(SafeTensorsError::Tensor {
                file: file.into(),
                tensor: name,
                at,
                expected: format!("{need} for {described}"),
                found: format!("{} bytes in data_offsets [{from}, {to}]", to - from),
            });
        }
        let shape = entry.shape.iter().map(|&d| usize::try_from(d)).collect::<Result<Vec<_>, _>>();
        let shape = shape.map_err(|_| tensor("dimensions that fit memory".into(), described))?;
        spans.push((from, to, name.clone()));
        entries.insert(name, RawEntry { dtype: entry.dtype, shape, offset: at, bytes: to - from });
    }
    spans.sort();
    let mut end = 0;
    for (from, to, tensor) in spans {
        if from != end {
            return Err(SafeTensorsError::Tensor {
                file: file.into(),
                tensor,
                at: start + from,
                expected: format!("data from {end}, right after the tensor before it"),
                found: format!(
                    "data_offsets [{from}, {to}], {}",
                    if from < end { "an overlap" } else { "a hole" }
                ),
            });
        }
        end = to;
    }
    if end != data {
        let found = format!("{data} bytes of data");
        return Err(structure(start + end, "end of data", format!("{end} bytes of data"), found));
    }
    Ok(entries)
}

/// The tensors of one file, or an error for the first one whose dtype is not a weight's.
pub(super) fn read_file(source: &Arc<Source>) -> Result<BTreeMap<String, Stored>, SafeTensorsError> {
    let mut tensors = BTreeMap::new();
    for (name, entry) in read_header(source)? {
        let encoding = match entry.dtype.as_str() {
            "F32" => Encoding::F32,
            "F16" => Encoding::F16,
            "BF16" => Encoding::Bf16,
            _ => {
                return Err(SafeTensorsError::Tensor {
                    file: source.name().into(),
                    tensor: name,
                    at: entry.offset,
                    expected: "dtype F32, F16 or BF16".into(),
                    found: entry.dtype,
                });
            }
        };
        let stored = Stored { source: source.clone(), offset: entry.offset, encoding, shape: entry.shape };
        tensors.insert(name, stored);
    }
    Ok(tensors)
}

/// Tensors of a sharded model and the shards in name order.
type Sharded = (BTreeMap<String, Stored>, Vec<Arc<Source>>);

/// Opens `model.safetensors.index.json` and the shards that it names, which must lie in `folder` itself.
pub(super) fn read_sharded(folder: &Path, index: &Path) -> Result<Sharded, SafeTensorsError> {
    #[derive(Deserialize)]
    struct Index {
        weight_map: UniqueMap<String>,
    }
    let file = index.display().to_string();
    let wrong = |entry: &str, expected: &str, found: String| SafeTensorsError::Index {
        file: file.clone(),
        entry: entry.into(),
        expected: expected.into(),
        found,
    };
    let bytes = Source::open(index)?.read_all(MAX_INDEX)?;
    let Index { weight_map: UniqueMap(map) } = serde_json::from_slice(&bytes)
        .map_err(|e| wrong("weight_map", "an object from tensor to shard", e.to_string()))?;
    let mut shards = BTreeMap::new();
    for (tensor, shard) in &map {
        if shards.contains_key(shard) {
            continue;
        }
        let mut parts = Path::new(shard).components();
        let plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
        if !plain || shard.contains(['/', '\\', '\0']) || !shard.ends_with(".safetensors") {
            let expected = "the plain name of a .safetensors file in the model's folder";
            return Err(wrong(tensor, expected, format!("{shard:?}")));
        }
        let source = Arc::new(Source::open(&folder.join(shard))?);
        let tensors = read_file(&source)?;
        shards.insert(shard.clone(), (source, tensors));
    }
    let mut all = BTreeMap::new();
    let mut sources = Vec::new();
    for (shard, (source, tensors)) in shards {
        for (name, stored) in tensors {
            if map.get(&name) != Some(&shard) {
                let found = map.get(&name).map_or("nothing".into(), |other| format!("{other:?}"));
                return Err(wrong(&name, &format!("{shard:?}, the shard that holds it"), found));
            }
            all.insert(name, stored);
        }
        sources.push(source);
    }
    match map.iter().find(|(name, _)| !all.contains_key(*name)) {
        Some((name, shard)) => {
            Err(wrong(name, "a tensor of this name in its shard", format!("none in {shard:?}")))
        }
        None => Ok((all, sources)),
    }
}

fn dtype_bits(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        "BOOL" | "U8" | "I8" | "F8_E4M3" | "F8_E5M2" | "F8_E8M0" | "F8_E4M3FNUZ" | "F8_E5M2FNUZ" => 8,
        "I16" | "U16" | "F16" | "BF16" => 16,
        "I32" | "U32" | "F32" => 32,
        "I64" | "U64" | "F64" | "C64" => 64,
        _ => return None,
    })
}
