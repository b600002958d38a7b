//! Starts the process of a worker.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
#[cfg(target_os = "linux")]
use std::sync::Once;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tempfile::TempDir;

use super::environment::Environment;
use super::error::WorkerError;
use super::output::Capture;
use super::process::Process;

/// Tells the worker where to note the op it is busy with.
pub(super) const PROGRESS_VARIABLE: &str = "MODELBENCH_WORKER_PROGRESS";

/// What to run, and within which limits.
#[derive(Debug, Clone)]
pub struct WorkerSpec {
    /// The program: this binary for bundled backends, a vendor's own worker otherwise.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Its environment, without the few variables that the launcher adds.
    pub environment: Environment,
    /// Resident bytes that its process group may use together.
    pub memory_limit_bytes: u64,
    /// Time from the start to the hello.
    pub start_deadline: Duration,
    /// Time for one request.
    pub request_deadline: Duration,
}

impl WorkerSpec {
    /// This binary with no arguments yet, the host's environment filtered, a minute for the start and for each
    /// request, and 8 GiB of memory.
    pub fn this_binary() -> Self {
        WorkerSpec {
            program: own_program(),
            args: Vec::new(),
            environment: Environment::from_host(),
            memory_limit_bytes: 8 << 30,
            start_deadline: Duration::from_secs(60),
            request_deadline: Duration::from_secs(60),
        }
    }
}

/// On Linux the link in `/proc`, which names the running file even after it was replaced on disk: host and worker are
/// then always the same build.
fn own_program() -> PathBuf {
    let link = PathBuf::from("/proc/self/exe");
    if link.exists() { link } else { std::env::current_exe().unwrap_or_else(|_| PathBuf::from("modelbench")) }
}

/// A started process with everything the host holds of it.
#[derive(Debug)]
pub(super) struct Launched {
    pub(super) process: Process,
    /// The host's end, until the remote backend takes it.
    pub(super) channel: Option<UnixStream>,
    pub(super) stdout: Capture,
    pub(super) stderr: Capture,
    pub(super) scratch: Scratch,
}

/// The worker's folders, removed with the worker.
#[derive(Debug)]
pub(super) struct Scratch {
    root: TempDir,
}

impl Scratch {
    fn new() -> io::Result<Self> {
        let root = tempfile::Builder::new().prefix("modelbench-worker-").tempdir()?;
        fs::create_dir(root.path().join("work"))?;
        File::create(root.path().join("progress"))?;
        Ok(Scratch { root })
    }

    fn work(&self) -> PathBuf {
        self.root.path().join("work")
    }

    /// Where the worker notes the op it is busy with; outside its working folder, which starts empty.
    pub(super) fn progress(&self) -> PathBuf {
        self.root.path().join("progress")
    }
}

/// Starts the process. It gets one end of a socket pair as its stdin, pipes as its stdout and stderr, a group of its
/// own, a cleared environment, and an empty working folder.
///
/// The worker dies with the *thread* that calls this, not only with the process: that is how Linux defines the signal
/// at the parent's death.
pub(super) fn launch(spec: &WorkerSpec) -> Result<Launched, WorkerError> {
    let failed = |what| move |source| WorkerError::Start { program: spec.program.clone(), what, source };
    let scratch = Scratch::new().map_err(failed("no scratch folder"))?;
    let (channel, theirs) = UnixStream::pair().map_err(failed("no socket pair"))?;
    let mut command = Command::new(&spec.program);
    command
        .args(&spec.args)
        .env_clear()
        .envs(spec.environment.variables())
        .env("TMPDIR", scratch.work())
        .env(PROGRESS_VARIABLE, scratch.progress())
        .current_dir(scratch.work())
        .process_group(0)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    inherit_orphans();
    let mut child = command.spawn().map_err(failed("cannot be started"))?;
    remember(child.id());
    // The command still holds the worker's end of the socket; the host must not, or it would never see it close.
    drop(command);
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let process = Process::adopt(child, spec.memory_limit_bytes).map_err(failed("cannot be watched"))?;
    let missing = || io::Error::other("the pipe is missing");
    let stdout = stdout.ok_or_else(missing).and_then(|pipe| Capture::start("stdout", pipe));
    let stderr = stderr.ok_or_else(missing).and_then(|pipe| Capture::start("stderr", pipe));
    Ok(Launched {
        process,
        channel: Some(channel),
        stdout: stdout.map_err(failed("its stdout cannot be read"))?,
        stderr: stderr.map_err(failed("its stderr cannot be read"))?,
        scratch,
    })
}

/// Processes that this program started as workers.
static LAUNCHED: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Process ids of all workers that this program ever started.
pub(super) fn launched() -> BTreeSet<i32> {
    LAUNCHED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn remember(pid: u32) {
    if let Ok(pid) = i32::try_from(pid) {
        LAUNCHED.lock().unwrap_or_else(PoisonError::into_inner).insert(pid);
    }
}

/// Lets this program inherit processes whose parents end, so that work which a worker's child hands to a process of its
/// own can be counted. Where the kernel refuses, such a process is not seen, as without this.
fn inherit_orphans() {
    #[cfg(target_os = "linux")]
    {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        });
    }
}
