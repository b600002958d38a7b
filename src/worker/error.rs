//! Why there is no worker.

use std::path::PathBuf;

use modelbench_contract::BackendError;

use super::death::Death;

/// Why a worker could not be started or did not become usable.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The process could not be started.
    #[error("worker {}: {what}: {source}; check that the program exists and may be run", .program.display())]
    Start {
        /// The program that was to run.
        program: PathBuf,
        /// Which step failed.
        what: &'static str,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// The process ended or had to be killed before it said hello.
    #[error("worker {}: no hello: {death}", .program.display())]
    Died {
        /// The program that ran.
        program: PathBuf,
        /// How it ended.
        death: Box<Death>,
    },
    /// The backend could not be made; the worker itself works.
    #[error(transparent)]
    Unavailable(BackendError),
    /// The two sides speak no common version of the protocol, or the hello was not answered as it must be.
    #[error("worker {}: hello refused: {reason}", .program.display())]
    HelloRefused {
        /// The program that ran.
        program: PathBuf,
        /// What the other side said or what was wrong with it.
        reason: String,
    },
    /// The worker's own side: the process was not started by the launcher.
    #[error("this is no worker: {what}: {source}; workers are started by modelbench itself, not by hand")]
    NotAWorker {
        /// Which step failed.
        what: &'static str,
        /// What the operating system says.
        source: std::io::Error,
    },
}
