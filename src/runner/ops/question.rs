//! What an op case wants, put as a question that the kit asks itself before it asks a backend.

use modelbench_contract::NumericProfile;

use super::super::CheckError;
use super::needs_information;
use super::plan::{Call, OpPlan};
use super::truth::truth;
use crate::compare::{Question, Want};
use crate::suite::Case;

/// The question of a case, for a backend that declares plain f32.
///
/// # Errors
/// A suite error or a defect of the kit; a bound that is no number is one.
pub fn question(case: &Case, seed: u64) -> Result<Question, CheckError> {
    let plan = OpPlan::new(case, seed)?;
    let (want, slack) = truth(case, &plan, &NumericProfile::F32)?;
    if let Want::Bounded(bounded) = &want {
        let broken = bounded.want.iter().zip(&bounded.bound).position(|(w, b)| w.is_finite() && b.is_nan());
        if let Some(at) = broken {
            return Err(CheckError::Kit(format!("{}: the bound of element {at} is no number", case.id)));
        }
    }
    let row = match plan.call {
        Call::Matmul | Call::BatchedMatmul => plan.operands.first().map_or(1, |w| w.shape()[0]),
        Call::Argmax => 1,
        _ => plan.operands.first().map_or(1, |x| x.tensor.desc().row_len()),
    };
    let next_position = match plan.call {
        Call::Rope(mut spec) => {
            spec.pos += 1;
            let moved = OpPlan { call: Call::Rope(spec), operands: plan.operands.clone() };
            Some(truth(case, &moved, &NumericProfile::F32)?.0.values())
        }
        _ => None,
    };
    Ok(Question { want, row, slack, next_position, needs_information: needs_information(case) })
}
