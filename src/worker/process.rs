//! A child process in a group of its own: how it ends, and that it ends.

use std::fmt;
use std::process::Child;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};

use super::output::wait_for;
use super::proc::signal_name;
use super::watchdog::{Usage, Watchdog};

/// Time that a worker gets to end after SIGTERM.
const TERM_PATIENCE: Duration = Duration::from_millis(500);
/// Time that the kernel gets to end a worker after SIGKILL.
const KILL_PATIENCE: Duration = Duration::from_secs(2);

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It ended itself with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exit code {code}"),
            Exit::Signal(signal) => f.write_str(&signal_name(*signal)),
        }
    }
}

/// A running child and the watch on its group. Dropping it kills the group.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    pid: Option<Pid>,
    watchdog: Watchdog,
    ended: Option<Exit>,
    abandoned: bool,
}

impl Process {
    /// Takes over a child that leads its own process group.
    ///
    /// # Errors
    /// What the operating system says when the watchdog's thread cannot be started; the child is killed then.
    pub(super) fn adopt(mut child: Child, memory_limit_bytes: u64) -> std::io::Result<Self> {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let watchdog = match pid {
            Some(pid) => Watchdog::start(pid, memory_limit_bytes),
            None => Err(std::io::Error::other(format!("the child has no usable process id: {}", child.id()))),
        };
        match watchdog {
            Ok(watchdog) => Ok(Process { child, pid, watchdog, ended: None, abandoned: false }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// The process id, as text for messages.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What the group has used so far.
    pub(super) fn usage(&self) -> Usage {
        self.watchdog.usage()
    }

    /// Resident bytes that made the watchdog kill the group, if it did.
    pub(super) fn over_limit(&self) -> Option<u64> {
        self.watchdog.over_limit()
    }

    /// Waits for the process to end by itself. The rest of its group is killed then.
    pub(super) fn wait_exit(&mut self, patience: Duration) -> Option<Exit> {
        if self.ended.is_none() {
            wait_for(patience, || self.has_exited().then_some(()))?;
            self.reap();
        }
        self.ended
    }

    /// SIGTERM to the group, then SIGKILL, each with bounded patience. `None` if the process cannot be killed.
    pub(super) fn terminate(&mut self) -> Option<Exit> {
        if self.ended.is_none() {
            self.watchdog.signal_group(Signal::TERM);
            let ended = self.wait_exit(TERM_PATIENCE);
            if ended.is_some() {
                return ended;
            }
        }
        self.kill()
    }

    /// SIGKILL to the group, with bounded patience. `None` if the process cannot be killed.
    pub(super) fn kill(&mut self) -> Option<Exit> {
        self.watchdog.signal_group(Signal::KILL);
        let ended = self.wait_exit(KILL_PATIENCE);
        self.abandoned = ended.is_none();
        ended
    }

    /// Looks without reaping, so that the process number stays taken and its figures stay readable.
    fn has_exited(&self) -> bool {
        let Some(pid) = self.pid else { return true };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(pid), options) {
            Ok(status) => status.is_some(),
            Err(rustix::io::Errno::INTR) => false,
            // Nobody but this type reaps the child; if it is gone all the same, there is nothing to wait for.
            Err(_) => true,
        }
    }

    fn reap(&mut self) {
        self.watchdog.retire();
        self.ended = Some(match self.child.wait() {
            Ok(status) => exit_of(status),
            Err(_) => Exit::Code(-1),
        });
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended.is_none() && !self.abandoned {
            self.kill();
        }
    }
}

fn exit_of(status: std::process::ExitStatus) -> Exit {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Code(-1),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use super::*;

    const LIMIT: u64 = 1 << 30;
    const SOON: Duration = Duration::from_secs(30);

    fn shell(script: &str) -> Child {
        Command::new("/bin/sh")
            .args(["-c", script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("sh starts")
    }

    fn adopt(script: &str, limit: u64) -> Process {
        Process::adopt(shell(script), limit).expect("adopted")
    }

    #[test]
    fn exit_codes_and_signals_are_told_apart() {
        assert_eq!(adopt("exit 0", LIMIT).wait_exit(SOON), Some(Exit::Code(0)));
        assert_eq!(adopt("exit 3", LIMIT).wait_exit(SOON), Some(Exit::Code(3)));
        assert_eq!(adopt("kill -SEGV $$", LIMIT).wait_exit(SOON), Some(Exit::Signal(11)));
    }

    #[test]
    fn a_process_that_goes_on_is_not_reported_as_ended() {
        let mut process = adopt("sleep 600", LIMIT);
        assert_eq!(process.wait_exit(Duration::from_millis(20)), None);
        assert_eq!(process.terminate(), Some(Exit::Signal(15)));
    }

    #[test]
    fn sigterm_refused_means_sigkill() {
        let mut child = shell("trap '' TERM; echo ready; while :; do sleep 600; done");
        let mut ready = [0u8; 6];
        std::io::Read::read_exact(child.stdout.as_mut().expect("piped"), &mut ready)
            .expect("the trap is set");
        let mut process = Process::adopt(child, LIMIT).expect("adopted");
        assert_eq!(process.terminate(), Some(Exit::Signal(9)));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_group_dies_with_its_leader() {
        let mut child = shell("sleep 600 & echo $!; exit 0");
        let mut text = String::new();
        let stdout = child.stdout.take().expect("piped");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut text).expect("a line");
        let grandchild: i32 = text.trim().parse().expect("a pid");
        let mut process = Process::adopt(child, LIMIT).expect("adopted");
        let group = process.id() as i32;
        assert_eq!(process.wait_exit(SOON), Some(Exit::Code(0)));
        let gone = wait_for(SOON, || {
            let alive = super::super::proc::family(group).contains(&grandchild);
            let zombie = std::fs::read_to_string(format!("/proc/{grandchild}/stat"))
                .is_ok_and(|stat| stat.contains(") Z "));
            (!alive || zombie).then_some(())
        });
        assert_eq!(gone, Some(()), "the grandchild outlived its group");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_above_the_limit_is_noticed_and_ends_the_group() {
        // Any shell is larger than one page.
        let mut process = adopt("sleep 600", 4096);
        assert_eq!(process.wait_exit(SOON), Some(Exit::Signal(9)));
        assert!(process.over_limit().is_some_and(|rss| rss > 4096));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_and_time_are_measured() {
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let mut process = adopt(script, LIMIT);
        assert_eq!(process.wait_exit(SOON), Some(Exit::Code(0)));
        let usage = process.usage();
        assert!(usage.peak_rss_bytes.is_some_and(|bytes| bytes > 0 && bytes < LIMIT), "{usage:?}");
        assert!(usage.cpu_seconds.is_some_and(|seconds| seconds > 0.0), "{usage:?}");
        assert_eq!(process.over_limit(), None);
    }
}
