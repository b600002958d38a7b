//! Grouped-query attention in one kernel.

use modelbench_contract::wire::check;
use modelbench_contract::{AttentionSpec, BackendError, DeviceKind, DeviceTensor};

use crate::gpu::{Gpu, Result};
use crate::tensor::word;
use crate::vk::Kernel;
use crate::{VulkanKv, VulkanTensor};

/// Elements of a head to a lane; `EACH` of the shader.
const EACH: usize = 8;
/// Lanes of a group, at most.
const LANES: u32 = 64;

/// Attention of `q` over the rows of `layer`; the result has the shape of `q`.
pub(crate) fn attention(
    gpu: &mut Gpu,
    q: &VulkanTensor,
    kv: &VulkanKv,
    layer: usize,
    spec: AttentionSpec,
) -> Result<VulkanTensor> {
    let config = kv.config();
    let desc = check::attention(q.desc(), config, layer, &spec)?;
    let (rows, held) = (desc.rows(), kv.rows(layer)?);
    if held == 0 || (spec.causal && rows > held) {
        return Err(BackendError::invalid(format!(
            "{rows} query rows meet {held} positions of layer {layer}; the store must already hold the queries' positions"
        ))
        .into());
    }
    let lanes = lanes(gpu, config.head_dim);
    let chunks = config.head_dim.div_ceil(lanes as usize * EACH);
    let groups = [rows, config.kv_heads, spec.group, chunks];
    let groups = groups.iter().try_fold(1u64, |n, &extent| n.checked_mul(extent as u64));
    let push = [
        word("rows", rows)?,
        word("positions", held)?,
        word("KV heads", config.kv_heads)?,
        word("group", spec.group)?,
        word("head_dim", config.head_dim)?,
        u32::from(spec.causal),
        word("chunks", chunks)?,
        spec.scale.to_bits(),
    ];
    let y = VulkanTensor::result(gpu, desc)?;
    let (keys, values) = kv.memories(layer)?;
    let memories = [q.memory(), keys, values, y.memory()];
    let texel = config.head_dim.is_multiple_of(4) && gpu.by_texel(&[keys, values]);
    let kernel = if texel { Kernel::TexelAttention } else { Kernel::Attention };
    gpu.run(kernel, lanes, &memories, &push, groups.unwrap_or(u64::MAX))?;
    Ok(y)
}

/// As many lanes as a head fills: a software device runs idle lanes too.
fn lanes(gpu: &Gpu, head_dim: usize) -> u32 {
    if gpu.facts().kind != DeviceKind::Software {
        return LANES;
    }
    let wanted = head_dim.div_ceil(EACH).next_power_of_two().min(LANES as usize) as u32;
    wanted.max(gpu.facts().subgroup.min(LANES))
}
