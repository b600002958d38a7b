//! When a command must wait for earlier ones: if it reads what they wrote, or writes what they read or wrote.

/// More remembered ranges than this make a barrier cheaper than looking through them.
const MOST: usize = 256;

/// Bytes of a buffer that a command touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Span {
    /// The buffer, by its handle.
    pub(crate) buffer: u64,
    /// First byte.
    pub(crate) begin: u64,
    /// One past the last byte.
    pub(crate) end: u64,
}

impl Span {
    fn meets(&self, other: &Span) -> bool {
        self.buffer == other.buffer && self.begin < other.end && other.begin < self.end
    }
}

/// How a command meets an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hazard {
    ReadAfterWrite,
    WriteAfterWrite,
    WriteAfterRead,
}

/// What the commands since the last barrier touch.
#[derive(Debug, Default)]
pub(crate) struct Hazards {
    read: Vec<Span>,
    written: Vec<Span>,
    /// The next hazard of this kind gets no barrier: a fault that no build but the crate's own unit tests can have.
    #[cfg(test)]
    pub(crate) left_out: Option<Hazard>,
}

impl Hazards {
    /// Notes a command; true if a barrier must come before it.
    pub(crate) fn barrier_before(&mut self, reads: &[Span], writes: &[Span]) -> bool {
        let hazard = self.hazard(reads, writes);
        #[cfg(test)]
        let hazard = if hazard.is_some() && hazard == self.left_out {
            self.left_out = None;
            None
        } else {
            hazard
        };
        let barrier = hazard.is_some() || self.read.len() + self.written.len() > MOST;
        if barrier {
            self.clear();
        }
        self.read.extend_from_slice(reads);
        self.written.extend_from_slice(writes);
        barrier
    }

    fn hazard(&self, reads: &[Span], writes: &[Span]) -> Option<Hazard> {
        let any = |spans: &[Span], earlier: &[Span]| spans.iter().any(|s| earlier.iter().any(|e| s.meets(e)));
        if any(reads, &self.written) {
            Some(Hazard::ReadAfterWrite)
        } else if any(writes, &self.written) {
            Some(Hazard::WriteAfterWrite)
        } else {
            any(writes, &self.read).then_some(Hazard::WriteAfterRead)
        }
    }

    /// Forgets everything: all earlier commands are waited for.
    pub(crate) fn clear(&mut self) {
        self.read.clear();
        self.written.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(begin: u64, end: u64) -> Span {
        Span { buffer: 7, begin, end }
    }

    #[test]
    fn only_overlaps_with_a_write_need_a_barrier() {
        let mut hazards = Hazards::default();
        assert!(!hazards.barrier_before(&[span(0, 8)], &[span(8, 16)]));
        assert!(!hazards.barrier_before(&[span(0, 8)], &[span(16, 24)]), "reading twice is no hazard");
        assert!(!hazards.barrier_before(&[Span { buffer: 8, ..span(8, 16) }], &[]), "another buffer");
        assert!(hazards.barrier_before(&[span(15, 17)], &[]), "reads what was written");
        assert!(!hazards.barrier_before(&[span(15, 17)], &[]), "the barrier covers what came before it");
        assert!(hazards.barrier_before(&[], &[span(16, 20)]), "writes what was read");
        assert!(hazards.barrier_before(&[], &[span(19, 30)]), "writes what was written");
        hazards.clear();
        assert!(!hazards.barrier_before(&[span(0, 100)], &[span(0, 100)]));
    }

    #[test]
    fn the_list_is_bounded() {
        let mut hazards = Hazards::default();
        let barriers =
            (0..10 * MOST as u64).filter(|&i| hazards.barrier_before(&[], &[span(i, i + 1)])).count();
        assert!((1..=10).contains(&barriers), "{barriers}");
    }
}
