//! The temporaries of a forward pass, so that an error in the middle frees them too.

use modelbench_contract::{Backend, BackendError};

/// Number of a temporary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot(usize);

/// Tensors that live until [`Scratch::free_from`], first in, last out.
pub(super) struct Scratch<B: Backend> {
    tensors: Vec<B::Tensor>,
}

impl<B: Backend> Scratch<B> {
    pub(super) fn new() -> Self {
        Scratch { tensors: Vec::new() }
    }

    /// Keeps a tensor.
    pub(super) fn put(&mut self, tensor: B::Tensor) -> Slot {
        self.tensors.push(tensor);
        Slot(self.tensors.len() - 1)
    }

    /// The tensor in a slot that has not been freed.
    pub(super) fn get(&self, slot: Slot) -> &B::Tensor {
        &self.tensors[slot.0]
    }

    /// The same, to be changed.
    pub(super) fn get_mut(&mut self, slot: Slot) -> &mut B::Tensor {
        &mut self.tensors[slot.0]
    }

    /// `dst += src`, where `dst` is the older of the two.
    pub(super) fn add(&mut self, backend: &mut B, dst: Slot, src: Slot) -> Result<(), BackendError> {
        let (older, newer) = self.tensors.split_at_mut(src.0);
        backend.add_in_place(&mut older[dst.0], &newer[0])
    }

    /// Where the next tensor will go.
    pub(super) fn mark(&self) -> Slot {
        Slot(self.tensors.len())
    }

    /// Frees everything from `mark` on and reports the first error after trying all.
    pub(super) fn free_from(&mut self, backend: &mut B, mark: Slot) -> Result<(), BackendError> {
        let mut first = Ok(());
        while self.tensors.len() > mark.0 {
            if let Some(tensor) = self.tensors.pop() {
                first = first.and(backend.free(tensor));
            }
        }
        first
    }

    /// Frees everything.
    pub(super) fn free_all(&mut self, backend: &mut B) -> Result<(), BackendError> {
        self.free_from(backend, Slot(0))
    }
}
