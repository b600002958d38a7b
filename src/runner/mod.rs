//! The runner: cases in, events out. It knows workers and checks, and nothing of terminals and files.

mod caps;
mod collectives;
mod contract;
mod delegate;
mod endurance;
mod event;
mod evict;
mod explain;
#[cfg(test)]
mod faulty;
mod finding;
mod forward;
mod generation;
mod host_help;
mod knowledge;
mod kv_pool;
mod kv_rows;
mod layer;
mod metamorphic;
mod models;
mod numerics;
mod ops;

mod refusal;
mod registry;
mod run;
mod script;
mod state;

pub use event::{Event, Sink};
pub use explain::explain;
pub use finding::{CheckError, Finding};
pub use knowledge::Knowledge;
pub use models::{DEFAULT_MODEL, Subject, SubjectError};
pub use registry::{asks, question, validate};
pub use run::{Order, Plan, RunError, run};
