//! Operands: the tensor that is uploaded, and the exact values that it stands for.

use half::{bf16, f16};
use modelbench_contract::{BackendError, DType, HostTensor};

use super::{Source, Stream};
use crate::suite::Recipe;

/// A tensor with the exact values of its elements; every value is representable in f32.
#[derive(Debug, Clone)]
pub struct Operand {
    /// Name of the operand in the op, such as `w`.
    pub name: &'static str,
    /// What is uploaded.
    pub tensor: HostTensor,
    /// The values that the bytes stand for, row-major.
    pub values: Vec<f32>,
    /// For `q4_k`, whose values are differences, the sum of the magnitudes of both parts.
    pub magnitudes: Option<Vec<f32>>,
}

impl Operand {
    /// An f32 operand from values.
    ///
    /// # Errors
    /// `InvalidArgument` if the shape does not fit the values.
    pub fn from_f32(name: &'static str, shape: &[usize], values: Vec<f32>) -> Result<Operand, BackendError> {
        Ok(Operand { name, tensor: HostTensor::from_f32(shape, &values)?, values, magnitudes: None })
    }

    /// An operand made by a recipe and stored as `dtype`.
    ///
    /// Narrow floats are rounded to nearest even, so `values` are what the backend really gets. Quantised weights are
    /// made as blocks, never quantised from reals: their exact values follow from their bytes.
    ///
    /// # Errors
    /// `InvalidArgument` if the shape is not whole blocks, or the dtype is not one that the kit makes inputs for.
    pub fn make(
        name: &'static str,
        shape: &[usize],
        dtype: DType,
        recipe: Recipe,
        stream: &Stream,
    ) -> Result<Operand, BackendError> {
        let count = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).ok_or_else(|| {
            BackendError::invalid(format!("operand {name}: shape {shape:?} overflows the address space"))
        })?;
        let source = Source::new(recipe, name, shape.last().copied().unwrap_or(1), stream);
        let reals = || (0..count as u64).map(|i| source.value(i));
        let (mut magnitudes, mut quant) = (None, None);
        let (bytes, values) = match dtype {
            DType::F32 => return Operand::from_f32(name, shape, reals().collect()),
            DType::F16 => {
                let codes: Vec<f16> = reals().map(f16::from_f32).collect();
                (
                    codes.iter().flat_map(|c| c.to_le_bytes()).collect(),
                    codes.iter().map(|c| c.to_f32()).collect(),
                )
            }
            DType::Bf16 => {
                let codes: Vec<bf16> = reals().map(bf16::from_f32).collect();
                (
                    codes.iter().flat_map(|c| c.to_le_bytes()).collect(),
                    codes.iter().map(|c| c.to_f32()).collect(),
                )
            }
            DType::Q8_0 => super::blocks::q8_0(count / 32, &source),
            DType::Q4K => {
                let blocks = super::blocks::q4_k(count / 256, &source);
                magnitudes = Some(blocks.magnitudes);
                (blocks.bytes, blocks.values)
            }
            DType::Fp8E4m3 | DType::Fp8E5m2 => super::codes::floats(count, dtype, &source),
            DType::I8 | DType::I4 => {
                let [out, inner] = *shape else {
                    return Err(BackendError::invalid(format!(
                        "operand {name}: {dtype} needs a matrix [out, in], got shape {shape:?}"
                    )));
                };
                let coded =
                    super::codes::integers([out, inner], if dtype == DType::I4 { 4 } else { 8 }, &source);
                quant = Some(coded.quant);
                (coded.bytes, coded.values)
            }
        };
        let tensor = HostTensor::from_bytes(shape, dtype, bytes)?;
        let tensor = match quant {
            Some(quant) => tensor.with_quant(quant),
            None => tensor,
        };
        Ok(Operand { name, tensor, values, magnitudes })
    }

    /// Shape of the operand.
    pub fn shape(&self) -> &[usize] {
        self.tensor.shape()
    }
}
