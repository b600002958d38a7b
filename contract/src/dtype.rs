//! Element types and memory layouts of tensors.

use serde::{Deserialize, Serialize};

/// How the elements of a tensor are stored.
///
/// Multi-byte values are little-endian. `q8_0` and `q4_k` follow the GGUF block formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    Bf16,
    /// GGUF Q8_0: blocks of 32 signed bytes with one binary16 scale in front (34 bytes).
    #[serde(rename = "q8_0")]
    Q8_0,
    /// GGUF Q4_K: super-blocks of 256 four-bit codes with packed scales and minima (144 bytes).
    #[serde(rename = "q4_k")]
    Q4K,
    /// Signed bytes; the scale is in the tensor's [`crate::QuantSpec`].
    I8,
    /// Signed nibbles, two to a byte, low nibble first; the scale is in the [`crate::QuantSpec`].
    I4,
    /// OCP 8-bit float, 4 exponent and 3 mantissa bits, no infinities.
    #[serde(rename = "fp8_e4m3")]
    Fp8E4m3,
    /// OCP 8-bit float, 5 exponent and 2 mantissa bits.
    #[serde(rename = "fp8_e5m2")]
    Fp8E5m2,
}

impl DType {
    /// Every element type, in the order in which they are listed to users.
    pub const ALL: [DType; 9] = [
        DType::F32,
        DType::F16,
        DType::Bf16,
        DType::Q8_0,
        DType::Q4K,
        DType::I8,
        DType::I4,
        DType::Fp8E4m3,
        DType::Fp8E5m2,
    ];

    /// The name used in suites, rows and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
            DType::Q8_0 => "q8_0",
            DType::Q4K => "q4_k",
            DType::I8 => "i8",
            DType::I4 => "i4",
            DType::Fp8E4m3 => "fp8_e4m3",
            DType::Fp8E5m2 => "fp8_e5m2",
        }
    }

    /// Elements that are stored together; 1 for plain types. The last dimension of a tensor must be a multiple of it.
    pub fn block_elements(self) -> usize {
        match self {
            DType::Q8_0 => 32,
            DType::Q4K => 256,
            DType::I4 => 2,
            _ => 1,
        }
    }

    /// Bytes of one block of [`DType::block_elements`] elements.
    pub fn block_bytes(self) -> usize {
        match self {
            DType::F32 => 4,
            DType::F16 | DType::Bf16 => 2,
            DType::Q8_0 => 34,
            DType::Q4K => 144,
            DType::I8 | DType::I4 | DType::Fp8E4m3 | DType::Fp8E5m2 => 1,
        }
    }

    /// Bytes of a row-major tensor of this shape, or `None` if it overflows or the last dimension is not whole blocks.
    pub fn tensor_bytes(self, shape: &[usize]) -> Option<usize> {
        let last = shape.last().copied().unwrap_or(1);
        if !last.is_multiple_of(self.block_elements()) {
            return None;
        }
        let elements = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
        (elements / self.block_elements()).checked_mul(self.block_bytes())
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// In which order the elements of a tensor lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// The last dimension is contiguous. What the host always sends.
    #[default]
    RowMajor,
    /// The first dimension is contiguous.
    ColMajor,
    /// Private to the backend; only `read` gives the values in order.
    Tiled,
}
