//! Behaviours whose results have the wrong size, the wrong place or the wrong life.

use std::collections::{HashMap, HashSet};

use modelbench_contract::{BackendError, Op};

use crate::MockTensor;
use crate::tensor::Plain;
use crate::twist::{Call, Twist};

/// The result of `swiglu` has one element more in each row.
#[derive(Debug)]
pub(crate) struct WrongShape;

impl Twist for WrongShape {
    fn after(&mut self, call: &Call<'_>, result: &mut Plain) {
        if call.op != Op::Swiglu {
            return;
        }
        let Some(n) = result.shape.last_mut() else { return };
        result.values = result.values.chunks(*n).flat_map(|row| row.iter().copied().chain([0.0])).collect();
        *n += 1;
    }
}

/// `read` of a result of `rms_norm` gives one value too few.
#[derive(Debug)]
pub(crate) struct ShortRead;

impl Twist for ShortRead {
    fn read(&mut self, tensor: &MockTensor, values: &mut Vec<f32>) {
        if tensor.made_by == Op::RmsNorm {
            values.pop();
        }
    }
}

/// The result of `matmul` is shifted by one element.
#[derive(Debug)]
pub(crate) struct OffByOneElement;

impl Twist for OffByOneElement {
    fn after(&mut self, call: &Call<'_>, result: &mut Plain) {
        if matches!(call.op, Op::Matmul | Op::BatchedMatmul) && !result.values.is_empty() {
            result.values.rotate_left(1);
        }
    }
}

/// The last element of every row of a product is never written.
#[derive(Debug)]
pub(crate) struct DropsTail;

impl Twist for DropsTail {
    fn after(&mut self, call: &Call<'_>, result: &mut Plain) {
        let n = result.shape.last().copied().unwrap_or(1).max(1);
        if matches!(call.op, Op::Matmul | Op::BatchedMatmul) {
            result.values.chunks_mut(n).filter_map(<[f32]>::last_mut).for_each(|value| *value = 0.0);
        }
    }
}

/// `matmul` changes the first element of its input.
#[derive(Debug, Default)]
pub(crate) struct InputModified {
    changed: HashSet<u64>,
}

impl Twist for InputModified {
    fn after(&mut self, call: &Call<'_>, _result: &mut Plain) {
        if let (Op::Matmul, [_, x]) = (call.op, call.inputs) {
            self.changed.insert(x.id);
        }
    }
    fn seen(&self, tensor: &MockTensor, values: &mut Vec<f32>) {
        if let (true, Some(first)) = (self.changed.contains(&tensor.id), values.first_mut()) {
            *first += 1.0;
        }
    }
}

/// `rope` gives the result of the call before, where the shape is the same.
#[derive(Debug, Default)]
pub(crate) struct StaleOutput {
    last: HashMap<Vec<usize>, Plain>,
}

impl Twist for StaleOutput {
    fn after(&mut self, call: &Call<'_>, result: &mut Plain) {
        if call.op == Op::Rope {
            let before = self.last.insert(result.shape.clone(), result.clone());
            if let Some(before) = before {
                *result = before;
            }
        }
    }
}

/// Every tenth call is refused for no reason.
#[derive(Debug, Default)]
pub(crate) struct Flaky {
    calls: u64,
}

impl Twist for Flaky {
    fn before(&mut self, call: &Call<'_>) -> Result<(), BackendError> {
        self.calls += 1;
        if self.calls.is_multiple_of(10) && !matches!(call.op, Op::Free) {
            return Err(BackendError::internal("mock: refuses every tenth call"));
        }
        Ok(())
    }
}
