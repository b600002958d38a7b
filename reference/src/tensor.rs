//! The tensors of cpu-ref: shared, immutable storage; in-place ops copy before they write if anyone else looks on.

use std::sync::Arc;

use half::{bf16, f16};
use modelbench_contract::{DType, DeviceTensor, QuantSpec, Result, TensorDesc};

use crate::q8_0::{self, Q8};
use crate::{check, fp8, integer, q4_k};

/// How the elements of a tensor are kept.
#[derive(Debug, Clone)]
pub(crate) enum Storage {
    /// f32 values.
    F32(Arc<Vec<f32>>),
    /// Little-endian bytes of f16, bf16, fp8 or q4_k, as they came from the host.
    Bytes(Arc<[u8]>),
    /// q8_0 with f32 scales.
    Q8(Arc<Q8>),
    /// i8 or i4 codes with their scales.
    Integer(Arc<[u8]>, Arc<QuantSpec>),
}

/// A tensor of cpu-ref, row-major in host memory. Cloning shares the elements.
#[derive(Debug, Clone)]
pub struct RefTensor {
    desc: TensorDesc,
    storage: Storage,
    origin: u64,
}

impl DeviceTensor for RefTensor {
    fn desc(&self) -> &TensorDesc {
        &self.desc
    }
}

impl RefTensor {
    /// A tensor over storage that fits `desc`; `origin` is the id of the backend that made it.
    pub(crate) fn new(desc: TensorDesc, storage: Storage, origin: u64) -> Self {
        RefTensor { desc, storage, origin }
    }

    /// An f32 tensor; `values` has as many elements as `shape`.
    pub(crate) fn from_f32(shape: impl Into<Vec<usize>>, values: Vec<f32>, origin: u64) -> Self {
        Self::new(TensorDesc::new(shape, DType::F32), Storage::F32(Arc::new(values)), origin)
    }

    /// The id of the backend that made the tensor.
    pub(crate) fn origin(&self) -> u64 {
        self.origin
    }

    /// How the elements are kept.
    pub(crate) fn storage(&self) -> &Storage {
        &self.storage
    }

    /// The values, row-major, of an f32 tensor; `None` for any other dtype.
    pub fn as_f32(&self) -> Option<&[f32]> {
        match &self.storage {
            Storage::F32(values) => Some(values),
            _ => None,
        }
    }

    /// The values of an f32 tensor for writing, unshared first; `None` for any other dtype.
    pub(crate) fn as_f32_mut(&mut self) -> Option<&mut [f32]> {
        match &mut self.storage {
            Storage::F32(values) => Some(Arc::<Vec<f32>>::make_mut(values)),
            _ => None,
        }
    }

    /// Every value as f32, row-major; codes are dequantised.
    ///
    /// # Errors
    /// `ResourceExhausted` if the allocation fails.
    pub(crate) fn to_f32(&self) -> Result<Vec<f32>> {
        let mut out = check::room("values", self.desc.elements())?;
        self.widen(0, self.desc.rows(), &mut out);
        Ok(out)
    }

    /// Replaces `out` by row `row`, widened or dequantised to f32.
    pub(crate) fn widen_row(&self, row: usize, out: &mut Vec<f32>) {
        out.clear();
        self.widen(row, 1, out);
    }

    /// Appends `rows` rows from `first` to `out`. Rows are along the last dimension, so they are whole blocks.
    fn widen(&self, first: usize, rows: usize, out: &mut Vec<f32>) {
        let n = self.desc.row_len();
        let (from, to) = (first * n, (first + rows) * n);
        match &self.storage {
            Storage::F32(values) => out.extend_from_slice(&values[from..to]),
            Storage::Q8(q8) => {
                out.extend(q8_0::values(&q8.codes[from..to], &q8.scales[from / q8_0::BLOCK..]))
            }
            Storage::Integer(bytes, spec) => {
                integer::dequantise(bytes, &self.desc.shape, self.desc.dtype, spec, from, to - from, out);
            }
            Storage::Bytes(bytes) => {
                let (elements, size) = (self.desc.dtype.block_elements(), self.desc.dtype.block_bytes());
                widen_bytes(self.desc.dtype, &bytes[from / elements * size..to / elements * size], out);
            }
        }
    }
}

/// Appends the values of whole blocks of a byte-stored dtype.
fn widen_bytes(dtype: DType, bytes: &[u8], out: &mut Vec<f32>) {
    let pairs = bytes.as_chunks::<2>().0;
    match dtype {
        DType::F16 => out.extend(pairs.iter().map(|b| f16::from_le_bytes(*b).to_f32())),
        DType::Bf16 => out.extend(pairs.iter().map(|b| bf16::from_le_bytes(*b).to_f32())),
        DType::Fp8E4m3 => out.extend(bytes.iter().map(|b| fp8::e4m3_to_f32(*b))),
        DType::Fp8E5m2 => out.extend(bytes.iter().map(|b| fp8::e5m2_to_f32(*b))),
        DType::Q4K => q4_k::dequantise(bytes, out),
        // Upload gives these a storage of their own.
        DType::F32 | DType::Q8_0 | DType::I8 | DType::I4 => {}
    }
}
