//! From host tensors to cpu-ref's own, narrowing f32 where asked.
//!
//! Narrowing rounds to nearest even (`q8_0`: see [`crate::ops::quantise_q8_0`]). fp8 does not saturate: `e4m3` overflows
//! to NaN and `e5m2` to infinity, as in the OCP specification's non-saturating mode.

use std::sync::Arc;

use half::{bf16, f16};
use modelbench_contract::{BackendError, DType, ErrorKind, HostTensor, Result, TensorDesc};

use crate::tensor::Storage;
use crate::{RefTensor, check, fp8, integer, q8_0};

/// Takes a host tensor as `as_dtype`.
///
/// # Errors
/// `InvalidArgument` if an i8 or i4 tensor lacks a fitting `QuantSpec` or another tensor has one, if the tensor is not
/// f32 and `as_dtype` differs from its dtype, or if rows are not whole blocks of `as_dtype`; `Unimplemented` for f32 as
/// q4_k, i8 or i4; `ResourceExhausted` if an allocation fails.
pub(crate) fn upload(tensor: &HostTensor, as_dtype: DType, origin: u64) -> Result<RefTensor> {
    check_quant(tensor)?;
    let storage = match (tensor.dtype(), as_dtype) {
        (from, to) if from == to => keep(tensor)?,
        (DType::F32, to) => narrow(tensor, to)?,
        (from, to) => {
            return Err(BackendError::invalid(format!(
                "{from} tensor of shape {:?} as {to}: only f32 tensors can be converted; upload it as {from}",
                tensor.shape()
            )));
        }
    };
    Ok(RefTensor::new(TensorDesc::new(tensor.shape(), as_dtype), storage, origin))
}

/// `i8` and `i4` need a `QuantSpec`; a spec on any other dtype would be ignored, so it is refused.
fn check_quant(tensor: &HostTensor) -> Result<()> {
    let dtype = tensor.dtype();
    match (dtype, tensor.quant()) {
        (DType::I8 | DType::I4, Some(spec)) => integer::check_spec(tensor.shape(), dtype, spec),
        (DType::I8 | DType::I4, None) => Err(BackendError::invalid(format!(
            "{dtype} tensor of shape {:?} has no QuantSpec; expected one with its scales",
            tensor.shape()
        ))),
        (_, Some(_)) => Err(BackendError::invalid(format!(
            "{dtype} tensor of shape {:?} has a QuantSpec; expected one on i8 and i4 only, leave it out",
            tensor.shape()
        ))),
        (_, None) => Ok(()),
    }
}

fn keep(tensor: &HostTensor) -> Result<Storage> {
    match (tensor.dtype(), tensor.quant()) {
        (DType::F32, _) => Ok(Storage::F32(Arc::new(values(tensor)?))),
        (DType::Q8_0, _) => Ok(Storage::Q8(Arc::new(q8_0::from_gguf(tensor.bytes())?))),
        (_, Some(spec)) => Ok(Storage::Integer(tensor.shared_bytes(), Arc::new(spec.clone()))),
        (_, None) => Ok(Storage::Bytes(tensor.shared_bytes())),
    }
}

fn narrow(tensor: &HostTensor, to: DType) -> Result<Storage> {
    let values = values(tensor)?;
    let bytes: Vec<u8> = match to {
        DType::F16 => pairs(&values, |v| f16::from_f32(v).to_le_bytes())?,
        DType::Bf16 => pairs(&values, |v| bf16::from_f32(v).to_le_bytes())?,
        DType::Fp8E4m3 => bytes(&values, fp8::f32_to_e4m3)?,
        DType::Fp8E5m2 => bytes(&values, fp8::f32_to_e5m2)?,
        DType::Q8_0 => {
            if !tensor.desc().row_len().is_multiple_of(q8_0::BLOCK) {
                return Err(BackendError::invalid(format!(
                    "f32 tensor of shape {:?} as q8_0: expected a last dimension that is a multiple of {}",
                    tensor.shape(),
                    q8_0::BLOCK
                )));
            }
            return Ok(Storage::Q8(Arc::new(q8_0::quantise(&values)?)));
        }
        DType::F32 => return Ok(Storage::F32(Arc::new(values))),
        DType::Q4K | DType::I8 | DType::I4 => {
            return Err(BackendError::new(
                ErrorKind::Unimplemented,
                format!("cpu-ref does not quantise f32 to {to}; upload the tensor already as {to}"),
            ));
        }
    };
    Ok(Storage::Bytes(bytes.into()))
}

fn values(tensor: &HostTensor) -> Result<Vec<f32>> {
    let words = tensor.bytes().as_chunks::<4>().0;
    let mut values = check::room("uploaded values", words.len())?;
    values.extend(words.iter().map(|b| f32::from_le_bytes(*b)));
    Ok(values)
}

fn pairs(values: &[f32], narrow: impl Fn(f32) -> [u8; 2]) -> Result<Vec<u8>> {
    // The f32 values exist already, so half of their size cannot overflow.
    let mut bytes = check::room("narrowed values", values.len() * 2)?;
    bytes.extend(values.iter().flat_map(|v| narrow(*v)));
    Ok(bytes)
}

fn bytes(values: &[f32], narrow: impl Fn(f32) -> u8) -> Result<Vec<u8>> {
    let mut bytes = check::room("narrowed values", values.len())?;
    bytes.extend(values.iter().map(|v| narrow(*v)));
    Ok(bytes)
}
