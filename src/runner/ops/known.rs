//! What is known of an op case before a backend runs it, and where it is kept for the next backend.

use std::collections::HashMap;
use std::rc::Rc;

use modelbench_contract::{Backend, NumericProfile};
use modelbench_reference::CpuRef;

use super::execute::{Executed, execute};
use super::plan::OpPlan;
use super::truth::{same_truth, truth};
use crate::compare::{Want, judge};
use crate::runner::CheckError;
use crate::suite::Case;

/// Everything about a case that does not depend on the backend.
#[derive(Debug)]
pub struct Known {
    /// The operands and the call.
    pub plan: OpPlan,
    /// What the oracle wants.
    pub want: Want,
    /// The suite's factor on the bound.
    pub slack: f64,
    /// What cpu-ref gives, inside its own bound.
    pub reference: Executed,
}

impl Known {
    /// Makes the operands, asks the oracle, and runs cpu-ref.
    ///
    /// # Errors
    /// A suite that asks for the impossible, or a defect of the kit: cpu-ref refuses the case or is outside its bound.
    fn find(case: &Case, seed: u64, profile: &NumericProfile) -> Result<Known, CheckError> {
        let plan = OpPlan::new(case, seed)?;
        let (want, slack) = truth(case, &plan, profile)?;
        let mut host = CpuRef::new();
        let reference = execute(&mut host, &plan, false)
            .map_err(|e| CheckError::Kit(format!("{}: cpu-ref refused the case: {e}", case.id)))?;
        let outside = if same_truth(profile, &host.numerics(), plan.takes_q8_0()) {
            judge(&want, &reference.values, slack).wrong
        } else {
            let (want, slack) = truth(case, &plan, &host.numerics())?;
            judge(&want, &reference.values, slack).wrong
        };
        if let Some(wrong) = outside {
            return Err(CheckError::Kit(format!("{}: cpu-ref is outside its own bound: {wrong}", case.id)));
        }
        Ok(Known { plan, want, slack, reference })
    }

    /// Bytes that it takes, about.
    fn bytes(&self) -> usize {
        let operands: usize = self.plan.operands.iter().map(|operand| operand.values.len() * 8).sum();
        operands + self.reference.values.len() * 24
    }
}

/// Keeps what is known of op cases, as far as there is room, for runs of several backends over the same cases.
#[derive(Debug, Default)]
pub struct Kept {
    known: HashMap<String, Rc<Known>>,
    room: usize,
}

impl Kept {
    /// Keeps up to about so many bytes; 0 keeps nothing, which is right for a single run.
    pub fn with_room(bytes: usize) -> Kept {
        Kept { known: HashMap::new(), room: bytes }
    }

    /// What is known of a case, found out at first use.
    ///
    /// # Errors
    /// A suite that asks for the impossible, or a defect of the kit.
    pub fn of(&mut self, case: &Case, seed: u64, profile: &NumericProfile) -> Result<Rc<Known>, CheckError> {
        if self.room == 0 && self.known.is_empty() {
            return Known::find(case, seed, profile).map(Rc::new);
        }
        // The group's tolerance belongs to the case, and the case to its id, so that these three say it all.
        let key = format!("{seed:x} {} {profile:?}", case.id);
        if let Some(known) = self.known.get(&key) {
            return Ok(Rc::clone(known));
        }
        let known = Rc::new(Known::find(case, seed, profile)?);
        if let Some(left) = self.room.checked_sub(known.bytes()) {
            self.room = left;
            self.known.insert(key, Rc::clone(&known));
        }
        Ok(known)
    }
}
