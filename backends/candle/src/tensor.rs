//! A tensor of this backend.

use candle_core::{DType as CandleDType, Device, Tensor};
use modelbench_contract::{BackendError, DType, DeviceTensor, HostTensor, TensorDesc};

use crate::{
    fault::Result,
    quant,
    shape::{admit, product},
};

/// A candle tensor with the description that the contract wants.
///
/// f32, f16, bf16 and fp8 e4m3 stay resident in that type; fp8 e5m2 is resident as f16, of which it is the upper
/// byte. The other quantised types are dequantised to f32 once, at upload.
#[derive(Debug)]
pub struct CandleTensor {
    desc: TensorDesc,
    values: Tensor,
}

impl DeviceTensor for CandleTensor {
    fn desc(&self) -> &TensorDesc {
        &self.desc
    }
}

impl CandleTensor {
    /// An f32 result; shape is the shape of `values`.
    pub(crate) fn from_f32(values: Tensor) -> Self {
        CandleTensor { desc: TensorDesc::new(values.dims(), DType::F32), values }
    }

    /// Copies a host tensor to `device`.
    ///
    /// # Errors
    /// `InvalidArgument` for a `QuantSpec` that is missing, out of place or does not fit; `ResourceExhausted`.
    pub(crate) fn upload(tensor: &HostTensor, device: &Device) -> Result<Self> {
        let (shape, bytes) = (tensor.shape(), tensor.bytes());
        product("shape", shape)?;
        if tensor.quant().is_some() && !matches!(tensor.dtype(), DType::I8 | DType::I4) {
            return Err(BackendError::invalid(format!(
                "{} of shape {shape:?} has a QuantSpec; expected one only with i8 and i4",
                tensor.dtype()
            ))
            .into());
        }
        let resident = |dtype, bytes: &[u8]| Tensor::from_raw_buffer(bytes, dtype, shape, device);
        let values = match tensor.dtype() {
            DType::F32 => resident(CandleDType::F32, bytes)?,
            DType::F16 => resident(CandleDType::F16, bytes)?,
            DType::Bf16 => resident(CandleDType::BF16, bytes)?,
            DType::Fp8E4m3 => resident(CandleDType::F8E4M3, bytes)?,
            DType::Fp8E5m2 => {
                let halves: Vec<u8> = bytes.iter().flat_map(|&b| [0, b]).collect();
                resident(CandleDType::F16, &halves)?
            }
            DType::Q8_0 | DType::Q4K | DType::I8 | DType::I4 => {
                admit("dequantised tensor", shape)?;
                quant::dequantise(tensor, device)?
            }
        };
        Ok(CandleTensor { desc: tensor.desc().clone(), values })
    }

    /// The values as they are resident.
    pub(crate) fn resident(&self) -> &Tensor {
        &self.values
    }

    /// The values in f32, exactly; shares the resident tensor if it is f32 already.
    pub(crate) fn widened(&self) -> Result<Tensor> {
        if self.values.dtype() != CandleDType::F32 {
            admit("widened tensor", &self.desc.shape)?;
        }
        Ok(self.values.to_dtype(CandleDType::F32)?)
    }

    /// Replaces the values of an f32 tensor by others of the same shape.
    pub(crate) fn replace(&mut self, values: Tensor) -> Result<()> {
        if values.dims() != self.desc.shape {
            return Err(BackendError::internal(format!(
                "a result of shape {:?} cannot replace a tensor of shape {:?}",
                values.dims(),
                self.desc.shape
            ))
            .into());
        }
        self.values = values;
        Ok(())
    }

    /// The values on the host, row-major f32.
    pub(crate) fn to_host(&self) -> Result<Vec<f32>> {
        Ok(self.widened()?.flatten_all()?.to_vec1::<f32>()?)
    }
}
