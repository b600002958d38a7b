//! A running worker as the runner sees it: a remote backend, and a process whose end is always explained.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::time::Duration;

use modelbench_contract::wire::{ConnectError, Fault, FrameError, RemoteBackend, SocketTransport};
use modelbench_contract::{Backend, Identity, Op};

use super::counters::Meter;
use super::cpu::{CpuTime, cpu_time};
use super::death::{Cause, Death};
use super::error::WorkerError;
use super::launch::{Launched, WorkerSpec, launch};
use super::memory::MemoryMeter;
use super::process::Exit;
use super::progress::last_noted;
use super::sandbox::SandboxReport;
use super::watchdog::Usage;

/// Time that a worker gets to end by itself once its channel is closed or it was told goodbye.
const EXIT_PATIENCE: Duration = Duration::from_secs(2);
/// Time that a worker which broke the protocol gets to turn out to be dying.
const DYING_PATIENCE: Duration = Duration::from_millis(100);
/// Time to wait for the rest of the output of a process that has ended.
const OUTPUT_PATIENCE: Duration = Duration::from_millis(500);

/// The backend in a worker.
pub type Remote = RemoteBackend<SocketTransport>;

/// A worker that said hello. Dropping it kills its whole process group.
pub struct Worker {
    remote: Remote,
    launched: Launched,
    spec: WorkerSpec,
    identity: Identity,
    sandbox: SandboxReport,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("spec", &self.spec)
            .field("launched", &self.launched)
            .finish_non_exhaustive()
    }
}

/// How a worker ended that was told to end.
#[derive(Debug, Clone, PartialEq)]
pub struct Farewell {
    /// How it ended; `None` if it cannot be killed and was abandoned. Anything but exit code 0 means that the backend
    /// does not end cleanly.
    pub exit: Option<Exit>,
    /// What its processes used in all.
    pub usage: Usage,
    /// What is kept of its stdout.
    pub stdout: String,
    /// What is kept of its stderr.
    pub stderr: String,
}

impl Worker {
    /// Starts a worker and waits for its hello, which must echo a fresh nonce.
    ///
    /// The worker dies with the *thread* that calls this, so call it from one that lives as long as the run.
    ///
    /// # Errors
    /// [`WorkerError`]: the process cannot be started, ended before the hello, speaks another version, or its backend
    /// cannot be loaded. Nothing of the process is left then.
    pub fn launch(spec: &WorkerSpec) -> Result<Self, WorkerError> {
        let failed = |what| move |source| WorkerError::Start { program: spec.program.clone(), what, source };
        let nonce = nonce().map_err(failed("no random numbers for the nonce"))?;
        let mut launched = launch(spec)?;
        let channel = launched.channel.take().ok_or_else(|| std::io::Error::other("it is taken"));
        let channel = channel.map_err(failed("its channel is missing"))?;
        let channel = SocketTransport::new(channel);
        let mut remote = match RemoteBackend::connect(channel, &nonce, spec.start_deadline) {
            Ok(remote) => remote,
            Err(error) => return Err(explain(error, &mut launched, spec)),
        };
        remote.set_deadline(spec.request_deadline);
        let identity = remote.identity();
        let sandbox = sandbox(remote.sandbox(), spec, launched.process.usage());
        Ok(Worker { remote, launched, spec: spec.clone(), identity, sandbox })
    }

    /// The backend in the worker. After a call failed, look at its `fault`: if there is one the worker is of no use any
    /// more, and [`Worker::autopsy`] tells why.
    pub fn remote(&mut self) -> &mut Remote {
        &mut self.remote
    }

    /// What the backend said about itself in its hello.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Process id of the worker.
    pub fn pid(&self) -> u32 {
        self.launched.process.id()
    }

    /// What the worker's processes have used so far.
    pub fn usage(&self) -> Usage {
        self.launched.process.usage()
    }

    /// A meter for the memory of the worker's processes, of use as long as the worker lives.
    pub fn memory(&self) -> MemoryMeter {
        MemoryMeter::new(i32::try_from(self.pid()).unwrap_or(i32::MAX))
    }

    /// CPU time of the worker's processes so far. `None` where the operating system has no `/proc`.
    pub fn cpu_time(&self) -> Option<CpuTime> {
        cpu_time(self.pid())
    }

    /// A meter for what devices count for the worker's processes, of use as long as the worker lives.
    pub fn counters(&self) -> Meter {
        Meter::new(self.pid())
    }

    /// What holds the worker in, measure by measure: its own report and what the launcher did.
    pub fn sandbox(&self) -> &SandboxReport {
        &self.sandbox
    }

    /// What the worker got of this process's environment, what deserves a remark, and what interferes, for the record.
    pub fn environment_facts(&self) -> BTreeMap<String, String> {
        let environment = &self.spec.environment;
        let mut facts = BTreeMap::from([("worker variables".to_owned(), environment.names().join(" "))]);
        for (name, value) in environment.remarks().iter().chain(environment.interference()) {
            facts.insert(name.clone(), value.clone());
        }
        facts
    }

    /// What can put foreign code between the backend and its device, as `Environment::interference` tells it. A
    /// certified run must have none.
    pub fn interference(&self) -> &BTreeMap<String, String> {
        self.spec.environment.interference()
    }

    /// Ends a worker that faulted and tells why it ended. Bounded: about three seconds at the worst.
    pub fn autopsy(mut self) -> Death {
        let fault = self.remote.fault().cloned();
        let last_sent = self.remote.last_op();
        self.launched.autopsy(fault, last_sent, self.spec.memory_limit_bytes)
    }

    /// Says goodbye and waits for the end, with force where that takes too long. Bounded as [`Worker::autopsy`].
    pub fn shutdown(mut self) -> Farewell {
        // If the goodbye cannot be sent the worker is gone already, which the wait finds out.
        let _ = self.remote.bye();
        let process = &mut self.launched.process;
        let exit = process.wait_exit(EXIT_PATIENCE).or_else(|| process.terminate());
        Farewell {
            exit,
            usage: process.usage(),
            stdout: self.launched.stdout.finish(OUTPUT_PATIENCE),
            stderr: self.launched.stderr.finish(OUTPUT_PATIENCE),
        }
    }
}

impl Launched {
    fn autopsy(&mut self, fault: Option<Fault>, last_sent: Option<Op>, limit: u64) -> Death {
        let fault_op = fault.as_ref().and_then(op_of);
        let cause = self.cause(fault, limit);
        let usage = self.process.usage();
        Death {
            cause,
            last_op: last_noted(&self.scratch.progress()).or(fault_op).or(last_sent),
            usage,
            stdout: self.stdout.finish(OUTPUT_PATIENCE),
            stderr: self.stderr.finish(OUTPUT_PATIENCE),
        }
    }

    fn cause(&mut self, fault: Option<Fault>, limit: u64) -> Cause {
        // Only an end without our help says something about the worker itself.
        let patience = match &fault {
            Some(Fault::Closed { .. }) => EXIT_PATIENCE,
            Some(Fault::Protocol { .. }) => DYING_PATIENCE,
            Some(Fault::Timeout { .. }) | None => Duration::ZERO,
        };
        let by_itself = self.process.wait_exit(patience);
        if by_itself.is_none() && self.process.terminate().is_none() {
            return Cause::Unkillable { pid: self.process.id() };
        }
        if let Some(rss) = self.process.over_limit() {
            return Cause::MemoryLimit { rss, limit };
        }
        match (fault, by_itself) {
            (Some(Fault::Protocol { message, .. }), None | Some(Exit::Code(_))) => Cause::Garbage { message },
            (_, Some(exit)) => Cause::Crash(exit),
            (Some(Fault::Timeout { op, after }), None) => Cause::Timeout { op, after },
            (Some(Fault::Closed { .. }), None) => {
                Cause::Garbage { message: "it closed its channel and went on running".to_owned() }
            }
            (None, None) => Cause::Stopped,
        }
    }
}

fn sandbox(own: &SandboxReport, spec: &WorkerSpec, usage: Usage) -> SandboxReport {
    let mut report = own.clone();
    let memory = match usage.peak_rss_bytes {
        Some(_) => format!("{} MiB resident, looked at every 20 ms", spec.memory_limit_bytes >> 20),
        None => "not available: no /proc".to_owned(),
    };
    report.insert("memory".to_owned(), memory);
    report.insert("environment".to_owned(), "cleared; an allow-list is passed on".to_owned());
    report.insert("working folder".to_owned(), "empty, removed afterwards".to_owned());
    report
}

fn nonce() -> std::io::Result<String> {
    let mut bytes = [0u8; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn op_of(fault: &Fault) -> Option<Op> {
    match fault {
        Fault::Timeout { op, .. } | Fault::Closed { op } | Fault::Protocol { op, .. } => *op,
    }
}

fn explain(error: ConnectError, launched: &mut Launched, spec: &WorkerSpec) -> WorkerError {
    let program = spec.program.clone();
    let frame = match error {
        ConnectError::Refused(error) => return WorkerError::Unavailable(error),
        ConnectError::Unexpected(reason) => return WorkerError::HelloRefused { program, reason },
        ConnectError::Frame(frame) => frame,
    };
    let fault = match frame {
        FrameError::Io(error) if error.kind() == std::io::ErrorKind::TimedOut => {
            Fault::Timeout { op: None, after: spec.start_deadline }
        }
        FrameError::Io(_) => Fault::Closed { op: None },
        other => Fault::Protocol { op: None, message: other.to_string() },
    };
    let death = launched.autopsy(Some(fault), None, spec.memory_limit_bytes);
    WorkerError::Died { program, death: Box::new(death) }
}
