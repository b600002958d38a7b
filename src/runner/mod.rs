//! The runner: cases in, events out. It knows workers and checks, and nothing of terminals and files.

mod candidate;
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
mod fingerprint;
mod forward;
mod generation;
mod header;
mod host_help;
mod knowledge;
mod kv_pool;
mod kv_rows;
mod layer;
mod measure;
mod metamorphic;
mod models;
mod numerics;
mod ops;
mod post;
mod recompute;
mod refusal;
mod registry;
mod run;
mod script;
mod state;

pub use candidate::Candidate;
pub use event::{Event, Sink};
pub use explain::explain;
pub use finding::{CheckError, Finding};
pub use fingerprint::{
    FingerprintError, FingerprintPlan, Fingerprinted, Gone, ProbeError, Scheme, TERMS, fingerprint, rebuild,
    tree_of,
};
pub use header::own_binary;
pub use knowledge::Knowledge;
pub use models::{DEFAULT_MODEL, Subject, SubjectError};
pub use recompute::{RecomputeError, Recomputed, recompute};
pub use registry::{asks, question, subject, validate};
pub use run::{Order, Plan, Ran, RunError, run};
