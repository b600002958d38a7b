//! What carries frames: a Unix socket between processes, or a pipe in memory for tests.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A reliable, ordered stream of bytes in both directions, with a deadline.
///
/// `TimedOut` means that the deadline passed, `UnexpectedEof` or `BrokenPipe` that the peer is gone.
pub trait Transport {
    /// Sends all of `bytes`.
    ///
    /// # Errors
    /// As described for the trait.
    fn send(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Fills `buffer`.
    ///
    /// # Errors
    /// As described for the trait.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<()>;
    /// When the following calls give up; `None` is never.
    fn set_deadline(&mut self, deadline: Option<Instant>);
}

/// A Unix socket with a deadline that covers whole frames, however many system calls they take.
#[derive(Debug)]
pub struct SocketTransport {
    stream: UnixStream,
    deadline: Option<Instant>,
}

impl SocketTransport {
    /// Wraps a connected socket.
    pub fn new(stream: UnixStream) -> SocketTransport {
        SocketTransport { stream, deadline: None }
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let Some(deadline) = self.deadline else { return Ok(None) };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

/// A socket reports an elapsed timeout as `WouldBlock`.
fn elapsed(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}

impl Transport for SocketTransport {
    fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.stream.set_write_timeout(self.left()?)?;
            match self.stream.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::BrokenPipe.into()),
                Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(elapsed(e)),
            }
        }
        Ok(())
    }

    fn receive(&mut self, mut buffer: &mut [u8]) -> io::Result<()> {
        while !buffer.is_empty() {
            self.stream.set_read_timeout(self.left()?)?;
            match self.stream.read(buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => buffer = &mut buffer[n..],
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(elapsed(e)),
            }
        }
        Ok(())
    }

    fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }
}

#[derive(Debug, Default)]
struct Lane {
    state: Mutex<(VecDeque<u8>, bool)>,
    changed: Condvar,
}

impl Lane {
    fn lock(&self) -> MutexGuard<'_, (VecDeque<u8>, bool)> {
        // A panicking peer leaves bytes that are as good as any others.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One end of a pipe in memory.
#[derive(Debug)]
pub struct MemoryTransport {
    incoming: Arc<Lane>,
    outgoing: Arc<Lane>,
    deadline: Option<Instant>,
}

/// Two connected ends.
pub fn memory_pair() -> (MemoryTransport, MemoryTransport) {
    let (a, b) = (Arc::new(Lane::default()), Arc::new(Lane::default()));
    let end = |incoming: &Arc<Lane>, outgoing: &Arc<Lane>| MemoryTransport {
        incoming: Arc::clone(incoming),
        outgoing: Arc::clone(outgoing),
        deadline: None,
    };
    (end(&a, &b), end(&b, &a))
}

impl Transport for MemoryTransport {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.outgoing.lock();
        if state.1 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        state.0.extend(bytes);
        self.outgoing.changed.notify_all();
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let mut state = self.incoming.lock();
        while state.0.len() < buffer.len() {
            if state.1 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let left = match self.deadline {
                None => Duration::from_secs(3600),
                Some(deadline) => deadline.saturating_duration_since(Instant::now()),
            };
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            state = self.incoming.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let count = buffer.len();
        for (to, from) in buffer.iter_mut().zip(state.0.drain(..count)) {
            *to = from;
        }
        Ok(())
    }

    fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }
}

impl Drop for MemoryTransport {
    fn drop(&mut self) {
        for lane in [&self.incoming, &self.outgoing] {
            lane.lock().1 = true;
            lane.changed.notify_all();
        }
    }
}
