//! Rung 0: the contract itself. Bad requests are sent raw, past the client's own checks.

use std::collections::BTreeMap;

use modelbench_contract::wire::{Request, Response};
use modelbench_contract::{
    Backend, BackendError, DType, DeviceTensor, ErrorKind, HostTensor, KvConfig, KvStore, is_backend_id,
};

use super::finding::{CheckError, Finding};
use super::ops;
use super::refusal;
use crate::bundled::MOCK_PREFIX;
use crate::compare::first_difference;
use crate::inputs::{Operand, Stream, value};
use crate::suite::Case;
use crate::worker::Remote;

pub use super::refusal::REFUSALS;

/// Values of the axis `what` of the check `lifetime`.
pub const LIFETIMES: [&str; 5] =
    ["read-after-free", "double-free", "use-after-free", "unknown-handle", "kv-after-free"];

/// Names of the axes that a check of this file reads.
pub fn axes(check: &str) -> Option<&'static [&'static str]> {
    Some(match check {
        "identity" => &[],
        "round-trip" => &["dtype", "n"],
        "host-view" => &["n"],
        "lifetime" | "refusal" => &["what"],
        "kv-store" => &["layers", "kv"],
        _ => return None,
    })
}

/// Runs a check of the contract.
///
/// # Errors
/// What stopped it.
pub fn check(case: &Case, seed: u64, remote: &mut Remote) -> Result<Finding, CheckError> {
    match case.group.check.as_str() {
        "identity" => Ok(identity(remote)?),
        "round-trip" => round_trip(case, seed, remote),
        "host-view" => host_view(case, seed, remote),
        "lifetime" => Ok(lifetime(case.text("what")?, remote)?),
        "refusal" => Ok(refusal::check(case.text("what")?, remote)?),
        _ => kv_store(case, seed, remote),
    }
}

fn identity(remote: &mut Remote) -> Result<Finding, BackendError> {
    let mut finding = Finding::default();
    let first = remote.identity();
    for _ in 0..3 {
        let now = remote.refresh_identity()?;
        finding.require(now == first, || "the identity differs between two questions".to_owned());
    }
    let id = first.name.strip_prefix(MOCK_PREFIX).unwrap_or(&first.name);
    finding.require(is_backend_id(id), || {
        format!("{:?} is no backend id: [a-z0-9][a-z0-9-]{{0,31}}", first.name)
    });
    let told =
        [("version", &first.version), ("tier", &first.tier), ("device.hardware", &first.device.hardware)];
    for (field, text) in told {
        finding.require(!text.trim().is_empty(), || format!("{field} is empty"));
    }
    Ok(finding)
}

fn round_trip(case: &Case, seed: u64, remote: &mut Remote) -> Result<Finding, CheckError> {
    let (n, dtype) = (case.size("n")?, ops::dtype(case)?);
    let stream = Stream::new(seed, &case.id, "t");
    let mut operand = Operand::make("t", &[n], dtype, case.group.input, &stream)?;
    if dtype == DType::F32 {
        let special =
            [f32::INFINITY, f32::NEG_INFINITY, -0.0, f32::MAX, f32::MIN_POSITIVE, f32::from_bits(1)];
        let mut values = operand.values;
        let flushes = remote.numerics().flush_to_zero;
        for (at, value) in values.iter_mut().zip(special).filter(|(_, v)| !(flushes && v.is_subnormal())) {
            *at = value;
        }
        operand = Operand::from_f32("t", &[n], values)?;
    }
    let tensor = remote.upload(&operand.tensor, dtype)?;
    let mut finding = Finding::default();
    for _ in 0..2 {
        let got = remote.read(&tensor)?;
        finding.output(&got);
        finding.quality.elements += got.len() as u64;
        if let Some(at) = first_difference(&got, &operand.values) {
            let (got, want) = (got.get(at), operand.values.get(at));
            finding.wrong.push(format!("[{at}] reads {got:?}, {want:?} was uploaded"));
        }
    }
    remote.free(tensor)?;
    Ok(finding)
}

fn host_view(case: &Case, seed: u64, remote: &mut Remote) -> Result<Finding, CheckError> {
    let n = case.size("n")?;
    let operand = Operand::make("t", &[n], DType::F32, case.group.input, &Stream::new(seed, &case.id, "t"))?;
    let tensor = remote.upload(&operand.tensor, DType::F32)?;
    let mut finding = Finding::default();
    let wrong = match remote.host(&tensor)? {
        None => None,
        Some(view) => first_difference(&view, &operand.values),
    };
    finding.quality.elements = n as u64;
    finding.require(wrong.is_none(), || format!("the view differs from the tensor at {wrong:?}"));
    finding.output(&operand.values);
    remote.free(tensor)?;
    Ok(finding)
}

/// Requires that the last request is refused as invalid at the next fence.
pub(super) fn require_refused(
    finding: &mut Finding,
    what: &str,
    answer: Result<(), BackendError>,
) -> Result<(), BackendError> {
    match answer {
        Ok(()) => finding.wrong.push(format!("{what} was accepted")),
        Err(error) if error.kind == ErrorKind::InvalidArgument => {}
        // The worker is gone: the caller finds out why.
        Err(error) if error.kind == ErrorKind::Unavailable => return Err(error),
        Err(error) => finding.wrong.push(format!("{what}: want invalid-argument, got {error}")),
    }
    Ok(())
}

fn lifetime(what: &str, remote: &mut Remote) -> Result<Finding, BackendError> {
    let mut finding = Finding::default();
    let values = [1.0, 2.0, 3.0, 4.0];
    let host = HostTensor::from_f32(&[4], &values)?;
    let keep = remote.upload(&host, DType::F32)?;
    let gone = remote.upload(&host, DType::F32)?;
    let handle = gone.handle;
    let read = Request::Read { tensor: handle };
    let answer = match what {
        "unknown-handle" => {
            let absent = remote.new_handle();
            remote.call(&Request::Read { tensor: absent }, &[], 64).map(|_| ())
        }
        "kv-after-free" => {
            let config = KvConfig { layers: 1, kv_heads: 1, head_dim: 2, capacity: 4, theta: 10_000.0 };
            let kv = remote.new_kv(&config)?;
            let handle = kv.handle;
            remote.free_kv(kv)?;
            remote.sync()?;
            remote.call(&Request::KvLen { kv: handle }, &[], 64).map(|_| ())
        }
        _ => {
            remote.free(gone)?;
            remote.sync()?;
            match what {
                "read-after-free" => remote.call(&read, &[], 64).map(|_| ()),
                "double-free" => {
                    remote.submit(&Request::Free { tensor: handle }, &[])?;
                    remote.sync()
                }
                _ => {
                    let out = remote.new_handle();
                    remote.submit(&Request::Swiglu { out, gate: handle, up: keep.handle }, &[])?;
                    remote.sync()
                }
            }
        }
    };
    require_refused(&mut finding, what, answer)?;
    let now = remote.read(&keep)?;
    finding.output(&now);
    finding.quality.elements = now.len() as u64;
    finding.require(first_difference(&now, &values).is_none(), || "the neighbour changed".to_owned());
    remote.free(keep)?;
    Ok(finding)
}

fn kv_store(case: &Case, seed: u64, remote: &mut Remote) -> Result<Finding, CheckError> {
    let (layers, held) = (case.size("layers")?, case.size("kv")?);
    let config = KvConfig { layers, kv_heads: 2, head_dim: 4, capacity: held, theta: 10_000.0 };
    let width = config.row_len();
    let mut kv = remote.new_kv(&config)?;
    let mut want = BTreeMap::new();
    for layer in 0..layers {
        let make = |name: &str| -> Vec<f32> {
            let stream = Stream::new(seed, &case.id, &format!("{name}{layer}"));
            (0..(held * width) as u64).map(|i| value(case.group.input, &stream, i)).collect()
        };
        let (raw, rope, v) = (make("k_raw"), make("k_rope"), make("v"));
        // One row first, then the rest as a block: both ways of appending meet in one store.
        for (from, to) in [(0, 1), (1, held)].into_iter().filter(|(from, to)| from < to) {
            let mut upload = |rows: &[f32]| {
                let shape = if to - from == 1 { vec![width] } else { vec![to - from, width] };
                let host = HostTensor::from_f32(&shape, &rows[from * width..to * width])?;
                remote.upload(&host, DType::F32)
            };
            let rows = [upload(&raw)?, upload(&rope)?, upload(&v)?];
            remote.append(&mut kv, layer, &rows[0], &rows[1], &rows[2], from)?;
            for row in rows {
                remote.free(row)?;
            }
        }
        want.insert(layer, (rope, v));
    }
    let mut finding = Finding::default();
    let len = KvStore::len(remote, &kv)?;
    finding.require(len == held, || format!("len is {len}, want {held}"));
    let positions = remote.positions(&kv)?;
    finding.require(positions == (0..held).collect::<Vec<_>>(), || format!("positions are {positions:?}"));
    for (layer, (keys, values)) in &want {
        let got = [remote.keys(&kv, *layer)?, remote.values(&kv, *layer)?];
        for (name, got, want) in [("keys", &got[0], keys), ("values", &got[1], values)] {
            finding.output(got);
            finding.quality.elements += got.len() as u64;
            if let Some(at) = first_difference(got, want) {
                let (got, want) = (got.get(at), want.get(at));
                finding.wrong.push(format!("layer {layer}: {name}[{at}] is {got:?}, {want:?} was appended"));
            }
        }
    }
    remote.free_kv(kv)?;
    remote.sync()?;
    Ok(finding)
}

/// A tensor of ones and its handle, for requests that are meant to be refused.
pub(super) fn ones(remote: &mut Remote, shape: &[usize]) -> Result<u64, BackendError> {
    let host = HostTensor::from_f32(shape, &vec![1.0; shape.iter().product()])?;
    let tensor = remote.upload(&host, DType::F32)?;
    debug_assert_eq!(tensor.desc().shape, shape);
    Ok(tensor.handle)
}

/// The values of a handle.
pub(super) fn values_of(remote: &mut Remote, handle: u64) -> Result<Vec<f32>, BackendError> {
    let (response, body) = remote.call(&Request::Read { tensor: handle }, &[], 1 << 16)?;
    match response {
        Response::Values { .. } => {
            Ok(body.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
        }
        other => Err(BackendError::internal(format!("wrong shape: read answered {other:?}"))),
    }
}
