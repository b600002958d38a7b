//! What the runner says while it works. Everything that is printed or written is a sink for these.

use modelbench_evidence::measured::Measured;
use modelbench_evidence::record::{CaseRecord, Header};

/// One thing that happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// The worker answered; nothing has run yet.
    Started {
        /// First line of the record.
        header: &'a Header,
        /// Number of cases that will run.
        cases: usize,
    },
    /// A case begins.
    CaseStarted {
        /// Its id.
        id: &'a str,
    },
    /// A case ended.
    CaseFinished {
        /// Its line of the record.
        record: &'a CaseRecord,
    },
    /// Every case ran; where the work was done is being measured.
    Measuring,
    /// It was measured.
    Measured {
        /// Its line of the record.
        measured: &'a Measured,
    },
    /// The worker died and a fresh one took its place.
    WorkerReplaced {
        /// Number of workers so far.
        workers: usize,
    },
}

/// Takes events; an error ends the run.
pub trait Sink {
    /// One event.
    ///
    /// # Errors
    /// What prevents the sink from doing its job, such as a full disk.
    fn event(&mut self, event: &Event<'_>) -> std::io::Result<()>;
}

/// Several sinks as one, in order.
impl Sink for Vec<&mut dyn Sink> {
    fn event(&mut self, event: &Event<'_>) -> std::io::Result<()> {
        self.iter_mut().try_for_each(|sink| sink.event(event))
    }
}
