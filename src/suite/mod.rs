//! Suites: TOML files that expand to cases.

mod case;
pub mod discrimination;
mod error;
mod load;
mod schema;
mod tree;

pub use case::Case;
pub use error::SuiteError;
pub use load::{Set, Suites, glob};
pub use schema::{AxisValue, Group, Limits, Pattern, Recipe, SetFile, SuiteFile, Tolerance};
pub use tree::SuiteTree;
