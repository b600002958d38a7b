//! Keeps a bounded part of what a worker prints.

use std::collections::VecDeque;
use std::io::Read;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Bytes kept from the start of a stream.
pub(super) const HEAD_BYTES: usize = 4 * 1024;
/// Bytes kept from the end of a stream.
pub(super) const TAIL_BYTES: usize = 16 * 1024;

/// The first 4 KiB and the last 16 KiB of a stream, and how much fell out between them.
#[derive(Debug, Default)]
pub(super) struct Ring {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    dropped: u64,
}

impl Ring {
    /// Takes the next bytes of the stream.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(bytes.len().min(HEAD_BYTES - self.head.len()));
        self.head.extend_from_slice(first);
        let surplus = (self.tail.len() + rest.len()).saturating_sub(TAIL_BYTES);
        self.dropped += surplus as u64;
        let from_tail = surplus.min(self.tail.len());
        self.tail.drain(..from_tail);
        self.tail.extend(&rest[surplus - from_tail..]);
    }

    /// The kept bytes as text. Bytes that are not UTF-8 become U+FFFD; a gap is marked with its length.
    pub(super) fn text(&self) -> String {
        let (front, back) = self.tail.as_slices();
        let mut kept = self.head.clone();
        if self.dropped > 0 {
            kept.extend_from_slice(format!("\n[... {} bytes dropped ...]\n", self.dropped).as_bytes());
        }
        kept.extend_from_slice(front);
        kept.extend_from_slice(back);
        String::from_utf8_lossy(&kept).into_owned()
    }
}

#[derive(Debug, Default)]
struct State {
    ring: Ring,
    ended: bool,
    abandoned: bool,
}

/// A stream of a worker that a thread drains into a [`Ring`], so that a full pipe never blocks the worker.
#[derive(Debug)]
pub(super) struct Capture {
    shared: Arc<(Mutex<State>, Condvar)>,
}

impl Capture {
    /// Starts to drain `stream`.
    ///
    /// # Errors
    /// What the operating system says when no thread can be started.
    pub(super) fn start(name: &str, stream: impl Read + AsFd + Send + 'static) -> std::io::Result<Self> {
        let shared = Arc::<(Mutex<State>, Condvar)>::default();
        let theirs = Arc::clone(&shared);
        std::thread::Builder::new().name(format!("worker-{name}")).spawn(move || drain(stream, &theirs))?;
        Ok(Capture { shared })
    }

    /// Waits for the end of the stream, at most `patience`, and gives what is kept. A process that escaped the
    /// worker's group may hold the stream open for ever; that is why the wait is bounded.
    pub(super) fn finish(&self, patience: Duration) -> String {
        let state = lock(&self.shared.0);
        let ended = self.shared.1.wait_timeout_while(state, patience, |state| !state.ended);
        let (state, _) = ended.unwrap_or_else(PoisonError::into_inner);
        state.ring.text()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        lock(&self.shared.0).abandoned = true;
    }
}

fn lock(mutex: &Mutex<State>) -> MutexGuard<'_, State> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long the thread may sleep before it looks whether anybody still wants the stream.
const LOOK_UP: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

fn drain(mut stream: impl Read + AsFd, shared: &(Mutex<State>, Condvar)) {
    let mut buffer = [0u8; 16 * 1024];
    loop {
        let ready = poll(&mut [PollFd::new(&stream, PollFlags::IN)], Some(&LOOK_UP));
        let mut state = lock(&shared.0);
        match ready {
            _ if state.abandoned => break,
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(_) => break,
        }
        drop(state);
        // Something is readable or the stream has ended, so this does not block.
        let got = stream.read(&mut buffer);
        state = lock(&shared.0);
        match got {
            Ok(0) => break,
            Ok(n) => state.ring.push(&buffer[..n]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    lock(&shared.0).ended = true;
    shared.1.notify_all();
}

/// Waits until `done` gives a value, at most `patience`, looking every few milliseconds.
pub(super) fn wait_for<T>(patience: Duration, mut done: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(value) = done() {
            return Some(value);
        }
        if start.elapsed() >= patience {
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_short_stream_is_kept_whole() {
        let mut ring = Ring::default();
        ring.push(b"hello ");
        ring.push(b"world");
        assert_eq!(ring.text(), "hello world");
        assert_eq!(ring.dropped, 0);
    }

    #[test]
    fn head_and_tail_survive_and_the_gap_is_counted() {
        for chunk in [1usize, 7, 4096, 1 << 20] {
            let stream: Vec<u8> = (0..100_000u32).map(|i| b'a' + (i % 26) as u8).collect();
            let mut ring = Ring::default();
            stream.chunks(chunk).for_each(|part| ring.push(part));
            let dropped = stream.len() - HEAD_BYTES - TAIL_BYTES;
            assert_eq!(ring.dropped, dropped as u64, "chunks of {chunk}");
            let text = ring.text();
            let marker = format!("\n[... {dropped} bytes dropped ...]\n");
            let (head, tail) = text.split_once(&marker).expect("the gap is marked");
            assert_eq!(head.as_bytes(), &stream[..HEAD_BYTES]);
            assert_eq!(tail.as_bytes(), &stream[stream.len() - TAIL_BYTES..]);
        }
    }

    #[test]
    fn a_capture_ends_with_its_stream() {
        let (reader, mut writer) = std::io::pipe().expect("pipe");
        let capture = Capture::start("test", reader).expect("thread");
        writer.write_all(b"last words").expect("write");
        drop(writer);
        assert_eq!(capture.finish(Duration::from_secs(30)), "last words");
    }

    #[test]
    fn a_stream_that_never_ends_does_not_hold_up_the_kit() {
        let (reader, mut writer) = std::io::pipe().expect("pipe");
        let capture = Capture::start("test", reader).expect("thread");
        writer.write_all(b"still here").expect("write");
        let seen = wait_for(Duration::from_secs(30), || {
            Some(lock(&capture.shared.0).ring.text()).filter(|text| !text.is_empty())
        });
        assert_eq!(seen.as_deref(), Some("still here"));
        assert_eq!(capture.finish(Duration::from_millis(10)), "still here");
    }
}
