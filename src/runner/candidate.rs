//! The backend under test: which it is, and how its workers are started.

use std::time::Duration;

use modelbench_contract::Identity;

use super::run::RunError;
use crate::worker::{Worker, WorkerSpec};

/// A backend by name, what its workers are told, and the limits that they live in.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Its exact name.
    pub backend: String,
    /// True if self-test backends are allowed.
    pub self_test: bool,
    /// Variables for the worker beside those that it gets of this process's environment.
    pub environment: Vec<(&'static str, String)>,
    /// Longest time that one request may take.
    pub request_deadline: Duration,
    /// Most memory that the worker may use, in bytes.
    pub memory_limit_bytes: u64,
}

impl Candidate {
    /// Starts a worker, asks who the backend is, and ends it.
    ///
    /// # Errors
    /// [`RunError::NotLoaded`].
    pub fn identify(&self) -> Result<Identity, RunError> {
        let worker = Worker::launch(&self.worker())
            .map_err(|e| RunError::NotLoaded { backend: self.backend.clone(), reason: e.to_string() })?;
        let identity = worker.identity().clone();
        worker.shutdown();
        Ok(identity)
    }

    /// How its worker is started.
    pub(super) fn worker(&self) -> WorkerSpec {
        let mut args = vec!["worker".into(), "--backend".into(), self.backend.as_str().into()];
        if self.self_test {
            args.push("--self-test".into());
        }
        let mut spec = WorkerSpec {
            args,
            request_deadline: self.request_deadline,
            start_deadline: self.request_deadline.max(Duration::from_secs(30)),
            memory_limit_bytes: self.memory_limit_bytes,
            ..WorkerSpec::this_binary()
        };
        for (name, value) in &self.environment {
            spec.environment = spec.environment.with(name, value);
        }
        spec
    }
}
