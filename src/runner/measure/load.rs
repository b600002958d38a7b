//! A known load: what it costs the worker, what it costs cpu-ref, and what the device counts meanwhile.
//!
//! Matrix products over {-1, 0, 1}, few enough terms for the declared accumulator to hold every sum exactly: the
//! answers are known to the bit, whatever the order, so that work that was not done shows. Every product has a new
//! activation, so that none can be answered from memory.

use std::thread;
use std::time::Duration;

use modelbench_contract::{Backend, DType, ErrorKind, HostTensor, Identity, Precision, Result};
use modelbench_evidence::counters::CounterReading;
use modelbench_evidence::gate;
use modelbench_evidence::measured::{Load, Reading};
use modelbench_reference::CpuRef;

use super::super::finding::CheckError;
use crate::inputs::Stream;
use crate::worker::{Worker, cpu_time, own_cpu_time};

/// Rows of the weight times terms of a row.
const WEIGHT: usize = 1 << 20;
/// Most terms of a row.
const MOST_TERMS: usize = 1 << 10;
/// Rows of an activation.
const ROWS: usize = 64;
/// CPU time that cpu-ref spends on the load, in nanoseconds: a quarter more than the least that tells something.
const REFERENCE_NS: u64 = 1_250_000_000;
/// NVIDIA's library samples utilisation up to a second apart, so that a reading needs such a rest around the load.
const SAMPLE: Duration = Duration::from_secs(1);
/// Most products, should cpu-ref ever be that fast.
const MOST_CALLS: u64 = 4096;

/// Both readings around the load.
pub(super) struct Place {
    pub(super) load: Reading<Load>,
    pub(super) counters: Reading<CounterReading>,
}

/// Runs the load on cpu-ref and on the worker. A device that is a CPU, openly or not, is not asked: the work is done by
/// a CPU whoever does it.
pub(super) fn measure(
    worker: &mut Worker,
    identity: &Identity,
    stream: &Stream,
) -> Result<Reading<Place>, CheckError> {
    if let Some(why) = gate::without_place(identity.device.kind) {
        return Ok(Reading::NotMeasured(why.to_owned()));
    }
    let shape = Shape::for_accumulator(identity.numerics.accumulator);
    let defect =
        |e: modelbench_contract::BackendError| CheckError::Kit(format!("cpu-ref refused the load: {e}"));
    let weight = shape.weight(stream).map_err(defect)?;
    let reference = Reference::run(&shape, &weight, stream).map_err(defect)?;
    let pid = worker.pid();
    let meter = worker.counters();
    let remote = worker.remote();
    let w = remote.upload(&weight, DType::F32)?;
    // The first product pays for whatever a backend prepares once.
    shape.product(remote, &w, &shape.activation(stream, MOST_CALLS))?;
    let counted = meter.read();
    thread::sleep(SAMPLE);
    let cpu = cpu_time(pid);
    let mut wrong = None;
    for (call, want) in reference.answers.iter().enumerate() {
        let got = shape.product(remote, &w, &shape.activation(stream, call as u64))?;
        if wrong.is_none() && got != *want {
            wrong = Some(format!("product {} of {} is wrong", call + 1, reference.answers.len()));
        }
    }
    let cpu_after = cpu_time(pid);
    thread::sleep(SAMPLE);
    let counted_after = meter.read();
    remote.free(w)?;
    let load = match (cpu, cpu_after) {
        (Some(before), Some(after)) => Reading::Measured(Load {
            calls: reference.answers.len() as u64,
            multiplications: (WEIGHT * ROWS) as u64,
            // What the clock may have missed counts against the claim.
            worker_cpu_ns: after.ns.saturating_sub(before.ns).saturating_add(after.resolution_ns),
            reference_cpu_ns: reference.ns,
            wrong,
        }),
        _ => Reading::NotMeasured("the operating system does not tell the CPU time of a process".to_owned()),
    };
    Ok(Reading::Measured(Place { load, counters: Reading::Measured(counted.until(&counted_after)) }))
}

/// The shape of a product: the same number of multiplications for every accumulator.
struct Shape {
    terms: usize,
}

impl Shape {
    /// As many terms as the accumulator can count to.
    fn for_accumulator(accumulator: Precision) -> Shape {
        let exact = (1.0 / accumulator.unit_roundoff()).min(MOST_TERMS as f64);
        Shape { terms: exact as usize }
    }

    fn weight(&self, stream: &Stream) -> Result<HostTensor> {
        HostTensor::from_f32(&[WEIGHT / self.terms, self.terms], &small(stream, 0, WEIGHT))
    }

    /// The rows of an activation, one after the other.
    fn activation(&self, stream: &Stream, call: u64) -> Vec<f32> {
        small(stream, (call + 1) * WEIGHT as u64, ROWS * self.terms)
    }

    /// One product: the activation goes up, the result comes down. A backend without `batched_matmul` multiplies row by
    /// row.
    fn product<B: Backend>(&self, backend: &mut B, w: &B::Tensor, x: &[f32]) -> Result<Vec<f32>> {
        let device = backend.upload(&HostTensor::from_f32(&[ROWS, self.terms], x)?, DType::F32)?;
        let result = backend.batched_matmul(w, &device).and_then(|result| read(backend, result));
        backend.free(device)?;
        match result {
            Err(error) if error.kind == ErrorKind::Unimplemented => self.row_by_row(backend, w, x),
            result => result,
        }
    }

    fn row_by_row<B: Backend>(&self, backend: &mut B, w: &B::Tensor, x: &[f32]) -> Result<Vec<f32>> {
        let mut values = Vec::new();
        for row in x.chunks(self.terms) {
            let device = backend.upload(&HostTensor::from_f32(&[self.terms], row)?, DType::F32)?;
            let result = backend.matmul(w, &device)?;
            values.extend(read(backend, result)?);
            backend.free(device)?;
        }
        Ok(values)
    }
}

/// Elements of {-1, 0, 1}, drawn from the stream at `from`.
fn small(stream: &Stream, from: u64, count: usize) -> Vec<f32> {
    (0..count as u64).map(|i| stream.below(from + i, 3) as f32 - 1.0).collect()
}

fn read<B: Backend>(backend: &mut B, result: B::Tensor) -> Result<Vec<f32>> {
    let values = backend.read(&result)?;
    backend.free(result)?;
    Ok(values)
}

/// What cpu-ref answered, and what that cost.
struct Reference {
    answers: Vec<Vec<f32>>,
    ns: u64,
}

impl Reference {
    /// Runs products until they have cost enough.
    fn run(shape: &Shape, weight: &HostTensor, stream: &Stream) -> Result<Reference> {
        let mut host = CpuRef::new();
        let w = host.upload(weight, DType::F32)?;
        shape.product(&mut host, &w, &shape.activation(stream, MOST_CALLS))?;
        let (mut answers, mut ns) = (Vec::new(), 0u64);
        while ns < REFERENCE_NS && (answers.len() as u64) < MOST_CALLS {
            // Making the data is the kit's work, not cpu-ref's.
            let x = shape.activation(stream, answers.len() as u64);
            let before = own_cpu_time().ns;
            let answer = shape.product(&mut host, &w, &x)?;
            ns = ns.saturating_add(own_cpu_time().ns.saturating_sub(before));
            answers.push(answer);
        }
        Ok(Reference { answers, ns })
    }
}
