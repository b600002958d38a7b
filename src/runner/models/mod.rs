//! Whole models: which ones, and the truth about them.

mod subject;
mod truth;
mod weights;

pub use subject::{DEFAULT_MODEL, Subject, SubjectError};
pub use truth::{Limits, Models, Truth};
