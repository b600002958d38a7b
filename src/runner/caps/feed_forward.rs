//! `FusedFFN`: the ops of a feed-forward block, called one after the other, reach the device as fewer work items.
//!
//! The contract has no op for the block, so that only the backend's count of dispatches shows the fusion. A control run
//! reads every result before the next op, where nothing can be fused: there a counter that counts must show at least
//! one dispatch for each op. The values of the control run are judged op by op, and those of the fused run against it.

use modelbench_contract::wire::{RemoteBackend, RemoteTensor, Transport};
use modelbench_contract::{Backend, DType, NumericProfile, Result};

use super::{Lab, free, operand, upload};
use crate::compare::Want;
use crate::inputs::Operand;
use crate::oracle::{self, Bounded, Weight};
use crate::runner::finding::{CheckError, Finding};
use crate::runner::ops::allowance;
use crate::suite::Case;

/// Ops of the block: norm, gate, up, swiglu, down.
const OPS: u64 = 5;
const EPS: f32 = 1e-5;
/// No slope of silu is steeper (the steepest is 1.0998).
const STEEPEST_SILU: f64 = 1.1;

/// Runs the block op by op and at once.
pub(super) fn check<T: Transport>(
    case: &Case,
    remote: &mut RemoteBackend<T>,
    lab: Lab<'_>,
) -> Result<Finding, CheckError> {
    let (rows, n, hidden) = (case.size("rows")?, case.size("n")?, case.size("hidden")?);
    let most = case.limit("dispatches", |limits| limits.dispatches)?;
    if most >= OPS {
        return Err(case
            .invalid(format!("limits.dispatches = {most}: the block has {OPS} ops unfused"))
            .into());
    }
    let operands = [
        operand(case, lab.seed, "x", &[rows, n])?,
        operand(case, lab.seed, "weight", &[n])?,
        operand(case, lab.seed, "gate", &[hidden, n])?,
        operand(case, lab.seed, "up", &[hidden, n])?,
        operand(case, lab.seed, "down", &[n, hidden])?,
    ];
    let tensors = upload(remote, &operands)?;
    let mut finding = Finding::default();
    let (steps, control) = counted(remote, |remote| stepwise(remote, &tensors))?;
    let (got, fused) = counted(remote, |remote| at_once(remote, &tensors))?;
    free(remote, tensors)?;
    remote.sync()?;
    finding.output(&got);
    values(&mut finding, case, &operands, &steps, &got, lab.profile)?;
    judge_counts(&mut finding, control, fused, most);
    Ok(finding)
}

/// Dispatches that a part of the case took, if the backend counts them.
fn counted<T: Transport, R>(
    remote: &mut RemoteBackend<T>,
    run: impl FnOnce(&mut RemoteBackend<T>) -> Result<R>,
) -> Result<(R, Option<u64>)> {
    remote.sync()?;
    let before = remote.effort()?.dispatches;
    let result = run(remote)?;
    let after = remote.effort()?.dispatches;
    Ok((result, after.zip(before).map(|(after, before)| after.saturating_sub(before))))
}

/// Results of the five ops, each read before the next one starts.
fn stepwise<T: Transport>(remote: &mut RemoteBackend<T>, operands: &[RemoteTensor]) -> Result<Vec<Vec<f32>>> {
    let [x, weight, gate, up, down] = operands else { return Ok(Vec::new()) };
    let mut values = Vec::new();
    let mut read = |remote: &mut RemoteBackend<T>, tensor: &RemoteTensor| -> Result<()> {
        values.push(remote.read(tensor)?);
        Ok(())
    };
    let normed = remote.rms_norm(x, weight, EPS)?;
    read(remote, &normed)?;
    let gated = remote.batched_matmul(gate, &normed)?;
    read(remote, &gated)?;
    let upped = remote.batched_matmul(up, &normed)?;
    read(remote, &upped)?;
    let product = remote.swiglu(&gated, &upped)?;
    read(remote, &product)?;
    let out = remote.batched_matmul(down, &product)?;
    read(remote, &out)?;
    for tensor in [normed, gated, upped, product, out] {
        remote.free(tensor)?;
    }
    Ok(values)
}

/// The same ops as a forward pass calls them: results are freed as soon as they are used, and only the last is read.
fn at_once<T: Transport>(remote: &mut RemoteBackend<T>, operands: &[RemoteTensor]) -> Result<Vec<f32>> {
    let [x, weight, gate, up, down] = operands else { return Ok(Vec::new()) };
    let normed = remote.rms_norm(x, weight, EPS)?;
    let gated = remote.batched_matmul(gate, &normed)?;
    let upped = remote.batched_matmul(up, &normed)?;
    remote.free(normed)?;
    let product = remote.swiglu(&gated, &upped)?;
    remote.free(gated)?;
    remote.free(upped)?;
    let out = remote.batched_matmul(down, &product)?;
    remote.free(product)?;
    let values = remote.read(&out)?;
    remote.free(out)?;
    Ok(values)
}

/// Judges each op of the control run on the operands that it really had, then the fused result against the control
/// run's: both may be off by the bounds of every op, carried through the ops behind it.
fn values(
    finding: &mut Finding,
    case: &Case,
    operands: &[Operand; 5],
    steps: &[Vec<f32>],
    got: &[f32],
    profile: &NumericProfile,
) -> Result<(), CheckError> {
    let (allowance, slack) = allowance(case)?;
    let kit = |e: oracle::OracleError| CheckError::Kit(format!("{}: {e}", case.id));
    let [x, weight, gate, up, down] = operands.each_ref().map(|operand| operand.values.as_slice());
    let [normed, gated, upped, product, out] = steps else {
        return Err(CheckError::Kit(format!("{}: {} results of five ops", case.id, steps.len())));
    };
    let (n, hidden) = (weight.len(), gate.len() / weight.len().max(1));
    let matmul = |w: &[f32], x: &[f32], k: usize| {
        oracle::matmul(&Weight::plain(w, DType::F32), x, k, profile, &allowance).map_err(kit)
    };
    let truths = [
        oracle::rms_norm(x, weight, EPS, profile, &allowance).map_err(kit)?,
        matmul(gate, normed, n)?,
        matmul(up, normed, n)?,
        oracle::swiglu(gated, upped, profile, &allowance).map_err(kit)?,
        matmul(down, product, hidden)?,
    ];
    let names = ["rms_norm", "gate", "up", "swiglu", "down"];
    for ((name, truth), step) in names.iter().zip(&truths).zip([normed, gated, upped, product, out]) {
        finding.judge(name, &Want::Bounded(truth.clone()), step, slack);
    }
    let [b_norm, b_gate, b_up, b_swiglu, b_down] = truths.map(|truth| truth.bound);
    let e_norm = b_norm.iter().map(|b| 2.0 * b).collect::<Vec<_>>();
    let e_gate = carried(gate, &e_norm, n, &b_gate);
    let e_up = carried(up, &e_norm, n, &b_up);
    let e_swiglu: Vec<f64> = (0..product.len())
        .map(|i| {
            let (g, u) = (f64::from(gated[i]), f64::from(upped[i]));
            let silu = g / (1.0 + libm::exp(-g));
            let through_gate = STEEPEST_SILU * e_gate[i];
            through_gate * (u.abs() + e_up[i]) + silu.abs() * e_up[i] + 2.0 * b_swiglu[i]
        })
        .collect();
    let bound = carried(down, &e_swiglu, hidden, &b_down);
    let want = out.iter().map(|&v| f64::from(v)).collect();
    finding.judge("the fused block", &Want::Bounded(Bounded { want, bound }), got, slack);
    Ok(())
}

/// Difference of two products whose inputs differ by `e` and which are each off by `own`.
fn carried(w: &[f32], e: &[f64], k: usize, own: &[f64]) -> Vec<f64> {
    let through =
        |e: &[f64], w: &[f32]| -> f64 { e.iter().zip(w).map(|(e, w)| e * f64::from(w.abs())).sum() };
    let rows = e.chunks_exact(k).flat_map(|e| w.chunks_exact(k).map(move |w| through(e, w)));
    rows.zip(own).map(|(carried, own)| carried + 2.0 * own).collect()
}

fn judge_counts(finding: &mut Finding, control: Option<u64>, fused: Option<u64>, most: u64) {
    let (Some(control), Some(fused)) = (control, fused) else {
        finding.wrong.push(
            "FusedFFN is advertised, but the backend reports no dispatches: nothing shows that the block is fused"
                .to_owned(),
        );
        return;
    };
    finding.require(control >= OPS, || {
        format!("the counter does not count: {control} dispatches for {OPS} ops that were read one by one")
    });
    finding.require((1..=most).contains(&fused), || {
        format!("{fused} dispatches for the {OPS} ops of the block; fused they need 1 to {most}")
    });
    finding.notes.push(format!("{fused} dispatches at once, {control} one by one"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(control: Option<u64>, fused: Option<u64>) -> bool {
        let mut finding = Finding::default();
        judge_counts(&mut finding, control, fused, 4);
        finding.wrong.is_empty()
    }

    #[test]
    fn only_a_counter_that_counts_shows_fusion() {
        assert!(holds(Some(5), Some(1)) && holds(Some(9), Some(4)));
        assert!(!holds(Some(5), Some(5)));
        assert!(!holds(Some(4), Some(1)));
        assert!(!holds(Some(5), Some(0)));
        assert!(!holds(None, None));
    }

    #[test]
    fn differences_are_carried_row_by_row() {
        let (w, e) = ([1.0f32, -2.0, 0.5, 0.0], [0.25, 1.0, 0.0, 2.0]);
        assert_eq!(carried(&w, &e, 2, &[0.5, 0.0, 0.0, 1.0]), [3.25, 0.125, 4.0, 2.0]);
    }
}
