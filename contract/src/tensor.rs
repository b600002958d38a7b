//! Tensors on the host side and the description every device tensor carries.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{BackendError, DType, Layout, QuantSpec};

/// Largest number of dimensions of a tensor.
pub const MAX_RANK: usize = 4;

/// Shape, element type and layout of a tensor, wherever it lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorDesc {
    /// Extent of each dimension, outermost first. Never empty, no zero.
    pub shape: Vec<usize>,
    /// How the elements are stored.
    pub dtype: DType,
    /// Order of the elements.
    #[serde(default)]
    pub layout: Layout,
}

impl TensorDesc {
    /// A row-major description.
    pub fn new(shape: impl Into<Vec<usize>>, dtype: DType) -> Self {
        TensorDesc { shape: shape.into(), dtype, layout: Layout::RowMajor }
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Extent of the last dimension: the length of a row.
    pub fn row_len(&self) -> usize {
        self.shape.last().copied().unwrap_or(0)
    }

    /// Number of rows: all dimensions but the last, 1 for a vector.
    pub fn rows(&self) -> usize {
        self.shape.split_last().map_or(0, |(_, outer)| outer.iter().product())
    }
}

/// What a backend's own tensor type must tell about itself.
pub trait DeviceTensor {
    /// Shape, element type and layout.
    fn desc(&self) -> &TensorDesc;
}

/// A tensor in host memory: row-major little-endian bytes, cheap to clone.
#[derive(Debug, Clone, PartialEq)]
pub struct HostTensor {
    desc: TensorDesc,
    bytes: Arc<[u8]>,
    quant: Option<QuantSpec>,
}

impl HostTensor {
    /// Wraps raw little-endian bytes.
    ///
    /// # Errors
    /// `InvalidArgument` if the rank is 0 or above [`MAX_RANK`], a dimension is zero, the last dimension is not whole
    /// blocks, or the number of bytes is not what shape and dtype need.
    pub fn from_bytes(
        shape: &[usize],
        dtype: DType,
        bytes: impl Into<Arc<[u8]>>,
    ) -> Result<Self, BackendError> {
        let bytes = bytes.into();
        if shape.is_empty() || shape.len() > MAX_RANK || shape.contains(&0) {
            return Err(BackendError::invalid(format!(
                "shape {shape:?}: expected 1 to {MAX_RANK} dimensions, none of them zero"
            )));
        }
        let expected = dtype.tensor_bytes(shape).ok_or_else(|| {
            BackendError::invalid(format!(
                "shape {shape:?} as {dtype}: the last dimension must be a multiple of {} and the size must fit memory",
                dtype.block_elements()
            ))
        })?;
        if bytes.len() != expected {
            return Err(BackendError::invalid(format!(
                "shape {shape:?} as {dtype} needs {expected} bytes, got {}",
                bytes.len()
            )));
        }
        Ok(HostTensor { desc: TensorDesc::new(shape, dtype), bytes, quant: None })
    }

    /// An f32 tensor from values.
    ///
    /// # Errors
    /// As [`HostTensor::from_bytes`].
    pub fn from_f32(shape: &[usize], values: &[f32]) -> Result<Self, BackendError> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Self::from_bytes(shape, DType::F32, bytes)
    }

    /// The same tensor with a quantisation description (needed for `i8` and `i4`).
    pub fn with_quant(mut self, quant: QuantSpec) -> Self {
        self.quant = Some(quant);
        self
    }

    /// Shape, element type and layout.
    pub fn desc(&self) -> &TensorDesc {
        &self.desc
    }

    /// Extent of each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.desc.shape
    }

    /// How the elements are stored.
    pub fn dtype(&self) -> DType {
        self.desc.dtype
    }

    /// The raw little-endian bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The raw bytes, shared.
    pub fn shared_bytes(&self) -> Arc<[u8]> {
        Arc::clone(&self.bytes)
    }

    /// Quantisation description, if the dtype needs one.
    pub fn quant(&self) -> Option<&QuantSpec> {
        self.quant.as_ref()
    }
}
