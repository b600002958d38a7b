//! Memory: what was in it before, and whose it is.

use modelbench_contract::{Backend, DType, HostTensor, Result};

use super::super::ops::{Live, OpPlan};
use super::super::script::Script;

/// What memory is filled with before it is given back: a value that spreads, and one that only a limit on every
/// element catches.
const POISONS: [f32; 2] = [f32::NAN, 1e30];

/// Sizes, in elements, that are poisoned beside those of the operands and of the result: scratch of kernels.
const SCRATCH: [usize; 6] = [1, 8, 33, 256, 1024, 4096];
/// Tensors of each size that are filled and given back.
const COPIES: usize = 2;

/// Fills memory and gives it back; all tensors live at once, so that they are different places.
fn spill<B: Backend>(backend: &mut B, sizes: &[usize], poison: f32) -> Result<()> {
    let mut tensors = Vec::new();
    for &n in sizes {
        let host = HostTensor::from_f32(&[n], &vec![poison; n])?;
        for _ in 0..COPIES {
            tensors.push(backend.upload(&host, DType::F32)?);
        }
    }
    tensors.into_iter().try_for_each(|tensor| backend.free(tensor))
}

/// The op on whatever memory there is, then on memory that held one poison, then on memory that held another: what an
/// op reads without having written it, or leaves unwritten in its result, differs between the three.
pub(super) fn poisoned<B: Backend>(backend: &mut B, plan: &OpPlan, deterministic: bool) -> Result<Script> {
    let mut script = Script::default();
    let clean = plan.once(backend)?;
    let mut sizes = vec![clean.len()];
    sizes.extend(plan.operands.iter().map(|operand| operand.values.len()));
    sizes.extend(SCRATCH);
    sizes.sort_unstable();
    sizes.dedup();
    script.answer("before any poison", 0, clean);
    for poison in POISONS {
        spill(backend, &sizes, poison)?;
        let mut live = Live::upload(backend, plan)?;
        spill(backend, &sizes, poison)?;
        let values = live.run(backend)?;
        live.free(backend)?;
        script.again(&format!("on memory that held {poison:e}"), 0, values, deterministic);
    }
    Ok(script)
}

/// Results that live side by side, read in another order than they were made in, and then once more.
pub(super) fn interleaved_reads<B: Backend>(
    backend: &mut B,
    plans: &[OpPlan],
    order: &[usize],
) -> Result<Script> {
    let mut script = Script::default();
    let mut made = Vec::with_capacity(plans.len());
    for plan in plans {
        let mut live = Live::upload(backend, plan)?;
        let result = live.start(backend)?;
        made.push((live, result));
    }
    let mut first = vec![Vec::new(); made.len()];
    for &i in order {
        if let Some((live, result)) = made.get(i) {
            first[i] = live.peek(backend, result)?;
        }
    }
    for &i in order.iter().rev() {
        if let Some((live, result)) = made.get(i) {
            let second = live.peek(backend, result)?;
            script.same(&format!("result {i}, read again"), &second, &first[i]);
        }
    }
    for (i, (plan, (live, _))) in plans.iter().zip(&made).enumerate() {
        let unchanged = plan.operands.iter().zip(live.tensors()).skip(usize::from(plan.in_place()));
        for (operand, tensor) in unchanged.filter(|(operand, _)| operand.tensor.dtype() == DType::F32) {
            let now = backend.read(tensor)?;
            script.same(&format!("operand {} of call {i}", operand.name), &now, &operand.values);
        }
    }
    for (i, ((live, result), values)) in made.into_iter().zip(first).enumerate() {
        let last = live.finish(backend, result)?;
        script.same(&format!("result {i}, read a third time"), &last, &values);
        live.free(backend)?;
        script.answer(format!("result {i}"), i, values);
    }
    Ok(script)
}
