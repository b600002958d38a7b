//! The barriers of the stream.

use vulkano::sync::{AccessFlags, DependencyInfo, MemoryBarrier, PipelineStages};

/// Everything that kernels and copies did is done and visible before kernels and copies go on.
pub(super) fn between() -> DependencyInfo {
    whole(MemoryBarrier {
        src_stages: PipelineStages::COMPUTE_SHADER | PipelineStages::ALL_TRANSFER,
        src_access: AccessFlags::SHADER_WRITE | AccessFlags::TRANSFER_WRITE,
        dst_stages: PipelineStages::COMPUTE_SHADER | PipelineStages::ALL_TRANSFER,
        dst_access: AccessFlags::SHADER_READ
            | AccessFlags::SHADER_WRITE
            | AccessFlags::TRANSFER_READ
            | AccessFlags::TRANSFER_WRITE,
        ..MemoryBarrier::default()
    })
}

/// Everything that was written is visible to the host once it has waited.
pub(super) fn towards_host() -> DependencyInfo {
    whole(MemoryBarrier {
        src_stages: PipelineStages::ALL_COMMANDS,
        src_access: AccessFlags::MEMORY_WRITE,
        dst_stages: PipelineStages::HOST,
        dst_access: AccessFlags::HOST_READ,
        ..MemoryBarrier::default()
    })
}

fn whole(barrier: MemoryBarrier) -> DependencyInfo {
    DependencyInfo { memory_barriers: [barrier].into_iter().collect(), ..DependencyInfo::default() }
}
