//! How quantised tensors map codes to values.

use serde::{Deserialize, Serialize};

/// Value of a code: `(code - zero_point) * scale`, scale and zero point chosen per block along `axis`.
///
/// `q8_0` and `q4_k` carry their scales inside their blocks and need no `QuantSpec`; `i8` and `i4` do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QuantSpec {
    /// Elements along `axis` that share one scale.
    pub block: usize,
    /// The dimension along which blocks lie; the last one for weights `[out, in]`.
    pub axis: usize,
    /// Bits of a code.
    pub bits: u8,
    /// True when every zero point is 0.
    pub symmetric: bool,
    /// One scale per block, blocks in row-major order.
    #[serde(serialize_with = "crate::exact::many")]
    pub scales: Vec<f32>,
    /// One zero point per block; empty when symmetric.
    pub zero_points: Vec<i32>,
    /// Scale of a statically quantised activation, if the operation quantises its input with a fixed scale.
    #[serde(serialize_with = "crate::exact::some")]
    pub static_activation: Option<f32>,
}
