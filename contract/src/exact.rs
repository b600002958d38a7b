//! Serialisation of f32 values so that they come back bit for bit.
//!
//! The shortest decimal of an f32 is not always enough: a reader that goes by way of f64, as serde does inside tagged
//! enums, may round it twice (7.038531e-26 is such a value). The same value as an f64 is exact both ways.

use serde::Serializer;

pub(crate) fn one<S: Serializer>(value: &f32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(f64::from(*value))
}

pub(crate) fn some<S: Serializer>(value: &Option<f32>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.serialize_some(&f64::from(*value)),
        None => serializer.serialize_none(),
    }
}

pub(crate) fn many<S: Serializer>(values: &[f32], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(|&value| f64::from(value)))
}
