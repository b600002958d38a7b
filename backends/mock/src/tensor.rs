//! The mock's tensors.

use std::sync::Arc;

use modelbench_contract::{DType, DeviceTensor, HostTensor, Op, TensorDesc};

/// A tensor of a mock: always its f32 values, and for uploads the host tensor they came from.
#[derive(Debug, Clone)]
pub struct MockTensor {
    pub(crate) id: u64,
    pub(crate) desc: TensorDesc,
    pub(crate) values: Arc<[f32]>,
    pub(crate) source: Option<HostTensor>,
    pub(crate) made_by: Op,
}

impl DeviceTensor for MockTensor {
    fn desc(&self) -> &TensorDesc {
        &self.desc
    }
}

/// A result before it becomes a tensor: what a twist may spoil.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plain {
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<f32>,
}

impl Plain {
    pub(crate) fn new(shape: &[usize], values: Vec<f32>) -> Self {
        Plain { shape: shape.to_vec(), values }
    }

    pub(crate) fn into_tensor(self, id: u64, made_by: Op) -> MockTensor {
        let desc = TensorDesc::new(self.shape, DType::F32);
        MockTensor { id, desc, values: self.values.into(), source: None, made_by }
    }
}
