//! Inputs: the same bytes on every machine, in any order, from (seed, case id, operand).

mod blocks;
mod codes;
mod operand;
mod source;
mod stream;

pub use operand::Operand;
pub use source::{Source, value};
pub use stream::Stream;
