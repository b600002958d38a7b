//! Many calls, and many tensors that come and go.

use modelbench_contract::{Backend, Class, DType, HostTensor, NumericProfile, Result};
use modelbench_reference::CpuRef;

use super::super::finding::{CheckError, Finding};
use super::super::ops::{Live, OpPlan};
use super::super::script::{Script, Truths, conclude};
use crate::compare::first_difference;
use crate::inputs::Stream;
use crate::suite::Case;

/// Every op in turn, round after round in another order, on operands that stay where they are: the answers must stay
/// what they were.
pub(super) fn many_ops<B: Backend>(
    case: &Case,
    seed: u64,
    backend: &mut B,
    class: Class,
    profile: &NumericProfile,
) -> Result<Finding, CheckError> {
    let (plans, rounds) = (super::plans(case, seed)?, case.size("rounds")?);
    let stream = Stream::new(seed, &case.id, "order");
    let orders: Vec<Vec<usize>> =
        (0..rounds).map(|round| stream.order((round * plans.len()) as u64, plans.len())).collect();
    let truths = Truths::of_plans(case, &plans, profile)?;
    let host = calls(&mut CpuRef::new(), &plans, orders.get(..1).unwrap_or_default(), true);
    conclude(case, &truths, host, &calls(backend, &plans, &orders, profile.deterministic)?, class)
}

fn calls<B: Backend>(
    backend: &mut B,
    plans: &[OpPlan],
    orders: &[Vec<usize>],
    deterministic: bool,
) -> Result<Script> {
    let mut script = Script::default();
    let mut live = plans.iter().map(|plan| Live::upload(backend, plan)).collect::<Result<Vec<_>>>()?;
    for (round, order) in orders.iter().enumerate() {
        for &i in order {
            let (Some(plan), Some(live)) = (plans.get(i), live.get_mut(i)) else { continue };
            // An op in place would change the operands that stay.
            let values = if plan.in_place() { plan.once(backend)? } else { live.run(backend)? };
            script.again(&format!("call {i} in round {round}"), i, values, deterministic);
        }
    }
    live.into_iter().try_for_each(|live| live.free(backend))?;
    Ok(script)
}

/// A tensor that lives, and where its contents come from.
struct Alive<T> {
    tensor: T,
    number: u64,
    n: usize,
}

/// The contents of tensor `number`: small integers that differ from those of its neighbours.
fn contents(number: u64, n: usize) -> Vec<f32> {
    (0..n as u64).map(|i| (number.wrapping_mul(7919).wrapping_add(i) % 65_521) as f32).collect()
}

/// Uploads, reads and frees tensors of sizes from 1 to `n` elements in an order that the seed decides; at most `most`
/// live at once, and each must hold its own contents as long as it lives.
pub(super) fn check<B: Backend>(case: &Case, seed: u64, backend: &mut B) -> Result<Finding, CheckError> {
    let (steps, most, largest) = (case.size("steps")?, case.size("most")?.max(1), case.size("n")?);
    let octaves = u64::from(largest.max(1).ilog2()) + 1;
    let stream = Stream::new(seed, &case.id, "steps");
    let mut finding = Finding::default();
    let mut alive: Vec<Alive<B::Tensor>> = Vec::new();
    for step in 0..steps as u64 {
        let draw = |what: u64, n: usize| stream.below(step * 4 + what, n as u64) as usize;
        if alive.is_empty() || (alive.len() < most && draw(0, 5) < 3) {
            // As many sizes below 2^k as above: small tensors and large ones alike.
            let octave = 1usize << stream.below(step * 4 + 1, octaves);
            let n = (octave + draw(2, octave)).min(largest);
            let tensor = backend.upload(&HostTensor::from_f32(&[n], &contents(step, n))?, DType::F32)?;
            alive.push(Alive { tensor, number: step, n });
            continue;
        }
        let chosen = draw(1, alive.len());
        if draw(2, 4) == 0 {
            look(backend, &alive[chosen], &mut finding)?;
        } else {
            backend.free(alive.swap_remove(chosen).tensor)?;
        }
    }
    for survivor in alive {
        look(backend, &survivor, &mut finding)?;
        backend.free(survivor.tensor)?;
    }
    Ok(finding)
}

fn look<B: Backend>(
    backend: &mut B,
    alive: &Alive<B::Tensor>,
    finding: &mut Finding,
) -> Result<(), CheckError> {
    let (got, want) = (backend.read(&alive.tensor)?, contents(alive.number, alive.n));
    finding.output(&got);
    finding.quality.elements += got.len() as u64;
    // One lost tensor is enough to tell; a list of a thousand says no more.
    if finding.wrong.is_empty()
        && let Some(at) = first_difference(&got, &want)
    {
        let (got, want) = (got.get(at), want.get(at));
        let (number, n) = (alive.number, alive.n);
        finding.wrong.push(format!("tensor {number} of {n} elements: [{at}] is {got:?}, want {want:?}"));
    }
    Ok(())
}
