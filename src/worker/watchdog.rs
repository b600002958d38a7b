//! Watches the memory and the CPU time of a worker's process group from a thread of its own.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use super::proc;

/// Time between two looks at the memory of the known processes.
const PERIOD: Duration = Duration::from_millis(20);
/// Looks between two searches for new processes of the group; a search reads the whole of `/proc`.
const LOOKS_PER_SEARCH: u32 = 10;

/// What a worker has used so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// Largest resident memory of the process group in bytes, as sampled every 20 ms, shared pages counted for each
    /// process. `None` where the operating system has no `/proc`.
    pub peak_rss_bytes: Option<u64>,
    /// CPU seconds of the worker's processes, user and system. `None` where the operating system has no `/proc`.
    pub cpu_seconds: Option<f64>,
}

#[derive(Debug)]
struct State {
    /// False as soon as the leader may have been reaped: from then on its number may name other processes.
    signals_allowed: bool,
    members: Vec<i32>,
    peak_rss: Option<u64>,
    ticks: Option<u64>,
    over_limit: Option<u64>,
}

/// A process group under watch. Signals go through it, so that none is ever sent to a recycled number.
#[derive(Debug)]
pub(super) struct Watchdog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    group: Pid,
    limit: u64,
    state: Mutex<State>,
    stop: Condvar,
}

impl Watchdog {
    /// Watches the group that `leader` leads and kills all of it when its resident memory passes `limit` bytes.
    pub(super) fn start(leader: Pid, limit: u64) -> std::io::Result<Self> {
        let state = State {
            signals_allowed: true,
            members: vec![leader.as_raw_pid()],
            peak_rss: None,
            ticks: None,
            over_limit: None,
        };
        let shared =
            Arc::new(Shared { group: leader, limit, state: Mutex::new(state), stop: Condvar::new() });
        let theirs = Arc::clone(&shared);
        let thread =
            std::thread::Builder::new().name("worker-watchdog".to_owned()).spawn(move || watch(&theirs))?;
        Ok(Watchdog { shared, thread: Some(thread) })
    }

    /// Sends a signal to the whole group, unless the leader may already be gone.
    pub(super) fn signal_group(&self, signal: Signal) {
        self.shared.lock().signal_group(self.shared.group, signal);
    }

    /// Takes a last look, kills what is left of the group, and sends no signal afterwards. Call it before the leader
    /// is reaped.
    pub(super) fn retire(&mut self) {
        {
            let mut state = self.shared.lock();
            if state.signals_allowed {
                state.search(self.shared.group);
                state.look();
                state.signal_group(self.shared.group, Signal::KILL);
                state.signals_allowed = false;
            }
        }
        self.shared.stop.notify_all();
        if let Some(thread) = self.thread.take() {
            // The thread only computes and sleeps; if it panicked there is nothing left to stop.
            let _ = thread.join();
        }
    }

    /// What the group has used so far.
    pub(super) fn usage(&self) -> Usage {
        let mut state = self.shared.lock();
        if state.signals_allowed {
            state.look();
        }
        Usage { peak_rss_bytes: state.peak_rss, cpu_seconds: state.ticks.map(proc::seconds) }
    }

    /// Resident bytes that made the watchdog kill the group, if it did.
    pub(super) fn over_limit(&self) -> Option<u64> {
        self.shared.lock().over_limit
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.retire();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn signal_group(&self, group: Pid, signal: Signal) {
        if self.signals_allowed {
            // The only failure is that nobody is left to get it.
            let _ = kill_process_group(group, signal);
        }
    }

    fn search(&mut self, group: Pid) {
        let leader = group.as_raw_pid();
        self.members = proc::family(leader);
        if !self.members.contains(&leader) {
            self.members.push(leader);
        }
    }

    /// Samples the known processes and gives their resident bytes.
    fn look(&mut self) -> u64 {
        let stats: Vec<proc::Stat> = self.members.iter().filter_map(|&pid| proc::stat(pid)).collect();
        if stats.is_empty() {
            return 0;
        }
        let resident = proc::bytes(stats.iter().map(|stat| stat.resident_pages).sum());
        let ticks = stats.iter().map(|stat| stat.ticks).sum();
        self.peak_rss = Some(self.peak_rss.unwrap_or(0).max(resident));
        // A process that left the group took its figure along, so the sum may fall; time that was used stays used.
        self.ticks = Some(self.ticks.unwrap_or(0).max(ticks));
        resident
    }
}

fn watch(shared: &Shared) {
    let mut state = shared.lock();
    for round in 0u32.. {
        if !state.signals_allowed {
            return;
        }
        if round.is_multiple_of(LOOKS_PER_SEARCH) {
            state.search(shared.group);
        }
        let resident = state.look();
        if resident > shared.limit {
            state.over_limit.get_or_insert(resident);
            state.signal_group(shared.group, Signal::KILL);
        }
        let waited = shared.stop.wait_timeout(state, PERIOD);
        (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
    }
}
