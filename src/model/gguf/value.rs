//! Metadata values. Arrays are walked and checked but stay in the file: nothing here needs their contents.

use std::fmt;

use super::GgufError;
use super::reader::Reader;

/// Deepest nesting of arrays.
const MAX_DEPTH: usize = 4;

/// One metadata value.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::model) enum Value {
    U32(u32),
    /// Any other unsigned integer.
    Unsigned(u64),
    /// Any signed integer.
    Signed(i64),
    Float(f64),
    Bool(bool),
    String(String),
    /// Number of elements.
    Array(u64),
}

impl Value {
    /// A number that is not negative, whatever its integer type.
    pub(in crate::model) fn as_unsigned(&self) -> Option<u64> {
        match self {
            Value::U32(n) => Some(u64::from(*n)),
            Value::Unsigned(n) => Some(*n),
            Value::Signed(n) => u64::try_from(*n).ok(),
            _ => None,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::U32(n) => write!(f, "{n}"),
            Value::Unsigned(n) => write!(f, "{n}"),
            Value::Signed(n) => write!(f, "{n}"),
            Value::Float(x) => write!(f, "{x}"),
            Value::Bool(b) => write!(f, "{b}"),
            Value::String(s) => write!(f, "{s:?}"),
            Value::Array(n) => write!(f, "an array of {n}"),
        }
    }
}

/// Reads the type and the value of `key`.
pub(super) fn read(reader: &mut Reader<'_>, key: &str) -> Result<Value, GgufError> {
    let what = format!("value of {key:?}");
    let at = reader.position();
    let kind = reader.u32(&what)?;
    Ok(match kind {
        0 => Value::Unsigned(u64::from(u8::from_le_bytes(reader.array(&what)?))),
        1 => Value::Signed(i64::from(i8::from_le_bytes(reader.array(&what)?))),
        2 => Value::Unsigned(u64::from(u16::from_le_bytes(reader.array(&what)?))),
        3 => Value::Signed(i64::from(i16::from_le_bytes(reader.array(&what)?))),
        4 => Value::U32(reader.u32(&what)?),
        5 => Value::Signed(i64::from(i32::from_le_bytes(reader.array(&what)?))),
        6 => Value::Float(f64::from(f32::from_le_bytes(reader.array(&what)?))),
        7 => match reader.array(&what)? {
            [0] => Value::Bool(false),
            [1] => Value::Bool(true),
            [other] => return Err(reader.error(at + 4, &what, "a bool, 0 or 1", other.to_string())),
        },
        8 => Value::String(reader.string(&what, u64::MAX)?),
        9 => Value::Array(walk_array(reader, &what, 1)?),
        10 => Value::Unsigned(reader.u64(&what)?),
        11 => Value::Signed(i64::from_le_bytes(reader.array(&what)?)),
        12 => Value::Float(f64::from_le_bytes(reader.array(&what)?)),
        other => return Err(reader.error(at, &what, "a value type 0 to 12", other.to_string())),
    })
}

/// Steps over an array and returns its number of elements.
fn walk_array(reader: &mut Reader<'_>, what: &str, depth: usize) -> Result<u64, GgufError> {
    let at = reader.position();
    if depth > MAX_DEPTH {
        let expected = format!("arrays nested at most {MAX_DEPTH} deep");
        return Err(reader.error(at, what, &expected, "another array".into()));
    }
    let kind = reader.u32(what)?;
    let fixed = match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        8 | 9 => None,
        other => return Err(reader.error(at, what, "an element type 0 to 12", other.to_string())),
    };
    if let Some(size) = fixed {
        let count = reader.count(what, size)?;
        reader.skip(what, count * size)?;
        return Ok(count);
    }
    // A string has its length in front, an array its element type and its length.
    let count = reader.count(what, if kind == 8 { 8 } else { 12 })?;
    for _ in 0..count {
        if kind == 8 {
            let at = reader.position();
            let len = reader.u64(what)?;
            if len > reader.rest() {
                let expected = format!("a string length of at most {}", reader.rest());
                return Err(reader.error(at, what, &expected, len.to_string()));
            }
            reader.skip(what, len)?;
        } else {
            walk_array(reader, what, depth + 1)?;
        }
    }
    Ok(count)
}
