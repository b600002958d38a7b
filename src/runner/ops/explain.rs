//! What `explain` says of an op case: operands, oracle, bound.

use modelbench_contract::NumericProfile;
use sha2::{Digest, Sha256};

use super::super::CheckError;
use super::formula;
use super::plan::OpPlan;
use super::truth::truth;
use crate::compare::Want;
use crate::suite::Case;

/// Lines for a case of an op, its random sizes drawn.
///
/// # Errors
/// A suite error or a defect of the kit.
pub fn explain(op: &str, case: &Case, seed: u64) -> Result<Vec<String>, CheckError> {
    let plan = OpPlan::of(op, case, seed)?;
    let mut lines = Vec::new();
    for operand in &plan.operands {
        lines.push(format!(
            "operand    {}: {} {:?}, first value {:e}, bytes sha256 {}",
            operand.name,
            operand.tensor.dtype(),
            operand.shape(),
            operand.values.first().copied().unwrap_or(f32::NAN),
            hex::encode(Sha256::digest(operand.tensor.bytes()))
        ));
    }
    lines.push(format!("oracle     {}", formula::oracle(&plan.call)));
    match truth(case, &plan, &NumericProfile::F32)? {
        (Want::Exact(values), _) => {
            let value = values.first().copied().unwrap_or(f32::NAN);
            lines.push(format!("want[0]    {value:e}, rounded once; no error is allowed"));
        }
        (Want::Bounded(bounded), slack) => {
            lines.extend(formula::bound(&plan).into_iter().map(|line| format!("bound      {line}")));
            let largest = bounded.bound.iter().copied().fold(0.0, f64::max) * slack;
            let first = bounded.bound.first().copied().unwrap_or(0.0) * slack;
            let value = bounded.want.first().copied().unwrap_or(0.0);
            lines.push(format!(
                "           in plain f32: want[0] = {value:e}, bound[0] = {first:e}, largest bound {largest:e}"
            ));
        }
    }
    Ok(lines)
}
