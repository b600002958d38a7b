//! `Async`: an op returns before its result is ready, and fences wait for it.
//!
//! The serve loop measures, so that a backend cannot claim: the time inside the calls that submit the work, and the
//! time inside the fence behind them. A second fence with nothing to wait for tells what the fence itself costs (a copy,
//! or a pause to look busy), which is taken off.

use std::time::Instant;

use modelbench_contract::Backend;
use modelbench_contract::wire::{Effort, RemoteBackend, Transport};

use super::{free, operand, upload};
use crate::compare::Want;
use crate::oracle;
use crate::runner::finding::{CheckError, Finding};
use crate::suite::Case;

/// Submits ever more work before the fence until most of the time is spent in the fence, then fences by `argmax`.
pub(super) fn check<T: Transport>(
    case: &Case,
    seed: u64,
    remote: &mut RemoteBackend<T>,
) -> Result<Finding, CheckError> {
    let (rows, n, trials) = (case.size("rows")?, case.size("n")?, case.size("trials")?);
    let least = case.limit("fence_percent", |limits| limits.fence_percent)?;
    let operands = [
        operand(case, seed, "w", &[n, n])?,
        operand(case, seed, "x", &[rows, n])?,
        operand(case, seed, "y", &[n])?,
    ];
    let [w, x, y] = &operands;
    if !oracle::is_exact_matmul(&w.values, &x.values, n, 24) {
        return Err(CheckError::Kit(format!("{}: the data are not exact", case.id)));
    }
    let product = Want::Exact(exact(&w.values, &x.values, n));
    let row = exact(&w.values, &y.values, n);
    let mut finding = Finding::default();
    let tensors = upload(remote, &operands)?;
    let [w, x, y] = tensors.as_slice() else { return Err(CheckError::Kit("three operands".to_owned())) };

    // The first call may start threads or compile kernels; it is not measured.
    let warm = remote.matmul(w, y)?;
    remote.read(&warm)?;
    free(remote, [warm])?;

    let mut best = 0;
    for trial in 0..trials {
        remote.sync()?;
        let begun = Instant::now();
        let mut results = Vec::new();
        for _ in 0..1usize << trial.min(16) {
            results.push(remote.batched_matmul(w, x)?);
        }
        let Some(last) = results.last() else { continue };
        let got = remote.read(last)?;
        let first = remote.effort()?;
        let passed = begun.elapsed().as_nanos();
        remote.read(last)?;
        let idle = remote.effort()?;
        finding.require(u128::from(first.calls_ns) + u128::from(first.fence_ns) <= passed, || {
            format!("the worker reports {first:?}, but only {passed} ns passed")
        });
        finding.output(&got);
        finding.judge("a result that was read while it was computed", &product, &got, 1.0);
        free(remote, results)?;
        best = best.max(waited_percent(first, idle));
        if best >= least {
            break;
        }
    }
    finding.require(best >= least, || {
        format!(
            "Async is advertised, but calls return when their work is done: at best {best} % of the time was spent \
             in the fence, {least} % are wanted"
        )
    });
    finding.notes.push(format!("{best} % of the time in the fence"));

    // `argmax` right behind its op, behind more work, and behind a change in place.
    let busy = remote.batched_matmul(w, x)?;
    let mut logits = remote.matmul(w, y)?;
    let other = remote.matmul(w, y)?;
    index(&mut finding, &row, remote.argmax(&logits)?, "argmax right after its op")?;
    let twice: Vec<f32> = row.iter().map(|v| v + v).collect();
    remote.add_in_place(&mut logits, &other)?;
    index(&mut finding, &twice, remote.argmax(&logits)?, "argmax right after a change in place")?;
    let got = remote.read(&logits)?;
    finding.output(&got);
    finding.judge("a result that was changed in place", &Want::Exact(twice), &got, 1.0);
    free(remote, [busy, logits, other])?;
    free(remote, tensors)?;
    remote.sync()?;
    Ok(finding)
}

/// Share of the time that was spent waiting for work, in percent.
fn waited_percent(span: Effort, idle: Effort) -> u64 {
    let waited = u128::from(span.fence_ns.saturating_sub(idle.fence_ns));
    let all = waited + u128::from(span.calls_ns);
    let percent = (waited * 100).checked_div(all).unwrap_or(0);
    u64::try_from(percent).unwrap_or(0)
}

/// Each row of `x` times each row of `w`; the caller knows that every sum is exact.
fn exact(w: &[f32], x: &[f32], n: usize) -> Vec<f32> {
    let dot = |a: &[f32], b: &[f32]| -> f32 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
    x.chunks_exact(n).flat_map(|row| w.chunks_exact(n).map(move |weights| dot(weights, row))).collect()
}

fn index(finding: &mut Finding, logits: &[f32], got: usize, what: &str) -> Result<(), CheckError> {
    let want = oracle::argmax(logits).map_err(|e| CheckError::Kit(e.to_string()))?;
    finding.require(got == want, || format!("{what} gave {got}, want {want}"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_fence_costs_by_itself_is_no_waiting() {
        let effort = |calls_ns, fence_ns| Effort { calls_ns, fence_ns, dispatches: None };
        assert_eq!(waited_percent(effort(10, 90), effort(0, 0)), 90);
        assert_eq!(waited_percent(effort(100, 900), effort(0, 900)), 0);
        assert_eq!(waited_percent(effort(0, 5), effort(0, 9)), 0);
        assert_eq!(waited_percent(effort(u64::MAX, u64::MAX), effort(0, 0)), 50);
    }
}
