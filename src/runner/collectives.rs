//! Rung 4: collectives over ranks.

use modelbench_contract::{Backend, BackendError, Collectives, ErrorKind, HostTensor, Op, Result};

use super::finding::{CheckError, Finding};
use crate::compare::first_difference;
use crate::inputs::{Stream, value};
use crate::suite::Case;

/// Values of the axis `what`.
pub const WHAT: [&str; 7] = [
    "sum",
    "reduce-scatter-then-gather",
    "all-to-all-twice",
    "ragged",
    "empty",
    "indivisible",
    "wrong-count",
];

/// Names of the axes that the check reads.
pub fn axes(check: &str) -> Option<&'static [&'static str]> {
    (check == "collective").then_some(&["what", "ranks", "n"])
}

type Ranks<'a, T> = &'a mut dyn Collectives<Tensor = T>;

fn group<B: Backend>(backend: &mut B) -> Result<Ranks<'_, B::Tensor>> {
    backend.collectives().ok_or_else(|| BackendError::unimplemented(Op::InitRanks))
}

/// Runs an identity or a refusal.
///
/// # Errors
/// What stopped the check.
pub fn check<B: Backend>(case: &Case, seed: u64, backend: &mut B) -> Result<Finding, CheckError> {
    let (what, ranks, n) = (case.text("what")?.to_owned(), case.size("ranks")?, case.size("n")?);
    let part = |rank: usize, len: usize| -> Vec<f32> {
        let stream = Stream::new(seed, &case.id, &format!("rank{rank}"));
        (0..len as u64).map(|i| value(case.group.input, &stream, i)).collect()
    };
    group(backend)?.init_ranks(ranks)?;
    let mut finding = Finding::default();
    match what.as_str() {
        "sum" => {
            let parts: Vec<Vec<f32>> = (0..ranks).map(|r| part(r, n)).collect();
            let got = run(backend, &parts, |group, parts| group.all_reduce_sum(parts))?;
            compare(&mut finding, &got, &vec![rank_order_sum(&parts); ranks]);
        }
        "reduce-scatter-then-gather" => {
            let parts: Vec<Vec<f32>> = (0..ranks).map(|r| part(r, n * ranks)).collect();
            let shards = run(backend, &parts, |group, parts| group.reduce_scatter(parts))?;
            let sum = rank_order_sum(&parts);
            let want: Vec<Vec<f32>> = sum.chunks(n).map(<[f32]>::to_vec).collect();
            compare(&mut finding, &shards, &want);
            let whole = run(backend, &shards, |group, parts| group.all_gather(parts))?;
            compare(&mut finding, &whole, &vec![sum; ranks]);
        }
        "all-to-all-twice" => {
            let parts: Vec<Vec<f32>> = (0..ranks).map(|r| part(r, n * ranks)).collect();
            let once = run(backend, &parts, |group, parts| group.all_to_all(parts))?;
            let want: Vec<Vec<f32>> = (0..ranks)
                .map(|r| parts.iter().flat_map(|p| p[r * n..(r + 1) * n].to_vec()).collect())
                .collect();
            compare(&mut finding, &once, &want);
            let twice = run(backend, &once, |group, parts| group.all_to_all(parts))?;
            compare(&mut finding, &twice, &parts);
        }
        refusal => refused(&mut finding, backend, refusal, ranks, n, part)?,
    }
    Ok(finding)
}

fn rank_order_sum(parts: &[Vec<f32>]) -> Vec<f32> {
    let mut sum = parts.first().cloned().unwrap_or_default();
    for part in parts.iter().skip(1) {
        for (sum, value) in sum.iter_mut().zip(part) {
            *sum += value;
        }
    }
    sum
}

fn compare(finding: &mut Finding, got: &[Vec<f32>], want: &[Vec<f32>]) {
    finding.require(got.len() == want.len(), || {
        format!("{} results, want one for each of {} ranks", got.len(), want.len())
    });
    for (rank, (got, want)) in got.iter().zip(want).enumerate() {
        finding.output(got);
        finding.quality.elements += got.len() as u64;
        if let Some(at) = first_difference(got, want) {
            let (got, want) = (got.get(at), want.get(at));
            finding.wrong.push(format!("rank {rank}: [{at}] is {got:?}, want {want:?}"));
        }
    }
}

fn run<B: Backend>(
    backend: &mut B,
    parts: &[Vec<f32>],
    op: impl FnOnce(Ranks<'_, B::Tensor>, &[&B::Tensor]) -> Result<Vec<B::Tensor>>,
) -> Result<Vec<Vec<f32>>> {
    let mut tensors = Vec::new();
    for (rank, part) in parts.iter().enumerate() {
        tensors.push(group(backend)?.upload_rank(rank, &HostTensor::from_f32(&[part.len()], part)?)?);
    }
    let results = op(group(backend)?, &tensors.iter().collect::<Vec<_>>())?;
    let mut values = Vec::new();
    for result in results {
        values.push(backend.read(&result)?);
        backend.free(result)?;
    }
    for tensor in tensors {
        backend.free(tensor)?;
    }
    backend.sync()?;
    Ok(values)
}

fn refused<B: Backend>(
    finding: &mut Finding,
    backend: &mut B,
    what: &str,
    ranks: usize,
    n: usize,
    part: impl Fn(usize, usize) -> Vec<f32>,
) -> Result<()> {
    let parts: Vec<Vec<f32>> = match what {
        "ragged" => (0..ranks).map(|r| part(r, n + r)).collect(),
        "empty" => Vec::new(),
        "indivisible" => (0..ranks).map(|r| part(r, n * ranks + 1)).collect(),
        _ => (0..ranks.saturating_sub(1)).map(|r| part(r, n)).collect(),
    };
    let scatter = what == "indivisible";
    let answer =
        run(
            backend,
            &parts,
            |group, parts| {
                if scatter { group.reduce_scatter(parts) } else { group.all_reduce_sum(parts) }
            },
        );
    match answer {
        Ok(_) => finding.wrong.push(format!("{what} parts were accepted")),
        Err(error) if error.kind == ErrorKind::InvalidArgument => {}
        Err(error) => finding.wrong.push(format!("{what} parts: want invalid-argument, got {error}")),
    }
    group(backend)?.init_ranks(ranks)?;
    let good: Vec<Vec<f32>> = (0..ranks).map(|r| part(r, n)).collect();
    let got = run(backend, &good, |group, parts| group.all_reduce_sum(parts))?;
    compare(finding, &got, &vec![rank_order_sum(&good); ranks]);
    Ok(())
}
