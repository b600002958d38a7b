//! Memory that is given back must come back.

use modelbench_contract::{Backend, Capacity, DType, DeviceKind, HostTensor, KvConfig, Result};

use super::super::finding::{CheckError, Finding};
use super::super::kv_rows::kv_store;
use crate::suite::Case;

/// Values of the axis `what`: what is made and freed.
pub const LEAKS: [&str; 4] = ["uploads", "results", "stores", "clones"];

/// Makes and frees `mib` MiB in pieces of `kib` KiB, half of it before anything is measured, so that pools and allocators
/// have their fill. After that neither the memory of the worker nor what the device reports as used may grow by more
/// than the suite's share of what went through.
pub(super) fn check<B: Backend>(
    case: &Case,
    backend: &mut B,
    resident: impl Fn() -> Option<u64>,
) -> Result<Finding, CheckError> {
    let (what, total, piece) = (case.text("what")?, case.size("mib")? << 20, case.size("kib")? << 10);
    let percent = case.limit("growth_percent", |limits| limits.growth_percent)?;
    let (pieces, elements) = ((total / piece.max(1)).max(1), (piece / 4).max(1));
    let run = |backend: &mut B, pieces: usize| -> Result<()> {
        (0..pieces).try_for_each(|_| one(what, backend, elements))?;
        backend.sync()
    };
    run(backend, pieces.div_ceil(2))?;
    let before = (resident(), used(backend)?);
    run(backend, pieces)?;
    let after = (resident(), used(backend)?);

    let mut finding = Finding::default();
    let through = (pieces * elements * 4) as u64;
    let most = through / 100 * percent;
    let mib = |bytes: u64| bytes >> 20;
    let figures =
        [("the worker's memory", before.0, after.0), ("the device's used memory", before.1, after.1)];
    let mut measured = false;
    for (whose, before, after) in figures {
        let (Some(before), Some(after)) = (before, after) else { continue };
        measured = true;
        let growth = after.saturating_sub(before);
        finding.notes.push(format!("{whose} grew by {} MiB of {}", mib(growth), mib(through)));
        finding.require(growth <= most, || {
            format!(
                "{whose} grew by {} MiB while {} MiB of {what} were made and freed; at most {} MiB may stay",
                mib(growth),
                mib(through),
                mib(most)
            )
        });
    }
    if before.1.is_none() && matches!(backend.device().kind, DeviceKind::Discrete | DeviceKind::Virtual) {
        finding
            .notes
            .push("the device's own memory was not measured: it does not tell how much is free".to_owned());
    }
    if !measured {
        let why = "neither the worker's memory nor the device's can be measured here".to_owned();
        finding.mistrusted = Some(why);
    }
    Ok(finding)
}

/// Bytes that the device says are used; `None` if it does not tell.
fn used<B: Backend>(backend: &mut B) -> Result<Option<u64>> {
    let Some(device) = backend.device_capacity() else { return Ok(None) };
    let Capacity { total, free } = device.capacity()?;
    Ok(free.map(|free| total.saturating_sub(free)))
}

/// Makes one piece of `elements` f32 and frees it.
fn one<B: Backend>(what: &str, backend: &mut B, elements: usize) -> Result<()> {
    match what {
        "uploads" => {
            let host = HostTensor::from_f32(&[elements], &vec![1.0; elements])?;
            let tensor = backend.upload(&host, DType::F32)?;
            backend.free(tensor)
        }
        "results" => {
            // An outer product: the result is large and there is next to nothing to compute.
            let side = elements.isqrt();
            let column = backend.upload(&HostTensor::from_f32(&[side, 1], &vec![1.0; side])?, DType::F32)?;
            let result = backend.batched_matmul(&column, &column)?;
            backend.free(result)?;
            backend.free(column)
        }
        _ => {
            // Three rows for each position: 3 * 64 * positions elements.
            let positions = (elements / 192).max(1);
            let config =
                KvConfig { layers: 1, kv_heads: 1, head_dim: 64, capacity: positions, theta: 10_000.0 };
            let mut kv = kv_store(backend)?.new_kv(&config)?;
            let rows = HostTensor::from_f32(&[positions, 64], &vec![1.0; positions * 64])?;
            let rows = backend.upload(&rows, DType::F32)?;
            kv_store(backend)?.append(&mut kv, 0, &rows, &rows, &rows, 0)?;
            backend.free(rows)?;
            if what == "clones" {
                let copy = kv_store(backend)?.clone_kv(&kv)?;
                kv_store(backend)?.free_kv(copy)?;
            }
            kv_store(backend)?.free_kv(kv)
        }
    }
}
