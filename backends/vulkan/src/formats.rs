//! How a tensor lies in device memory: see `shaders/formats.glsl`, which reads it.

use std::borrow::Cow;

use half::{bf16, f16};
use modelbench_contract::{BackendError, DType, ErrorKind, HostTensor, QuantSpec};

use crate::float;
use crate::gpu::Result;
use crate::narrow::{self, BLOCK};

/// Bytes of a GGUF Q8_0 block: a binary16 scale and [`BLOCK`] codes.
const Q8_BYTES: usize = 2 + BLOCK;
/// Bytes of a GGUF Q4_K super-block of 256 elements.
const Q4K_BYTES: usize = 144;

/// Formats that the kernels read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    F32,
    F16,
    Bf16,
    /// All codes, then one f32 scale for each block.
    Q8_0,
    /// GGUF super-blocks.
    Q4K,
}

/// Bytes for the device.
pub(crate) struct Encoded<'a> {
    pub(crate) format: Format,
    pub(crate) bytes: Cow<'a, [u8]>,
    /// The dtype that the tensor has now.
    pub(crate) dtype: DType,
}

fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.as_chunks::<4>().0.iter().map(|&word| f32::from_le_bytes(word))
}

/// A host tensor as the device keeps it; an f32 tensor is narrowed if `wanted` is `f16`, `bf16` or `q8_0`.
///
/// # Errors
/// `InvalidArgument` for rows that are not whole blocks and for a `QuantSpec` that is missing, out of place or does not
/// fit; `Unimplemented` for static activations.
pub(crate) fn encode(tensor: &HostTensor, wanted: DType) -> Result<Encoded<'_>> {
    let (dtype, bytes) = (tensor.dtype(), tensor.bytes());
    if tensor.quant().is_some() && !matches!(dtype, DType::I8 | DType::I4) {
        let text = format!("{dtype} has a QuantSpec; expected one only with i8 and i4");
        return Err(BackendError::invalid(text).into());
    }
    let same = |format| Encoded { format, bytes: Cow::Borrowed(bytes), dtype };
    let made = |format, bytes: Vec<u8>, dtype| Encoded { format, bytes: Cow::Owned(bytes), dtype };
    Ok(match (dtype, wanted) {
        (DType::F32, DType::F16) => made(Format::F16, narrow::to_f16(floats(bytes)), wanted),
        (DType::F32, DType::Bf16) => made(Format::Bf16, narrow::to_bf16(floats(bytes)), wanted),
        (DType::F32, DType::Q8_0) => {
            let row = tensor.desc().row_len();
            if !row.is_multiple_of(BLOCK) {
                let text = format!("rows of {row} elements as q8_0; expected a multiple of {BLOCK}");
                return Err(BackendError::invalid(text).into());
            }
            let values: Vec<f32> = floats(bytes).collect();
            let (codes, scales) = narrow::to_q8_0(&values);
            made(Format::Q8_0, apart(codes, scales), wanted)
        }
        (DType::F32, _) => same(Format::F32),
        (DType::F16, _) => same(Format::F16),
        (DType::Bf16, _) => same(Format::Bf16),
        (DType::Q4K, _) => same(Format::Q4K),
        (DType::Q8_0, _) => {
            let blocks = bytes.as_chunks::<Q8_BYTES>().0;
            let codes = blocks.iter().flat_map(|block| block.iter().skip(2).copied()).collect();
            let scales = blocks.iter().map(|block| f16::from_le_bytes([block[0], block[1]]).to_f32());
            made(Format::Q8_0, apart(codes, scales.collect()), dtype)
        }
        (DType::Fp8E4m3, _) => {
            made(Format::F16, bytes.iter().flat_map(|&b| float::e4m3(b).to_le_bytes()).collect(), dtype)
        }
        (DType::Fp8E5m2, _) => {
            made(Format::F16, bytes.iter().flat_map(|&b| float::e5m2(b).to_le_bytes()).collect(), dtype)
        }
        (DType::I8, _) => {
            let codes = bytes.iter().map(|&b| f32::from(b as i8));
            made(Format::F32, widened(tensor, codes, 8)?, dtype)
        }
        (DType::I4, _) => {
            let nibble = |byte: u8| f32::from(((byte << 4) as i8) >> 4);
            let codes = bytes.iter().flat_map(|&b| [nibble(b), nibble(b >> 4)]);
            made(Format::F32, widened(tensor, codes, 4)?, dtype)
        }
    })
}

fn apart(mut codes: Vec<u8>, scales: Vec<f32>) -> Vec<u8> {
    codes.extend(scales.into_iter().flat_map(f32::to_le_bytes));
    codes
}

/// First word of the scales of a tensor of so many elements, for [`Format::Q8_0`].
pub(crate) fn scales_at(format: Format, elements: usize) -> usize {
    if format == Format::Q8_0 { elements / 4 } else { 0 }
}

/// `elements` values in f32.
pub(crate) fn decode(format: Format, bytes: &[u8], elements: usize) -> Vec<f32> {
    let halves = || bytes.as_chunks::<2>().0.iter().take(elements).copied();
    match format {
        Format::F32 => floats(bytes).take(elements).collect(),
        Format::F16 => halves().map(|h| f16::from_le_bytes(h).to_f32()).collect(),
        Format::Bf16 => halves().map(|h| bf16::from_le_bytes(h).to_f32()).collect(),
        Format::Q8_0 => {
            let (codes, scales) = bytes.split_at(elements.min(bytes.len()));
            let blocks = codes.chunks(BLOCK).zip(floats(scales));
            blocks.flat_map(|(codes, d)| codes.iter().map(move |&code| f32::from(code as i8) * d)).collect()
        }
        Format::Q4K => bytes.as_chunks::<Q4K_BYTES>().0.iter().flat_map(super_block).collect(),
    }
}

/// The 256 values of a GGUF Q4_K super-block: `(d*scale)*code - dmin*min`.
fn super_block(block: &[u8; Q4K_BYTES]) -> Vec<f32> {
    let d = f16::from_le_bytes([block[0], block[1]]).to_f32();
    let dmin = f16::from_le_bytes([block[2], block[3]]).to_f32();
    let (packed, codes) = (&block[4..16], &block[16..]);
    let pair = |j: usize| -> (u8, u8) {
        if j < 4 {
            (packed[j] & 63, packed[j + 4] & 63)
        } else {
            let low = packed[j + 4];
            ((low & 15) | ((packed[j - 4] >> 6) << 4), (low >> 4) | ((packed[j] >> 6) << 4))
        }
    };
    (0..256)
        .map(|i| {
            let j = i / 32;
            let (scale, min) = pair(j);
            let byte = codes[i / 64 * 32 + i % 32];
            let code = if j % 2 == 0 { byte & 15 } else { byte >> 4 };
            f32::from(code) * (d * f32::from(scale)) - dmin * f32::from(min)
        })
        .collect()
}

/// `(code - zero_point) * scale` as little-endian f32, blocks along the axis of the spec.
fn widened(tensor: &HostTensor, codes: impl Iterator<Item = f32>, bits: u8) -> Result<Vec<u8>> {
    let (shape, dtype) = (tensor.shape(), tensor.dtype());
    let spec = tensor.quant().ok_or_else(|| {
        BackendError::invalid(format!(
            "{dtype} of shape {shape:?} has no QuantSpec; give one with its scales"
        ))
    })?;
    if spec.static_activation.is_some() {
        let text = "this backend does not quantise activations; leave static_activation out";
        return Err(BackendError::new(ErrorKind::Unimplemented, text).into());
    }
    let blocks = spec_blocks(spec, shape, bits)?;
    let inner: usize = shape.iter().skip(spec.axis + 1).product();
    let along = blocks * spec.block * inner;
    let value = |(i, code): (usize, f32)| {
        let block = i / along * blocks * inner + i % along / (spec.block * inner) * inner + i % inner;
        // Exact for the magnitudes that `spec_blocks` lets through.
        let zero = spec.zero_points.get(block).map_or(0.0, |&z| z as f32);
        let scale = spec.scales.get(block).copied().unwrap_or(0.0);
        ((code - zero) * scale).to_le_bytes()
    };
    Ok(codes.enumerate().flat_map(value).collect())
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
            "block is {}; expected a divisor of {extent}, the axis's extent",
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
        let text = format!("QuantSpec: zero point {z}; this backend takes magnitudes up to {}", 1 << 23);
        return Err(BackendError::new(ErrorKind::Unimplemented, text).into());
    }
    Ok(extent / spec.block)
}
