//! Quantised uploads: candle's own block formats, and integer codes with a `QuantSpec`.

use std::borrow::Cow;

use candle_core::{
    Device, Tensor,
    quantized::{GgmlDType, QStorage, QTensor},
};
use modelbench_contract::{BackendError, DType, ErrorKind, HostTensor, QuantSpec};

use crate::fault::{Fault, Result};

/// The f32 values of a `q8_0`, `q4_k`, `i8` or `i4` tensor, on `device`.
///
/// # Errors
/// `InvalidArgument` if the `QuantSpec` is missing or does not fit, `Unimplemented` for other dtypes and for static
/// activations.
pub(crate) fn dequantise(tensor: &HostTensor, device: &Device) -> Result<Tensor> {
    match tensor.dtype() {
        DType::Q8_0 => blocks(tensor, GgmlDType::Q8_0, device),
        DType::Q4K => blocks(tensor, GgmlDType::Q4K, device),
        DType::I8 => codes(tensor, tensor.bytes().iter().map(|&b| f32::from(b as i8)).collect(), 8, device),
        DType::I4 => {
            let nibbles = tensor.bytes().iter().flat_map(|&b| [nibble(b), nibble(b >> 4)]).collect();
            codes(tensor, nibbles, 4, device)
        }
        other => Err(missing(format!("no dequantiser for {other}"))),
    }
}

/// The low four bits as a signed number.
fn nibble(byte: u8) -> f32 {
    f32::from(((byte << 4) as i8) >> 4)
}

fn missing(message: String) -> Fault {
    BackendError::new(ErrorKind::Unimplemented, message).into()
}

/// GGUF blocks through candle's own quantised tensor.
fn blocks(tensor: &HostTensor, dtype: GgmlDType, device: &Device) -> Result<Tensor> {
    // candle asserts both; a host tensor keeps them, but an assertion must not be what finds out otherwise.
    let bytes = tensor.bytes();
    if !bytes.len().is_multiple_of(dtype.type_size())
        || !bytes.as_ptr().addr().is_multiple_of(align_of::<half::f16>())
    {
        return Err(BackendError::internal(format!(
            "{} bytes of {} are not whole, aligned blocks",
            bytes.len(),
            tensor.dtype()
        ))
        .into());
    }
    let storage = QStorage::from_data(Cow::Borrowed(bytes), device, dtype)?;
    Ok(QTensor::new(storage, tensor.shape())?.dequantize(device)?)
}

/// `(code - zero_point) * scale`, blocks along the axis of the spec.
fn codes(tensor: &HostTensor, codes: Vec<f32>, bits: u8, device: &Device) -> Result<Tensor> {
    let shape = tensor.shape();
    let spec = tensor.quant().ok_or_else(|| {
        BackendError::invalid(format!(
            "{} of shape {shape:?} has no QuantSpec; give one with its scales",
            tensor.dtype()
        ))
    })?;
    if spec.static_activation.is_some() {
        return Err(missing(
            "this backend does not quantise activations; leave static_activation out".into(),
        ));
    }
    let blocks = spec_blocks(spec, shape, bits)?;
    let outer: usize = shape.iter().take(spec.axis).product();
    let inner: usize = shape.iter().skip(spec.axis + 1).product();
    let mut values = Tensor::from_vec(codes, (outer, blocks, spec.block, inner), device)?;
    let per_block = |data: Vec<f32>| Tensor::from_vec(data, (outer, blocks, 1, inner), device);
    if !spec.zero_points.is_empty() {
        // Exact for the magnitudes that `spec_blocks` lets through.
        let zeros = spec.zero_points.iter().map(|&z| z as f32).collect();
        values = values.broadcast_sub(&per_block(zeros)?)?;
    }
    Ok(values.broadcast_mul(&per_block(spec.scales.clone())?)?.reshape(shape)?)
}

/// Blocks along the axis, after checking that the spec fits the tensor.
fn spec_blocks(spec: &QuantSpec, shape: &[usize], bits: u8) -> Result<usize> {
    let invalid = |message: String| Err(BackendError::invalid(format!("QuantSpec: {message}")).into());
    if spec.bits != bits {
        return invalid(format!("bits is {}; expected {bits} for this dtype", spec.bits));
    }
    let Some(&extent) = shape.get(spec.axis) else {
        return invalid(format!("axis is {}; expected one of the {} dimensions", spec.axis, shape.len()));
    };
    if spec.block == 0 || !extent.is_multiple_of(spec.block) {
        return invalid(format!(
            "block is {}; expected a divisor of {extent}, the extent of the axis",
            spec.block
        ));
    }
    let scales = shape.iter().product::<usize>() / spec.block;
    if spec.scales.len() != scales {
        return invalid(format!("{} scales; expected {scales} for shape {shape:?}", spec.scales.len()));
    }
    let zero_points = if spec.symmetric { 0 } else { scales };
    if spec.zero_points.len() != zero_points {
        return invalid(format!("{} zero points; expected {zero_points}", spec.zero_points.len()));
    }
    // Up to here the difference of code and zero point is exact in f32.
    if let Some(z) = spec.zero_points.iter().find(|z| z.unsigned_abs() > 1 << 23) {
        return Err(missing(format!("zero point {z}; this backend takes magnitudes up to {}", 1 << 23)));
    }
    Ok(extent / spec.block)
}
