//! After each kind of refused request the next good call is right, and so is one that was under way.

use modelbench_contract::{Backend, Class, NumericProfile};
use modelbench_reference::CpuRef;

use super::super::finding::{CheckError, Finding};
use super::super::ops::{Live, OpPlan};
use super::super::refusal;
use super::super::script::{Script, Truths, conclude};
use crate::inputs::Stream;
use crate::suite::Case;
use crate::worker::Remote;

/// Every request that must be refused, in an order that the seed decides, each between the start of a good call and
/// the reading of its result; then every op again.
pub(super) fn check(
    case: &Case,
    seed: u64,
    remote: &mut Remote,
    class: Class,
    profile: &NumericProfile,
) -> Result<Finding, CheckError> {
    let plans = super::plans(case, seed)?;
    let truths = Truths::of_plans(case, &plans, profile)?;
    let mut host = CpuRef::new();
    let mut of_host = Script::default();
    for (i, plan) in plans.iter().enumerate() {
        let values = plan.once(&mut host).map_err(|e| CheckError::Kit(format!("{}: {e}", case.id)))?;
        of_host.answer(format!("call {i}"), i, values);
    }
    let mut script = Script::default();
    for (i, plan) in plans.iter().enumerate() {
        script.answer(format!("call {i} before any refusal"), i, plan.once(remote)?);
    }
    let order = Stream::new(seed, &case.id, "refusals").order(0, refusal::REFUSALS.len());
    for (turn, what) in order.into_iter().map(|i| refusal::REFUSALS[i]).enumerate() {
        let Some(plan) = plans.get(turn % plans.len()) else { continue };
        around(remote, plan, what, turn % plans.len(), profile.deterministic, &mut script)?;
    }
    for (i, plan) in plans.iter().enumerate() {
        let values = plan.once(remote)?;
        script.again(&format!("call {i} after all refusals"), i, values, profile.deterministic);
    }
    conclude(case, &truths, Ok(of_host), &script, class)
}

fn around(
    remote: &mut Remote,
    plan: &OpPlan,
    what: &str,
    truth: usize,
    deterministic: bool,
    script: &mut Script,
) -> Result<(), CheckError> {
    let bad = refusal::prepare(what, remote)?;
    let mut live = Live::upload(remote, plan)?;
    let started = live.start(remote)?;
    let mut refused = Finding::default();
    refusal::provoke(&mut refused, what, bad, remote)?;
    refused.wrong.into_iter().for_each(|wrong| script.require(false, || wrong));
    let under_way = live.finish(remote, started)?;
    script.again(&format!("the call that was under way at {what}"), truth, under_way, deterministic);
    live.free(remote)?;
    let next = plan.once(remote)?;
    script.again(&format!("the call after {what}"), truth, next, deterministic);
    remote.sync()?;
    Ok(())
}
