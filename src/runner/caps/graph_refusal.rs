//! `GraphCompile`: replays and op lists that must be refused, with a good replay before and after.

use modelbench_contract::wire::{RemoteBackend, RemoteTensor, Request, Transport};
use modelbench_contract::{Backend, DType, GraphCompile, GraphId, HostTensor, Result};

use super::free;
use super::graph::{Recorded, recorded};
use crate::compare::first_difference;
use crate::inputs::{Stream, value};
use crate::runner::contract::require_refused;
use crate::runner::finding::{CheckError, Finding};
use crate::suite::Case;

/// Values of the axis `what`.
pub const REFUSALS: [&str; 6] =
    ["wrong-shape", "too-few-inputs", "unknown-graph", "dropped-graph", "empty-slot", "ill-shaped-step"];

/// Elements of the vectors.
const N: usize = 8;

/// Sends one bad request between two good replays. It goes past the client's own checks.
pub(super) fn check<T: Transport>(
    case: &Case,
    seed: u64,
    remote: &mut RemoteBackend<T>,
) -> Result<Finding, CheckError> {
    let what = case.text("what")?.to_owned();
    let list = recorded("in-place", N);
    let mut inputs = Vec::new();
    for (slot, shape) in list.shapes.iter().enumerate() {
        let stream = Stream::new(seed, &case.id, &slot.to_string());
        let count = shape.iter().product::<usize>() as u64;
        let values: Vec<f32> = (0..count).map(|i| value(case.group.input, &stream, i)).collect();
        inputs.push(remote.upload(&HostTensor::from_f32(shape, &values)?, DType::F32)?);
    }
    let refs: Vec<&RemoteTensor> = inputs.iter().collect();
    let id = remote.compile(&list.graph, &refs)?;
    let before = replayed(remote, id, &refs)?;
    let longer = remote.upload(&HostTensor::from_f32(&[N + 1], &[1.0; N + 1])?, DType::F32)?;
    let request = bad(&what, remote, &list, id, (&refs, longer.handle))?;

    let mut finding = Finding::default();
    remote.submit(&request, &[])?;
    let answer = remote.sync();
    if let Err(error) = &answer {
        let (got, want) = (error.op, request.op());
        finding.require(got == want, || format!("the error names {got:?}, the request was {want:?}"));
    }
    require_refused(&mut finding, &what, answer)?;
    let after = replayed(remote, id, &refs)?;
    finding.output(&after);
    finding.quality.elements = after.len() as u64;
    finding.require(first_difference(&after, &before).is_none(), || {
        format!("a good replay gave {before:?} before {what} and {after:?} after it")
    });
    remote.drop_graph(id)?;
    remote.free(longer)?;
    free(remote, inputs)?;
    remote.sync()?;
    Ok(finding)
}

fn bad<T: Transport>(
    what: &str,
    remote: &mut RemoteBackend<T>,
    list: &Recorded,
    id: GraphId,
    (inputs, longer): (&[&RemoteTensor], u64),
) -> Result<Request> {
    let handles: Vec<u64> = inputs.iter().map(|tensor| tensor.handle).collect();
    let out = remote.new_handle();
    let replay = |graph, inputs| Request::ReplayGraph { out, graph, inputs };
    let mut graph = list.graph.clone();
    Ok(match what {
        "wrong-shape" => {
            let mut wrong = handles;
            if let Some(activation) = wrong.get_mut(1) {
                *activation = longer;
            }
            replay(id.0, wrong)
        }
        "too-few-inputs" => replay(id.0, handles[1..].to_vec()),
        "unknown-graph" => replay(remote.new_handle(), handles),
        "dropped-graph" => {
            let dropped = remote.compile(&list.graph, inputs)?;
            remote.drop_graph(dropped)?;
            replay(dropped.0, handles)
        }
        "empty-slot" => {
            graph.result = 99;
            Request::CompileGraph { out, graph, examples: handles }
        }
        _ => {
            // The weight and the vector of the first product the wrong way round.
            if let Some(step) = graph.steps.first_mut() {
                step.inputs.reverse();
            }
            Request::CompileGraph { out, graph, examples: handles }
        }
    })
}

fn replayed<T: Transport>(
    remote: &mut RemoteBackend<T>,
    id: GraphId,
    inputs: &[&RemoteTensor],
) -> Result<Vec<f32>> {
    let result = remote.replay(id, inputs)?;
    let values = remote.read(&result)?;
    remote.free(result)?;
    Ok(values)
}
