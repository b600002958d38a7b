//! The ops without a KV store. Shapes and dtypes are checked by the contract's own rules.

use modelbench_contract::wire::check;
use modelbench_contract::{BackendError, DeviceTensor, TensorDesc};

use crate::VulkanTensor;
use crate::formats::{Format, scales_at};
use crate::gpu::{Gpu, Result};
use crate::tensor::word;
use crate::vk::Kernel;

/// Columns of a product to a group; `OUTS` of the shader.
const OUTS: u64 = 4;
/// Rows of a product to a group where there are several; `ROWS` of the shader.
const ROWS: u64 = 4;
/// Elements to a lane; `EACH` of the shader.
const EACH: u64 = 4;
/// Lanes of a group for products and for reductions, on hardware.
const LANES: u32 = 64;
/// Logits to a group of the first stage of argmax, at least; and at most so many groups.
const LOGITS: usize = 1024;
const MOST_GROUPS: usize = 256;

/// `x[P, in]` (or `[in]` for `matmul`) times the transpose of `w[out, in]`; `desc` is the checked result's.
pub(crate) fn product(
    gpu: &mut Gpu,
    w: &VulkanTensor,
    x: &VulkanTensor,
    desc: TensorDesc,
) -> Result<VulkanTensor> {
    let (rows, outs, inner) = (desc.rows(), desc.row_len(), x.desc().row_len());
    let y = VulkanTensor::result(gpu, desc)?;
    let one = rows == 1;
    let kernel =
        kernel(w.format(), one, whole_texels(w.format(), inner) && gpu.by_texel(&[w.memory(), x.memory()]));
    let groups = (outs as u64).div_ceil(OUTS) * (rows as u64).div_ceil(if one { 1 } else { ROWS });
    let scales = scales_at(w.format(), w.desc().elements());
    let push = [word("rows", rows)?, word("out", outs)?, word("in", inner)?, word("scales", scales)?];
    let lanes = gpu.lanes(LANES);
    gpu.run(kernel, lanes, &[w.memory(), x.memory(), y.memory()], &push, groups)?;
    Ok(y)
}

/// True if rows of `inner` elements begin at whole texels, weights and activations alike.
fn whole_texels(format: Format, inner: usize) -> bool {
    let unit = match format {
        Format::F32 => 4,
        Format::F16 | Format::Bf16 => 8,
        // Rows are whole blocks.
        Format::Q8_0 | Format::Q4K => 1,
    };
    inner.is_multiple_of(unit)
}

/// The kernel of a product with one row or several, by texel or by word.
fn kernel(format: Format, one: bool, texel: bool) -> Kernel {
    let [several_by_word, one_by_word, several_by_texel, one_by_texel] = match format {
        Format::F32 => [Kernel::MatmulF32, Kernel::MatvecF32, Kernel::TexelMatmulF32, Kernel::TexelMatvecF32],
        Format::F16 => [Kernel::MatmulF16, Kernel::MatvecF16, Kernel::TexelMatmulF16, Kernel::TexelMatvecF16],
        Format::Bf16 => {
            [Kernel::MatmulBf16, Kernel::MatvecBf16, Kernel::TexelMatmulBf16, Kernel::TexelMatvecBf16]
        }
        Format::Q8_0 => {
            [Kernel::MatmulQ8_0, Kernel::MatvecQ8_0, Kernel::TexelMatmulQ8_0, Kernel::TexelMatvecQ8_0]
        }
        Format::Q4K => [Kernel::MatmulQ4K, Kernel::MatvecQ4K, Kernel::TexelMatmulQ4K, Kernel::TexelMatvecQ4K],
    };
    match (one, texel) {
        (false, false) => several_by_word,
        (true, false) => one_by_word,
        (false, true) => several_by_texel,
        (true, true) => one_by_texel,
    }
}

/// `x / sqrt(mean(x^2) + eps) * weight`, row by row.
pub(crate) fn rms_norm(
    gpu: &mut Gpu,
    x: &VulkanTensor,
    weight: &VulkanTensor,
    eps: f32,
) -> Result<VulkanTensor> {
    let desc = check::rms_norm(x.desc(), weight.desc())?;
    if !(eps.is_finite() && eps >= 0.0) {
        let text = format!("eps is {eps}; expected a finite number, at least 0");
        return Err(BackendError::invalid(text).into());
    }
    let (rows, n) = (desc.rows(), desc.row_len());
    let y = VulkanTensor::result(gpu, desc)?;
    let push = [word("rows", rows)?, word("n", n)?, eps.to_bits()];
    let lanes = gpu.lanes(LANES);
    gpu.run(Kernel::Norm, lanes, &[x.memory(), weight.memory(), y.memory()], &push, rows as u64)?;
    Ok(y)
}

/// `silu(gate) * up`.
pub(crate) fn swiglu(gpu: &mut Gpu, gate: &VulkanTensor, up: &VulkanTensor) -> Result<VulkanTensor> {
    let desc = check::swiglu(gate.desc(), up.desc())?;
    let y = VulkanTensor::result(gpu, desc)?;
    let (push, groups) = elements(y.desc())?;
    gpu.run(Kernel::Swiglu, LANES, &[gate.memory(), up.memory(), y.memory()], &push, groups)?;
    Ok(y)
}

/// `dst += src`.
pub(crate) fn add_in_place(gpu: &mut Gpu, dst: &VulkanTensor, src: &VulkanTensor) -> Result<()> {
    check::add_in_place(dst.desc(), src.desc())?;
    let (push, groups) = elements(dst.desc())?;
    gpu.run(Kernel::Add, LANES, &[src.memory(), dst.memory()], &push, groups)
}

/// `dst[.., n] += bias[n]`.
pub(crate) fn add_bias(gpu: &mut Gpu, dst: &VulkanTensor, bias: &VulkanTensor) -> Result<()> {
    check::add_bias(dst.desc(), bias.desc())?;
    let (push, groups) = elements(dst.desc())?;
    gpu.run(Kernel::Bias, LANES, &[bias.memory(), dst.memory()], &push, groups)
}

/// Push constants and groups of an op on single elements.
fn elements(desc: &TensorDesc) -> Result<([u32; 2], u64)> {
    let push = [word("the number of elements", desc.elements())?, word("n", desc.row_len())?];
    Ok((push, u64::from(push[0]).div_ceil(u64::from(LANES) * EACH)))
}

/// Index of the first maximum; waits.
pub(crate) fn argmax(gpu: &mut Gpu, logits: &VulkanTensor) -> Result<usize> {
    check::argmax(logits.desc())?;
    let n = logits.desc().elements();
    let each = n.div_ceil(MOST_GROUPS).max(LOGITS);
    let groups = n.div_ceil(each);
    let lanes = gpu.lanes(LANES);
    let partial = gpu.floats("partial maxima", 2 * groups)?;
    let push = [word("the number of logits", n)?, word("a share of them", each)?, 0];
    gpu.run(Kernel::Argmax, lanes, &[logits.memory(), &partial], &push, groups as u64)?;
    let best = if groups == 1 {
        partial
    } else {
        let best = gpu.floats("the maximum", 2)?;
        let count = word("the number of groups", groups)?;
        gpu.run(Kernel::Argmax, lanes, &[&partial, &best], &[count, count, 1], 1)?;
        best
    };
    let bytes = gpu.download(&best.whole())?;
    let index = bytes.as_chunks::<4>().0.get(1).map_or(u32::MAX, |&word| u32::from_le_bytes(word)) as usize;
    if index < n {
        return Ok(index);
    }
    Err(BackendError::internal(format!("argmax of {n} logits gave index {index}")).into())
}
