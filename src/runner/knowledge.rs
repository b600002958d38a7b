//! What a run knows beside the backend. Several runs over the same cases may share it, one after the other.

use super::models::{Models, Subject};
use super::ops::Kept;

/// The model under test, the other models with the truth about them, and what is known of op cases.
#[derive(Debug)]
pub struct Knowledge {
    pub(super) models: Models,
    pub(super) ops: Kept,
}

impl Knowledge {
    /// For one run: every op case is met once, so that nothing about it is kept.
    pub fn new(subject: Subject) -> Knowledge {
        Knowledge { models: Models::new(subject), ops: Kept::with_room(0) }
    }

    /// For several runs: keeps up to about `bytes` of what is known of op cases.
    pub fn shared(subject: Subject, bytes: usize) -> Knowledge {
        Knowledge { ops: Kept::with_room(bytes), ..Knowledge::new(subject) }
    }
}
