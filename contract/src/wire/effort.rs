//! What a worker spends where: in calls that are not answered, and in fences. Measured around the backend, not by it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::message::Request;

/// Where the time between two fences went, and how much work the device was given in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Effort {
    /// Nanoseconds inside the calls without an answer that came between the last fence and the one before it.
    pub calls_ns: u64,
    /// Nanoseconds inside the last fence.
    pub fence_ns: u64,
    /// [`Backend::dispatches`](crate::Backend::dispatches): work items given to the device since the start.
    pub dispatches: Option<u64>,
}

/// Sums up the time inside the backend. `identity` and `effort` are no fences here: they may be asked in between.
#[derive(Debug, Default)]
pub(super) struct Stopwatch {
    calls: Duration,
    fence: Duration,
    fenced: bool,
}

impl Stopwatch {
    /// Counts a request that took `spent`.
    pub(super) fn count(&mut self, request: &Request, spent: Duration) {
        if matches!(request, Request::Identity | Request::Effort) {
            return;
        }
        if request.is_fence() {
            // Two fences in a row have no calls between them.
            self.calls = if self.fenced { Duration::ZERO } else { self.calls };
            self.fence = spent;
        } else {
            self.calls = if self.fenced { spent } else { self.calls + spent };
        }
        self.fenced = request.is_fence();
    }

    pub(super) fn effort(&self, dispatches: Option<u64>) -> Effort {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Effort { calls_ns: nanoseconds(self.calls), fence_ns: nanoseconds(self.fence), dispatches }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures after requests that took 1, 2, 4, ... nanoseconds.
    fn after(requests: &[Request]) -> (u64, u64) {
        let mut stopwatch = Stopwatch::default();
        for (i, request) in requests.iter().enumerate() {
            stopwatch.count(request, Duration::from_nanos(1 << i));
        }
        let effort = stopwatch.effort(None);
        (effort.calls_ns, effort.fence_ns)
    }

    #[test]
    fn calls_and_fence_of_the_last_span() {
        let call = || Request::Matmul { out: 1, w: 2, x: 3 };
        let read = || Request::Read { tensor: 1 };
        assert_eq!(after(&[call(), call(), read()]), (3, 4));
        assert_eq!(after(&[read(), call(), read()]), (2, 4));
        assert_eq!(after(&[call(), read(), Request::Sync]), (0, 4));
        assert_eq!(after(&[call(), Request::Effort, Request::Identity, call(), read()]), (9, 16));
        assert_eq!(
            after(&[call(), read(), Request::Effort, call(), Request::Effort, Request::Sync]),
            (8, 32)
        );
    }
}
