//! The tensor table: names, shapes, types and where the data lies.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::GgufError;
use super::reader::Reader;
use crate::model::Encoding;
use crate::model::source::Source;
use crate::model::stored::Stored;

/// Most dimensions of a tensor.
const MAX_DIMS: u32 = 4;

struct Row {
    name: String,
    /// Offset of this entry in the table, for errors.
    at: u64,
    shape: Vec<usize>,
    encoding: Encoding,
    offset: u64,
    bytes: u64,
}

/// Reads the table and checks every tensor against the data section behind it.
pub(super) fn read_table(
    source: &Arc<Source>,
    reader: &mut Reader<'_>,
    count: u64,
    alignment: u64,
) -> Result<BTreeMap<String, Stored>, GgufError> {
    let mut rows = BTreeMap::new();
    for _ in 0..count {
        let row = read_row(source, reader)?;
        if rows.contains_key(&row.name) {
            return Err(wrong(source, &row.name, row.at, "every tensor once", "the name again".into()));
        }
        rows.insert(row.name.clone(), row);
    }
    let file = source.total();
    let table_end = reader.position();
    let start =
        table_end.checked_next_multiple_of(alignment).filter(|start| *start <= file || rows.is_empty());
    let Some(start) = start else {
        let expected = format!("data from the next multiple of {alignment}");
        return Err(reader.error(
            table_end,
            "data",
            &expected,
            format!("the end of the file at byte {file}"),
        ));
    };
    let mut spans = Vec::new();
    let mut tensors = BTreeMap::new();
    for (name, row) in rows {
        if !row.offset.is_multiple_of(alignment) {
            let expected = format!("an offset that is a multiple of {alignment}");
            return Err(wrong(source, &name, row.at, &expected, row.offset.to_string()));
        }
        let from = start.checked_add(row.offset);
        let end = from.and_then(|from| from.checked_add(row.bytes)).filter(|end| *end <= file);
        let (Some(from), Some(end)) = (from, end) else {
            let expected = format!("{} bytes of data inside the {file} bytes of the file", row.bytes);
            let found =
                format!("offset {} behind byte {start}; the file is truncated or corrupt", row.offset);
            return Err(wrong(source, &name, row.at, &expected, found));
        };
        spans.push((from, end, name.clone()));
        let stored =
            Stored { source: source.clone(), offset: from, encoding: row.encoding, shape: row.shape };
        tensors.insert(name, stored);
    }
    spans.sort();
    for pair in spans.windows(2) {
        let ((_, end, before), (from, _, name)) = (&pair[0], &pair[1]);
        if from < end {
            let expected = format!("data from byte {end}, after tensor {before:?}");
            return Err(wrong(source, name, *from, &expected, format!("an overlap from byte {from}")));
        }
    }
    Ok(tensors)
}

fn wrong(source: &Source, tensor: &str, at: u64, expected: &str, found: String) -> GgufError {
    GgufError::Tensor {
        file: source.name().into(),
        tensor: tensor.into(),
        at,
        expected: expected.into(),
        found,
    }
}

fn read_row(source: &Source, reader: &mut Reader<'_>) -> Result<Row, GgufError> {
    let at = reader.position();
    let name = reader.name("tensor name")?;
    let what = format!("entry of tensor {name:?}");
    let dims = reader.u32(&what)?;
    if !(1..=MAX_DIMS).contains(&dims) {
        return Err(wrong(source, &name, at, "1 to 4 dimensions", dims.to_string()));
    }
    let mut shape = Vec::new();
    for _ in 0..dims {
        let extent = reader.u64(&what)?;
        match usize::try_from(extent) {
            Ok(extent) if extent > 0 => shape.push(extent),
            _ => return Err(wrong(source, &name, at, "dimensions above 0", extent.to_string())),
        }
    }
    // GGUF lists the contiguous dimension first.
    shape.reverse();
    let kind = reader.u32(&what)?;
    let encoding = encoding_of(kind).ok_or_else(|| {
        let known: Vec<_> = Encoding::ALL.iter().map(|e| e.as_str()).collect();
        wrong(source, &name, at, &format!("a type among {}", known.join(", ")), type_name(kind))
    })?;
    let offset = reader.u64(&what)?;
    let row_len = shape.last().copied().unwrap_or(0);
    if !row_len.is_multiple_of(encoding.block_elements()) {
        let expected = format!("rows of whole {encoding} blocks of {}", encoding.block_elements());
        return Err(wrong(source, &name, at, &expected, format!("rows of {row_len}")));
    }
    // The elements must be countable as well: code below multiplies shapes without another check.
    let elements = shape.iter().try_fold(4usize, |n, &d| n.checked_mul(d));
    let mut outer = shape.iter().rev().skip(1);
    let row = encoding.row_bytes(row_len).map(|row| row as u64);
    let bytes = row.and_then(|row| outer.try_fold(row, |n, &d| n.checked_mul(d as u64)));
    match (bytes, elements) {
        (Some(bytes), Some(_)) => Ok(Row { name, at, shape, encoding, offset, bytes }),
        _ => Err(wrong(source, &name, at, "a size that fits memory", format!("{encoding} {shape:?}"))),
    }
}

fn encoding_of(kind: u32) -> Option<Encoding> {
    Some(match kind {
        0 => Encoding::F32,
        1 => Encoding::F16,
        2 => Encoding::Q4_0,
        3 => Encoding::Q4_1,
        6 => Encoding::Q5_0,
        7 => Encoding::Q5_1,
        8 => Encoding::Q8_0,
        12 => Encoding::Q4K,
        13 => Encoding::Q5K,
        14 => Encoding::Q6K,
        30 => Encoding::Bf16,
        _ => return None,
    })
}

/// What an unsupported type number means.
fn type_name(kind: u32) -> String {
    let name = match kind {
        9 => "Q8_1",
        10 => "Q2_K",
        11 => "Q3_K",
        15 => "Q8_K",
        16..=23 | 29 => "an IQ type",
        24..=27 => "an integer type",
        28 => "F64",
        34 | 35 => "a ternary type",
        39 => "MXFP4",
        _ => "unknown",
    };
    format!("type {kind} ({name})")
}
