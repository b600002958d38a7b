//! Requests that must be refused, each after a good one and before another.

use modelbench_contract::wire::Request;
use modelbench_contract::{Backend, BackendError, DType, KvConfig, KvStore};

use super::contract::{ones, require_refused, values_of};
use super::finding::Finding;
use crate::worker::Remote;

/// Values of the axis `what` of the check `refusal`.
pub const REFUSALS: [&str; 18] = [
    "matmul-inner",
    "matmul-rank",
    "batched-inner",
    "norm-weight",
    "rope-odd-head",
    "rope-width",
    "swiglu-shapes",
    "add-shapes",
    "bias-length",
    "argmax-rank",
    "attention-layer",
    "attention-width",
    "attention-group",
    "kv-position",
    "kv-width",
    "upload-short",
    "upload-zero",
    "upload-blocks",
];

/// A bad request of a kind, with operands that exist.
fn bad(what: &str, remote: &mut Remote) -> Result<(Request, Vec<u8>), BackendError> {
    let config = KvConfig { layers: 2, kv_heads: 2, head_dim: 4, capacity: 8, theta: 10_000.0 };
    let vector = ones(remote, &[8])?;
    let short = ones(remote, &[6])?;
    let matrix = ones(remote, &[3, 8])?;
    let out = remote.new_handle();
    let filled = |remote: &mut Remote| -> Result<u64, BackendError> {
        let kv = remote.new_kv(&config)?;
        let rows =
            Request::KvAppend { kv: kv.handle, layer: 0, k_raw: vector, k_rope: vector, v: vector, pos: 0 };
        remote.submit(&rows, &[])?;
        remote.submit(
            &Request::KvAppend { kv: kv.handle, layer: 1, k_raw: vector, k_rope: vector, v: vector, pos: 0 },
            &[],
        )?;
        Ok(kv.handle)
    };
    let rope =
        |n_heads, head_dim| Request::Rope { out, x: vector, pos: 0, n_heads, head_dim, theta: 10_000.0 };
    let attend =
        |kv, q, layer, group| Request::Attention { out, q, kv, layer, group, scale: 0.5, causal: true };
    let append = |kv, row, pos| Request::KvAppend { kv, layer: 0, k_raw: row, k_rope: row, v: row, pos };
    let upload = |shape: &[usize], dtype| Request::Upload {
        out,
        shape: shape.to_vec(),
        dtype,
        as_dtype: dtype,
        quant: None,
    };
    Ok(match what {
        "matmul-inner" => (Request::Matmul { out, w: matrix, x: short }, Vec::new()),
        "matmul-rank" => (Request::Matmul { out, w: vector, x: vector }, Vec::new()),
        "batched-inner" => (Request::BatchedMatmul { out, w: matrix, x: vector }, Vec::new()),
        "norm-weight" => (Request::RmsNorm { out, x: vector, weight: short, eps: 1e-5 }, Vec::new()),
        "rope-odd-head" => (rope(8, 1), Vec::new()),
        "rope-width" => (rope(3, 4), Vec::new()),
        "swiglu-shapes" => (Request::Swiglu { out, gate: vector, up: short }, Vec::new()),
        "add-shapes" => (Request::AddInPlace { dst: vector, src: short }, Vec::new()),
        "bias-length" => (Request::AddBias { dst: matrix, bias: short }, Vec::new()),
        "argmax-rank" => (Request::Argmax { logits: matrix }, Vec::new()),
        "attention-layer" => (attend(filled(remote)?, vector, 2, 1), Vec::new()),
        "attention-width" => (attend(filled(remote)?, short, 0, 1), Vec::new()),
        "attention-group" => (attend(filled(remote)?, vector, 0, 0), Vec::new()),
        "kv-position" => (append(filled(remote)?, vector, 5), Vec::new()),
        "kv-width" => (append(filled(remote)?, short, 1), Vec::new()),
        "upload-short" => (upload(&[4], DType::F32), vec![0; 12]),
        "upload-zero" => (upload(&[0], DType::F32), Vec::new()),
        _ => (upload(&[33], DType::Q8_0), vec![0; 34]),
    })
}

/// A bad request and its body, with operands that are ready.
pub type Bad = (Request, Vec<u8>);

/// Makes one of [`REFUSALS`] and everything that it speaks of, and waits until that is there.
///
/// # Errors
/// The backend's.
pub fn prepare(what: &str, remote: &mut Remote) -> Result<Bad, BackendError> {
    let bad = bad(what, remote)?;
    remote.sync()?;
    Ok(bad)
}

/// Sends a bad request, whatever is under way, and requires that it is refused, with its op, at the next fence.
///
/// # Errors
/// What ended the worker.
pub fn provoke(
    finding: &mut Finding,
    what: &str,
    (request, body): Bad,
    remote: &mut Remote,
) -> Result<(), BackendError> {
    let answer = if request.is_fence() {
        remote.call(&request, &body, 1 << 16).map(|_| ())
    } else {
        remote.submit(&request, &body)?;
        remote.sync()
    };
    if let Err(error) = &answer {
        let (got, want) = (error.op, request.op());
        finding.require(got == want, || format!("the error names {got:?}, the request was {want:?}"));
    }
    require_refused(finding, what, answer)
}

/// Sends a bad request between two good ones.
///
/// # Errors
/// What stopped the check.
pub fn check(what: &str, remote: &mut Remote) -> Result<Finding, BackendError> {
    let mut finding = Finding::default();
    let witness = ones(remote, &[5])?;
    let bad = prepare(what, remote)?;
    provoke(&mut finding, what, bad, remote)?;

    let now = values_of(remote, witness)?;
    finding.output(&now);
    finding.quality.elements = now.len() as u64;
    finding.require(now == [1.0; 5], || "an earlier tensor changed".to_owned());
    let (gate, up) = (ones(remote, &[4])?, ones(remote, &[4])?);
    remote.submit(&Request::AddInPlace { dst: gate, src: up }, &[])?;
    let sum = values_of(remote, gate)?;
    finding.require(sum == [2.0; 4], || format!("a good call afterwards gave {sum:?}"));
    Ok(finding)
}
