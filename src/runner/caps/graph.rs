//! `GraphCompile`: a recorded op list replays with other inputs and the bits of the same calls made one by one.

use std::collections::BTreeMap;

use modelbench_contract::wire::{RemoteBackend, RemoteTensor, Transport};
use modelbench_contract::{
    Backend, BackendError, DType, Graph, GraphCompile, GraphStep, HostTensor, Op, Result, RopeSpec,
};

use super::{Lab, free};
use crate::compare::first_difference;
use crate::inputs::{Stream, value};
use crate::runner::finding::{CheckError, Finding};
use crate::suite::{Case, Recipe};

/// Values of the axis `graph`.
pub const GRAPHS: [&str; 4] = ["matmul", "chain", "rows", "in-place"];

/// An op list, the shapes of its inputs, and which input is the activation (the others are weights).
pub(super) struct Recorded {
    pub(super) graph: Graph,
    pub(super) shapes: Vec<Vec<usize>>,
    activation: usize,
}

/// The op list of a name, for vectors of `n` elements.
pub(super) fn recorded(name: &str, n: usize) -> Recorded {
    let step = |op, inputs: &[usize], output, scalars: &[f64]| GraphStep {
        op,
        inputs: inputs.to_vec(),
        output,
        scalars: scalars.to_vec(),
    };
    let (shapes, steps, result, activation) = match name {
        "matmul" => (vec![vec![n, n], vec![n]], vec![step(Op::Matmul, &[0, 1], 2, &[])], 2, 1),
        // A feed-forward block with its residual.
        "chain" => (
            vec![vec![n], vec![n], vec![2 * n, n], vec![2 * n, n], vec![n, 2 * n]],
            vec![
                // A power of two, so that f32 and f64 mean the same eps.
                step(Op::RmsNorm, &[0, 1], 5, &[f64::from(2.0f32.powi(-17))]),
                step(Op::Matmul, &[2, 5], 6, &[]),
                step(Op::Matmul, &[3, 5], 7, &[]),
                step(Op::Swiglu, &[6, 7], 8, &[]),
                step(Op::Matmul, &[4, 8], 9, &[]),
                step(Op::AddInPlace, &[9, 0], 9, &[]),
            ],
            9,
            0,
        ),
        // A projection with its bias, rotated: heads of two elements at positions from 5.
        "rows" => (
            vec![vec![3, n], vec![n, n], vec![n]],
            vec![
                step(Op::BatchedMatmul, &[1, 0], 3, &[]),
                step(Op::AddBias, &[3, 2], 3, &[]),
                step(Op::Rope, &[3], 4, &[5.0, (n / 2) as f64, 2.0, 10_000.0]),
            ],
            4,
            0,
        ),
        _ => (
            vec![vec![n, n], vec![n], vec![n], vec![n]],
            vec![
                step(Op::Matmul, &[0, 1], 4, &[]),
                step(Op::AddInPlace, &[4, 2], 4, &[]),
                step(Op::AddBias, &[4, 3], 4, &[]),
                step(Op::AddInPlace, &[4, 2], 4, &[]),
                step(Op::Matmul, &[0, 4], 5, &[]),
            ],
            5,
            1,
        ),
    };
    Recorded { graph: Graph { inputs: shapes.len(), steps, result }, shapes, activation }
}

/// Compiles with one set of inputs and replays with it, with others, with only another activation, and with it again.
pub(super) fn check<T: Transport>(
    case: &Case,
    remote: &mut RemoteBackend<T>,
    lab: Lab<'_>,
) -> Result<Finding, CheckError> {
    let list = recorded(case.text("graph")?, case.size("n")?);
    let exact = matches!(case.group.input, Recipe::Integers { .. });
    // Two runs of the same calls need not agree otherwise; the exact groups are the proof then.
    let compare = lab.profile.deterministic || exact;
    let Replays { sets, eager, replayed, inputs } = run(case, remote, &list, lab.seed)?;
    let mut finding = Finding::default();
    for (number, ((what, set), got)) in ORDER.iter().zip(&replayed).enumerate() {
        finding.output(got);
        finding.quality.elements += got.len() as u64;
        let (want, told) = (eager[*set].len(), number + 1);
        finding
            .require(got.len() == want, || format!("replay {told} gave {} elements, want {want}", got.len()));
        finding.require(got.iter().all(|v| v.is_finite()), || {
            format!("replay {told} ({what}) gave a number that is not finite from finite inputs")
        });
        if let Some(at) = first_difference(got, &eager[*set]).filter(|_| compare) {
            let (got, want) = (got.get(at), eager[*set].get(at));
            finding.wrong.push(format!(
                "replay {told} ({what}): [{at}] is {got:?}, the same calls one by one gave {want:?}"
            ));
        }
    }
    if !compare {
        finding.notes.push("bits are not compared: the backend declares itself non-deterministic".to_owned());
    }
    for (set, (got, want)) in inputs.iter().zip(&sets).enumerate() {
        for (slot, (got, want)) in got.iter().zip(want).enumerate() {
            let same = first_difference(got, want).is_none();
            finding.require(same, || format!("input {slot} of set {set} changed in a replay"));
        }
    }
    Ok(finding)
}

/// The replays in order: what they are, and their set of inputs.
const ORDER: [(&str, usize); 4] = [
    ("inputs of the compilation", 0),
    ("other inputs", 1),
    ("another activation", 2),
    ("inputs of the compilation again", 0),
];

/// Values of a case, by set of inputs or by replay.
struct Replays {
    sets: Vec<Vec<Vec<f32>>>,
    eager: Vec<Vec<f32>>,
    replayed: Vec<Vec<f32>>,
    inputs: Vec<Vec<Vec<f32>>>,
}

fn run<T: Transport>(
    case: &Case,
    remote: &mut RemoteBackend<T>,
    list: &Recorded,
    seed: u64,
) -> Result<Replays, CheckError> {
    let make = |set: usize| -> Vec<Vec<f32>> {
        let values = |(slot, shape): (usize, &Vec<usize>)| {
            // The third set is the first with another activation.
            let source = if set == 2 && slot != list.activation { 0 } else { set };
            let stream = Stream::new(seed, &case.id, &format!("{source}-{slot}"));
            (0..shape.iter().product::<usize>() as u64).map(|i| value(case.group.input, &stream, i)).collect()
        };
        list.shapes.iter().enumerate().map(values).collect()
    };
    let sets: Vec<Vec<Vec<f32>>> = (0..3).map(make).collect();
    let mut tensors: Vec<Vec<RemoteTensor>> = Vec::new();
    for set in &sets {
        let mut uploaded = Vec::new();
        for (values, shape) in set.iter().zip(&list.shapes) {
            uploaded.push(remote.upload(&HostTensor::from_f32(shape, values)?, DType::F32)?);
        }
        tensors.push(uploaded);
    }
    let mut eager = Vec::new();
    for set in &tensors {
        let result = one_by_one(remote, &list.graph, set)?;
        eager.push(remote.read(&result)?);
        remote.free(result)?;
    }
    let id = remote.compile(&list.graph, &tensors[0].iter().collect::<Vec<_>>())?;
    let mut results = Vec::new();
    for (_, set) in ORDER {
        results.push(remote.replay(id, &tensors[set].iter().collect::<Vec<_>>())?);
    }
    // All results are alive, and the last is read first: a replay must not write into what an earlier one gave.
    let mut replayed = Vec::new();
    for result in results.iter().rev() {
        replayed.push(remote.read(result)?);
    }
    replayed.reverse();
    let mut inputs = Vec::new();
    for set in &tensors {
        inputs.push(set.iter().map(|tensor| remote.read(tensor)).collect::<Result<Vec<_>>>()?);
    }
    free(remote, results)?;
    free(remote, tensors.into_iter().flatten())?;
    remote.drop_graph(id)?;
    remote.sync()?;
    Ok(Replays { sets, eager, replayed, inputs })
}

/// Runs an op list by the calls that it records.
pub(super) fn one_by_one<B: Backend>(
    backend: &mut B,
    graph: &Graph,
    inputs: &[B::Tensor],
) -> Result<B::Tensor> {
    let mut made: BTreeMap<usize, B::Tensor> = BTreeMap::new();
    let missing =
        |slot: &usize| BackendError::internal(format!("slot {slot} of the kit's own op list is empty"));
    for step in &graph.steps {
        if let (Op::AddInPlace | Op::AddBias, [dst, src]) = (step.op, step.inputs.as_slice()) {
            let mut tensor = made.remove(dst).ok_or_else(|| missing(dst))?;
            let src = made.get(src).or(inputs.get(*src)).ok_or_else(|| missing(src))?;
            if step.op == Op::AddBias {
                backend.add_bias(&mut tensor, src)?;
            } else {
                backend.add_in_place(&mut tensor, src)?;
            }
            made.insert(step.output, tensor);
            continue;
        }
        let args: Vec<&B::Tensor> = step
            .inputs
            .iter()
            .map(|slot| made.get(slot).or(inputs.get(*slot)).ok_or_else(|| missing(slot)))
            .collect::<Result<_>>()?;
        let tensor = match (step.op, args.as_slice(), step.scalars.as_slice()) {
            (Op::Matmul, [w, x], _) => backend.matmul(w, x)?,
            (Op::BatchedMatmul, [w, x], _) => backend.batched_matmul(w, x)?,
            (Op::RmsNorm, [x, weight], [eps]) => backend.rms_norm(x, weight, *eps as f32)?,
            (Op::Swiglu, [gate, up], _) => backend.swiglu(gate, up)?,
            (Op::Rope, [x], &[pos, n_heads, head_dim, theta]) => backend.rope(
                x,
                RopeSpec {
                    pos: pos as usize,
                    n_heads: n_heads as usize,
                    head_dim: head_dim as usize,
                    theta: theta as f32,
                },
            )?,
            (op, ..) => return Err(BackendError::internal(format!("{op} in the kit's own op list"))),
        };
        made.insert(step.output, tensor);
    }
    let result = made.remove(&graph.result).ok_or_else(|| missing(&graph.result))?;
    for tensor in made.into_values() {
        backend.free(tensor)?;
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use modelbench_contract::TensorDesc;
    use modelbench_contract::wire::check;

    #[test]
    fn every_op_list_fits_its_shapes() {
        for name in GRAPHS {
            for n in [2, 8, 64] {
                let list = recorded(name, n);
                let descs: Vec<TensorDesc> =
                    list.shapes.iter().map(|shape| TensorDesc::new(shape.clone(), DType::F32)).collect();
                let result = check::graph(&list.graph, &descs.iter().collect::<Vec<_>>());
                assert!(result.is_ok(), "{name} {n}: {result:?}");
                assert!(list.activation < list.shapes.len());
            }
        }
    }
}
