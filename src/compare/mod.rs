//! The judge: per element, never per tensor.

mod bits;
mod discriminate;
mod judge;
mod trust;

pub use bits::{bits_differ, first_difference};
pub use discriminate::{GARBAGE, Question};
pub use judge::{Judgement, Want, judge};
pub use trust::mistrust;
