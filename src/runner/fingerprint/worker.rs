//! The fingerprint of a backend in a worker of its own.

use modelbench_contract::Identity;
use modelbench_evidence::tree::Measured;

use super::{Gone, measure};
use crate::runner::Candidate;
use crate::worker::{Death, Worker};

/// Whose order to find.
#[derive(Debug, Clone)]
pub struct FingerprintPlan {
    /// The backend.
    pub candidate: Candidate,
    /// Seed of the probes.
    pub seed: u64,
}

/// What was found.
#[derive(Debug, Clone)]
pub struct Fingerprinted {
    /// Who the backend says it is.
    pub identity: Identity,
    /// Every product and number of terms.
    pub measured: Vec<Measured>,
}

/// Why nothing was found.
#[derive(Debug, thiserror::Error)]
pub enum FingerprintError {
    /// The backend could not be loaded.
    #[error("backend {backend:?} could not be loaded: {reason}")]
    NotLoaded {
        /// Its name.
        backend: String,
        /// What it or its worker said.
        reason: String,
    },
    /// The worker or its device was lost.
    #[error("{gone}{}", .death.as_ref().map(|death| format!("; {death}")).unwrap_or_default())]
    Gone {
        /// The product that was asked for.
        gone: Gone,
        /// How the worker ended, if it did.
        death: Option<Box<Death>>,
    },
}

/// Starts a worker, measures, and ends it.
///
/// # Errors
/// [`FingerprintError`]. What a backend lacks or refuses is no error but said in the result.
pub fn fingerprint(plan: &FingerprintPlan) -> Result<Fingerprinted, FingerprintError> {
    let mut worker = Worker::launch(&plan.candidate.worker()).map_err(|error| {
        FingerprintError::NotLoaded { backend: plan.candidate.backend.clone(), reason: error.to_string() }
    })?;
    let identity = worker.identity().clone();
    match measure(worker.remote(), &identity.numerics, plan.seed, &[]) {
        Ok(measured) => {
            worker.shutdown();
            Ok(Fingerprinted { identity, measured })
        }
        Err(gone) => {
            let died = worker.remote().fault().is_some();
            let death = died.then(|| Box::new(worker.autopsy()));
            Err(FingerprintError::Gone { gone, death })
        }
    }
}
