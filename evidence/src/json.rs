//! JSON without surprises: no key twice, and differences that name their place.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Parses a text as one JSON value.
///
/// # Errors
/// A sentence with line and column if the text is not JSON, or if an object at any depth has a key twice (readers
/// disagree on which of the two counts, so a signed text must not have it).
pub fn strict(text: &str) -> Result<Value, String> {
    serde_json::from_str::<Strict>(text).map(|Strict(value)| value).map_err(|error| error.to_string())
}

struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Strict)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }
    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_f64<E: de::Error>(self, v: f64) -> Result<Value, E> {
        Number::from_f64(v).map(Value::Number).ok_or_else(|| E::custom("number is not finite"))
    }
    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(Value::String(v.to_owned()))
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Strict(item)) = seq.next_element()? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let Strict(value) = entries.next_value()?;
            if map.insert(key.clone(), value).is_some() {
                return Err(de::Error::custom(format!("key {key:?} appears twice in one object")));
            }
        }
        Ok(Value::Object(map))
    }
}

/// A place where two JSON values differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Path of the value, such as `predicate.rungs[1].passed`.
    pub path: String,
    /// The first value's JSON text, or `absent`.
    pub first: String,
    /// The second value's JSON text, or `absent`.
    pub second: String,
}

/// The first place, in document order, where two values differ; `root` is the name that paths begin with.
pub fn difference(root: &str, first: &Value, second: &Value) -> Option<Difference> {
    match (first, second) {
        (Value::Object(a), Value::Object(b)) => a
            .keys()
            .chain(b.keys().filter(|key| !a.contains_key(*key)))
            .find_map(|key| optional(&format!("{root}.{key}"), a.get(key), b.get(key))),
        (Value::Array(a), Value::Array(b)) => {
            (0..a.len().max(b.len())).find_map(|i| optional(&format!("{root}[{i}]"), a.get(i), b.get(i)))
        }
        (a, b) if a == b => None,
        (a, b) => Some(Difference { path: root.to_owned(), first: a.to_string(), second: b.to_string() }),
    }
}

/// Every place, in document order, where two values differ. A value that only one side has is one difference, whatever it
/// holds.
pub fn differences(root: &str, first: &Value, second: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    match (first, second) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys().filter(|key| !a.contains_key(*key))) {
                let path = format!("{root}.{key}");
                match (a.get(key), b.get(key)) {
                    (Some(a), Some(b)) => found.extend(differences(&path, a, b)),
                    (a, b) => found.extend(optional(&path, a, b)),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            for i in 0..a.len().max(b.len()) {
                let path = format!("{root}[{i}]");
                match (a.get(i), b.get(i)) {
                    (Some(a), Some(b)) => found.extend(differences(&path, a, b)),
                    (a, b) => found.extend(optional(&path, a, b)),
                }
            }
        }
        (a, b) => found.extend(difference(root, a, b)),
    }
    found
}

fn optional(path: &str, first: Option<&Value>, second: Option<&Value>) -> Option<Difference> {
    let text = |value: Option<&Value>| value.map_or_else(|| "absent".to_owned(), Value::to_string);
    match (first, second) {
        (Some(a), Some(b)) => difference(path, a, b),
        (None, None) => None,
        (a, b) => Some(Difference { path: path.to_owned(), first: text(a), second: text(b) }),
    }
}

/// A decimal that reads back to the same number, for fields where a JSON number would become a double elsewhere.
pub fn decimal(value: f64) -> String {
    format!("{value:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_key_is_refused_at_any_depth() {
        for text in [r#"{"a":1,"a":1}"#, r#"{"x":[{"b":1,"c":2,"b":3}]}"#] {
            let error = strict(text).expect_err("a repeated key");
            assert!(error.contains("appears twice"), "{error}");
        }
        assert!(strict(r#"{"x":[{"b":1}],"y":{"b":2}}"#).is_ok());
        assert!(strict("{} {}").is_err(), "one value only");
        assert!(strict(&"[".repeat(100_000)).is_err(), "depth is limited");
    }

    #[test]
    fn a_difference_names_its_path_and_both_values() {
        let a = strict(r#"{"p":{"r":[{"n":1},{"n":2}],"q":null}}"#).expect("json");
        let b = strict(r#"{"p":{"r":[{"n":1},{"n":3}],"q":null}}"#).expect("json");
        let found = difference("row", &a, &b).expect("they differ");
        assert_eq!(
            (found.path.as_str(), found.first.as_str(), found.second.as_str()),
            ("row.p.r[1].n", "2", "3")
        );
        let c = strict(r#"{"p":{"r":[{"n":1}],"q":null},"z":0}"#).expect("json");
        assert_eq!(difference("row", &a, &c).expect("they differ").second, "absent");
        assert_eq!(difference("row", &c, &c), None);
        let only_new = strict(r#"{"p":{"r":[{"n":1},{"n":2}],"q":null},"z":0}"#).expect("json");
        assert_eq!(difference("row", &a, &only_new).expect("they differ").path, "row.z");
    }

    #[test]
    fn all_differences_are_found_and_a_missing_value_is_one() {
        let a = strict(r#"{"p":{"r":[1,2],"q":"x"},"only":{"a":1,"b":2},"list":[1,5]}"#).expect("json");
        let b = strict(r#"{"p":{"r":[3,4],"q":"x"},"new":null,"list":[2]}"#).expect("json");
        let mut paths: Vec<String> = differences("", &a, &b).into_iter().map(|d| d.path).collect();
        paths.sort();
        assert_eq!(paths, [".list[0]", ".list[1]", ".new", ".only", ".p.r[0]", ".p.r[1]"]);
        assert_eq!(differences("", &a, &a), []);
    }

    #[test]
    fn decimals_read_back_to_the_same_bits() {
        for value in [0.1, 1.0, 5e-324, 1.797e308, 0.406_123_456_789_012_3] {
            assert_eq!(decimal(value).parse::<f64>().expect("a number").to_bits(), value.to_bits());
        }
    }
}
