//! Runs a whole-model action, with the host standing in for ops that the backend turns out to lack.

use std::collections::{BTreeMap, BTreeSet};

use modelbench_contract::{Backend, BackendError, ErrorKind, Op};

use super::delegate::Delegating;
use super::finding::CheckError;
use crate::model::ForwardError;

/// What an action gave, and what the host did for it.
#[derive(Debug)]
pub struct Helped<T> {
    /// The action's value.
    pub value: T,
    /// Ops that the host ran, by name.
    pub delegated: BTreeMap<String, u64>,
}

/// Runs `action`; each time it fails for want of an op, that op goes to the host and the action starts again.
///
/// # Errors
/// Any other error, and an op that is missing although the host runs it.
pub fn helped<B: Backend, T>(
    backend: &mut B,
    mut action: impl FnMut(&mut Delegating<'_, B>) -> Result<T, ForwardError>,
) -> Result<Helped<T>, CheckError> {
    let mut missing = BTreeSet::new();
    loop {
        let mut with_host = Delegating::new(backend, missing.clone());
        let error = match action(&mut with_host) {
            Ok(value) => {
                let counts = with_host.counts().iter().map(|(op, n)| (op.as_str().to_owned(), *n));
                return Ok(Helped { value, delegated: counts.collect() });
            }
            Err(ForwardError::Backend(error)) => error,
            // The backend gave another number of values than the op has.
            Err(error @ ForwardError::Output { .. }) => {
                return Err(BackendError::internal(format!("wrong shape: {error}")).into());
            }
            Err(error) => return Err(CheckError::Kit(error.to_string())),
        };
        let learnt = match (error.kind, error.op) {
            (ErrorKind::Unimplemented, Some(op)) => missing.insert(store_as_a_whole(op)),
            _ => false,
        };
        if !learnt {
            return Err(error.into());
        }
    }
}

/// A store that lacks any of its parts goes to the host as a whole.
fn store_as_a_whole(op: Op) -> Op {
    match op {
        Op::KvAppend
        | Op::KvLen
        | Op::KvKeys
        | Op::KvValues
        | Op::KvPositions
        | Op::KvEvict
        | Op::KvClone => Op::NewKv,
        op => op,
    }
}
