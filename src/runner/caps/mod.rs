//! Rung 3: every advertised cap, proven.
//!
//! A proof rests on what the kit measures itself: values, the memory of the worker's process as the kernel counts it,
//! and the time that the serve loop spends inside the backend. Only dispatches are the backend's own word; a control run
//! shows that its counter counts.

mod asynchrony;
mod attention;
mod capacity;
mod device;
mod feed_forward;
mod graph;
mod graph_refusal;
mod narrowing;

use modelbench_contract::wire::{RemoteBackend, Transport};
use modelbench_contract::{Backend, DType, NumericProfile};

use super::finding::{CheckError, Finding};
use crate::inputs::{Operand, Stream};
use crate::suite::Case;
use crate::worker::MemoryMeter;

pub use graph::GRAPHS;
pub use graph_refusal::REFUSALS;

/// What a proof may use beside the case and the backend.
#[derive(Debug, Clone, Copy)]
pub struct Lab<'a> {
    /// Seed of every input.
    pub seed: u64,
    /// Declared arithmetic.
    pub profile: &'a NumericProfile,
    /// Memory of the worker; `None` if the backend is in this process.
    pub memory: Option<MemoryMeter>,
}

/// Names of the axes that a check of this module reads.
pub fn axes(check: &str) -> Option<&'static [&'static str]> {
    Some(match check {
        "upload-dtype" => &["dtype", "n"],
        "device-memory" | "capacity" => &["n"],
        "device-memory-growth" => &["n", "tensors"],
        "host-capacity" => &[],
        "async" => &["rows", "n", "trials"],
        "fused-attn" => &["rows", "kv", "kv_heads", "group", "head_dim"],
        "fused-ffn" => &["rows", "n", "hidden"],
        "graph-replay" => &["graph", "n"],
        "graph-refusal" => &["what"],
        _ => return None,
    })
}

/// Runs the proof of a cap.
///
/// # Errors
/// What stopped the check.
pub fn check<T: Transport>(
    case: &Case,
    remote: &mut RemoteBackend<T>,
    lab: Lab<'_>,
) -> Result<Finding, CheckError> {
    match case.group.check.as_str() {
        "upload-dtype" => narrowing::check(case, lab.seed, remote),
        "device-memory" => device::check_view(case, lab.seed, remote),
        "device-memory-growth" => device::check_growth(case, remote, lab.memory),
        "host-capacity" => capacity::check_host(remote),
        "async" => asynchrony::check(case, lab.seed, remote),
        "fused-attn" => attention::check(case, remote, lab),
        "fused-ffn" => feed_forward::check(case, remote, lab),
        "graph-replay" => graph::check(case, remote, lab),
        "graph-refusal" => graph_refusal::check(case, lab.seed, remote),
        _ => capacity::check_device(case, remote),
    }
}

/// An f32 operand of a case.
fn operand(case: &Case, seed: u64, name: &'static str, shape: &[usize]) -> Result<Operand, CheckError> {
    Ok(Operand::make(name, shape, DType::F32, case.group.input, &Stream::new(seed, &case.id, name))?)
}

/// The one operand of a check that needs no more, `n` long.
fn input(case: &Case, seed: u64) -> Result<Operand, CheckError> {
    operand(case, seed, "t", &[case.size("n")?])
}

/// Uploads operands.
fn upload<B: Backend>(backend: &mut B, operands: &[Operand]) -> Result<Vec<B::Tensor>, CheckError> {
    operands.iter().map(|operand| Ok(backend.upload(&operand.tensor, DType::F32)?)).collect()
}

/// Frees tensors.
fn free<B: Backend>(backend: &mut B, tensors: impl IntoIterator<Item = B::Tensor>) -> Result<(), CheckError> {
    for tensor in tensors {
        backend.free(tensor)?;
    }
    Ok(())
}
