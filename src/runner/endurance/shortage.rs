//! More memory than there can be: refused, and nothing else happens.

use modelbench_contract::{Backend, BackendError, DType, ErrorKind, HostTensor, KvConfig, Result};

use super::super::finding::{CheckError, Finding};
use super::super::kv_rows::kv_store;
use crate::compare::first_difference;
use crate::suite::Case;

/// Values of the axis `what`: a result of 2^45 elements, a store of 2^40 positions, one of 2^32 heads.
pub const SHORTAGES: [&str; 3] = ["result", "positions", "heads"];

/// What a request for more than there is needs: nothing for a store, two columns for a product.
struct Request<T> {
    columns: Option<[T; 2]>,
}

impl<T> Request<T> {
    fn prepare<B: Backend<Tensor = T>>(what: &str, backend: &mut B) -> Result<Request<T>> {
        if what != "result" {
            return Ok(Request { columns: None });
        }
        // An outer product of 2^47 bytes from operands of 48 MiB.
        let mut column =
            |rows: usize| backend.upload(&HostTensor::from_f32(&[rows, 1], &vec![1.0; rows])?, DType::F32);
        Ok(Request { columns: Some([column(1 << 23)?, column(1 << 22)?]) })
    }

    /// Asks for more than any machine's address space holds, and waits for the answer.
    fn send<B: Backend<Tensor = T>>(&self, what: &str, backend: &mut B) -> Result<()> {
        if let Some([w, x]) = &self.columns {
            return backend.batched_matmul(w, x).and_then(|_| backend.sync());
        }
        let store = KvConfig { layers: 1, kv_heads: 8, head_dim: 128, capacity: 1, theta: 10_000.0 };
        let config = if what == "heads" {
            KvConfig { kv_heads: 1 << 32, capacity: 1 << 10, ..store }
        } else {
            KvConfig { capacity: 1 << 40, ..store }
        };
        kv_store(backend)?.new_kv(&config).and_then(|_| backend.sync())
    }

    fn free<B: Backend<Tensor = T>>(self, backend: &mut B) -> Result<()> {
        self.columns.into_iter().flatten().try_for_each(|column| backend.free(column))
    }
}

/// The request must be refused as exhausted or invalid; tensors from before must be unchanged and a good call must work.
pub(super) fn check<B: Backend>(case: &Case, backend: &mut B) -> Result<Finding, CheckError> {
    let what = case.text("what")?;
    let values: Vec<f32> = (0..64).map(|i| i as f32 - 31.0).collect();
    let host = HostTensor::from_f32(&[64], &values)?;
    let keep = backend.upload(&host, DType::F32)?;
    let good = |backend: &mut B| -> Result<Vec<f32>> {
        let mut sum = backend.upload(&host, DType::F32)?;
        backend.add_in_place(&mut sum, &keep)?;
        let values = backend.read(&sum)?;
        backend.free(sum)?;
        Ok(values)
    };
    let before = good(backend)?;
    let mut finding = Finding::default();
    let request = Request::prepare(what, backend)?;
    for _ in 0..2 {
        match request.send(what, backend) {
            Ok(()) => finding.wrong.push(format!("{what}: more memory than there can be was granted")),
            Err(error) => judge(&mut finding, what, error)?,
        }
        let after = good(backend)?;
        finding.output(&after);
        finding.quality.elements += after.len() as u64;
        finding.require(first_difference(&after, &before).is_none(), || {
            format!("{what}: a good call afterwards gave something else than before")
        });
    }
    request.free(backend)?;
    let now = backend.read(&keep)?;
    finding
        .require(first_difference(&now, &values).is_none(), || format!("{what}: an earlier tensor changed"));
    backend.free(keep)?;
    Ok(finding)
}

fn judge(finding: &mut Finding, what: &str, error: BackendError) -> Result<(), BackendError> {
    match error.kind {
        ErrorKind::ResourceExhausted | ErrorKind::InvalidArgument => {
            let note = format!("{what}: refused as {}", error.kind.as_str());
            if !finding.notes.contains(&note) {
                finding.notes.push(note);
            }
            Ok(())
        }
        // The worker is gone, or the op is missing: the caller knows what that means.
        ErrorKind::Unavailable | ErrorKind::DeviceLost | ErrorKind::Unimplemented => Err(error),
        _ => {
            finding.wrong.push(format!("{what}: want resource-exhausted or invalid-argument, got {error}"));
            Ok(())
        }
    }
}
