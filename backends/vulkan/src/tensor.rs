//! A tensor of this backend.

use modelbench_contract::{BackendError, DType, DeviceTensor, ErrorKind, HostTensor, TensorDesc};

use crate::formats::{self, Format};
use crate::gpu::{Gpu, Memory, Result};

/// A tensor in device memory; the memory goes back when it is dropped.
#[derive(Debug)]
pub struct VulkanTensor {
    desc: TensorDesc,
    format: Format,
    memory: Memory,
}

impl DeviceTensor for VulkanTensor {
    fn desc(&self) -> &TensorDesc {
        &self.desc
    }
}

/// An extent or a count as the kernels take it.
///
/// # Errors
/// `ResourceExhausted` above 2^31 - 1: kernels index by 32 bits.
pub(crate) fn word(what: &str, value: usize) -> Result<u32> {
    i32::try_from(value).map(|value| value as u32).map_err(|_| {
        let text = format!("{what} is {value}; the kernels of this backend count to {}", i32::MAX);
        BackendError::new(ErrorKind::ResourceExhausted, text).into()
    })
}

impl VulkanTensor {
    /// Copies a host tensor to the device, narrowed if that is wanted.
    ///
    /// # Errors
    /// As [`formats::encode`]; `ResourceExhausted`.
    pub(crate) fn upload(gpu: &mut Gpu, tensor: &HostTensor, wanted: DType) -> Result<VulkanTensor> {
        word("the number of elements", tensor.desc().elements())?;
        let encoded = formats::encode(tensor, wanted)?;
        let memory = gpu.filled("a tensor", &encoded.bytes)?;
        let desc = TensorDesc::new(tensor.shape(), encoded.dtype);
        Ok(VulkanTensor { desc, format: encoded.format, memory })
    }

    /// Room for an f32 result.
    pub(crate) fn result(gpu: &mut Gpu, desc: TensorDesc) -> Result<VulkanTensor> {
        let elements = desc.shape.iter().try_fold(1usize, |n, &extent| n.checked_mul(extent));
        word("the number of elements of a result", elements.unwrap_or(usize::MAX))?;
        let memory = gpu.floats("a result", desc.elements())?;
        Ok(VulkanTensor { desc, format: Format::F32, memory })
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// Waits, and gives the values in f32.
    pub(crate) fn read(&self, gpu: &mut Gpu) -> Result<Vec<f32>> {
        let bytes = gpu.download(&self.memory.whole())?;
        Ok(formats::decode(self.format, &bytes, self.desc.elements()))
    }
}
