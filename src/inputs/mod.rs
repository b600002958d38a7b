//! Inputs: the same bytes on every machine, in any order, from (seed, case id, operand).

mod blocks;
mod operand;
mod stream;

pub use operand::{Operand, value};
pub use stream::Stream;
