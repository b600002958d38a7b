//! Self-test backends: each misbehaves in one known way, so that every check of the kit is seen to fail.
//!
//! [`Mock::by_name`] gives the backend of a behaviour. `honest` computes everything with arithmetic of its own, within
//! the bounds of f32; every other behaviour is the honest one with one small twist (`twist::Twist`). They are only for
//! checking the kit; their ids carry the prefix `mock:`, which no real backend can have.
//!
//! This crate alone among the backends may use cpu-ref: to decode quantised tensors, and to play the backend that
//! hands the work to the reference.

mod arithmetic;
mod behaviours;
mod check;
mod delegating;
mod fatal;
mod kv;
mod liars;
mod mock;
mod mock_kv;
mod numeric;
mod serve;
mod shapes;
mod tensor;
mod twist;

pub use behaviours::Behaviour;
pub use kv::MockKv;
pub use mock::{Mock, MockError};

pub use serve::GarblingTransport;
pub use tensor::MockTensor;
