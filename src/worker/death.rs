//! Why a worker ended before its work was done.

use std::fmt;
use std::time::Duration;

use modelbench_contract::Op;

use super::proc::signal_name;
use super::process::Exit;
use super::watchdog::Usage;

/// What ended a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// It ended by itself, or something outside the kit ended it.
    Crash(Exit),
    /// A request was not answered in time and the kit killed it.
    Timeout {
        /// The request that was waited for. The op that hangs may be an earlier one: see [`Death::last_op`].
        op: Option<Op>,
        /// The deadline.
        after: Duration,
    },
    /// It sent something that is not the protocol and the kit killed it.
    Garbage {
        /// What was wrong with it.
        message: String,
    },
    /// It used more memory than allowed and the kit killed it.
    MemoryLimit {
        /// Resident bytes of its processes when that was noticed.
        rss: u64,
        /// Resident bytes allowed.
        limit: u64,
    },
    /// It survived SIGKILL, usually inside a driver; it was abandoned.
    Unkillable {
        /// Its process id.
        pid: u32,
    },
    /// Nothing was wrong with it and the kit ended it.
    Stopped,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Crash(Exit::Code(0)) => f.write_str("exited 0 before the work was done"),
            Cause::Crash(Exit::Code(code)) => write!(f, "exited {code} before the work was done"),
            Cause::Crash(Exit::Signal(signal)) => f.write_str(&signal_name(*signal)),
            Cause::Timeout { op: Some(op), after } => write!(f, "no answer to {op} within {after:?}"),
            Cause::Timeout { op: None, after } => write!(f, "no answer within {after:?}"),
            Cause::Garbage { message } => write!(f, "broke the protocol: {message}"),
            Cause::MemoryLimit { rss, limit } => {
                write!(f, "memory limit: {} MiB in use, {} MiB allowed", rss >> 20, limit >> 20)
            }
            Cause::Unkillable { pid } => write!(f, "process {pid} survived SIGKILL and was abandoned"),
            Cause::Stopped => f.write_str("stopped by the kit"),
        }
    }
}

/// The end of a worker, for the record of the case that was in flight.
#[derive(Debug, Clone, PartialEq)]
pub struct Death {
    /// What ended it.
    pub cause: Cause,
    /// The last op that the worker began; where it did not say, the last one that the host sent.
    pub last_op: Option<Op>,
    /// What its processes used in all.
    pub usage: Usage,
    /// What is kept of its stdout.
    pub stdout: String,
    /// What is kept of its stderr.
    pub stderr: String,
}

impl Death {
    /// The last lines of stderr, at most `lines` of them.
    pub fn stderr_tail(&self, lines: usize) -> String {
        last_lines(&self.stderr, lines)
    }

    /// The last lines of stdout, at most `lines` of them.
    pub fn stdout_tail(&self, lines: usize) -> String {
        last_lines(&self.stdout, lines)
    }
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cause)?;
        if let Some(op) = self.last_op {
            write!(f, "; last op {op}")?;
        }
        let tail = self.stderr_tail(1);
        if tail.is_empty() { Ok(()) } else { write!(f, "; stderr: {tail}") }
    }
}

fn last_lines(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.trim_end().lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn death(cause: Cause) -> Death {
        let (usage, stdout) = (Usage::default(), String::new());
        Death { cause, last_op: Some(Op::Rope), usage, stdout, stderr: "a\nb\nc\n".to_owned() }
    }

    #[test]
    fn an_early_exit_0_reads_as_a_crash() {
        let text = death(Cause::Crash(Exit::Code(0))).to_string();
        assert_eq!(text, "exited 0 before the work was done; last op rope; stderr: c");
    }

    #[test]
    fn signals_and_limits_read_well() {
        assert_eq!(Cause::Crash(Exit::Signal(11)).to_string(), "SIGSEGV");
        let limit = Cause::MemoryLimit { rss: 3 << 20, limit: 2 << 20 };
        assert_eq!(limit.to_string(), "memory limit: 3 MiB in use, 2 MiB allowed");
    }

    #[test]
    fn tails_are_whole_lines() {
        let death = death(Cause::Stopped);
        assert_eq!(death.stderr_tail(2), "b\nc");
        assert_eq!(death.stderr_tail(9), "a\nb\nc");
        assert_eq!(death.stdout_tail(2), "");
    }
}
