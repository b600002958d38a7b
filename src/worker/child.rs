//! The worker's own side: from the start of the process to the serve loop.

use std::any::Any;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;

use modelbench_contract::wire::{ServeOptions, SocketTransport, Transport, refuse, serve};
use modelbench_contract::{Backend, BackendError};

use super::error::WorkerError;
use super::launch::PROGRESS_VARIABLE;
use super::progress::Progress;
use super::sandbox::{SandboxReport, confine};

/// The channel to the host, in a process that is already confined.
#[derive(Debug)]
pub struct Channel {
    stream: UnixStream,
    sandbox: SandboxReport,
    progress: Option<Progress>,
}

impl Channel {
    /// Turns this process into a worker: takes the channel from stdin, ties its life to the host's, and gives up every
    /// right it does not need. Call it first thing, before any thread is started.
    ///
    /// # Errors
    /// [`WorkerError::NotAWorker`] if stdin is no socket.
    pub fn enter() -> Result<Self, WorkerError> {
        let stream = take_stdin()?;
        let mut ties = SandboxReport::new();
        ties.insert("life".to_owned(), die_with_host());
        ties.insert("out of memory".to_owned(), be_first_to_go());
        let progress =
            std::env::var_os(PROGRESS_VARIABLE).and_then(|path| Progress::open(&PathBuf::from(path)).ok());
        let scratch = std::env::current_dir()
            .map_err(|source| WorkerError::NotAWorker { what: "there is no working folder", source })?;
        let mut sandbox = confine(&scratch);
        sandbox.append(&mut ties);
        Ok(Channel { stream, sandbox, progress })
    }

    /// Makes the backend and serves it until the host says goodbye or closes the channel. If it cannot be made, the
    /// hello is answered with the reason. The exit code is 0 if the host had the last word, 1 otherwise.
    pub fn serve<B: Backend>(self, make: impl FnOnce() -> Result<B, BackendError>) -> ExitCode {
        self.serve_over(make, |_, channel| channel)
    }

    /// As [`Channel::serve`], over a transport around the channel. For self-test backends that spoil the transport.
    pub fn serve_over<B: Backend, T: Transport>(
        self,
        make: impl FnOnce() -> Result<B, BackendError>,
        wrap: impl FnOnce(&B, SocketTransport) -> T,
    ) -> ExitCode {
        let Channel { stream, sandbox, progress } = self;
        let mut channel = SocketTransport::new(stream);
        // Nothing that a panicking constructor leaves behind is used afterwards.
        let made = catch_unwind(AssertUnwindSafe(make)).unwrap_or_else(|panic| Err(panicked(panic.as_ref())));
        let served = match made {
            Ok(mut backend) => {
                let mut transport = wrap(&backend, channel);
                let options = ServeOptions {
                    sandbox,
                    progress: progress.map(|progress| Box::new(move |op| progress.note(op)) as _),
                    ..ServeOptions::default()
                };
                serve(&mut backend, &mut transport, options)
            }
            Err(error) => refuse(&mut channel, &error),
        };
        match served {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("worker: {error}");
                ExitCode::FAILURE
            }
        }
    }
}

/// The socket moves from stdin to a number of its own, so that nothing a backend starts or reads can get at it.
fn take_stdin() -> Result<UnixStream, WorkerError> {
    let failed = |what| move |source| WorkerError::NotAWorker { what, source };
    let channel =
        std::io::stdin().as_fd().try_clone_to_owned().map_err(failed("stdin cannot be duplicated"))?;
    let stream = UnixStream::from(channel);
    stream.peer_addr().map_err(failed("stdin is not the host's socket"))?;
    let null = File::open("/dev/null").map_err(failed("/dev/null cannot be opened"))?;
    rustix::stdio::dup2_stdin(&null).map_err(|errno| WorkerError::NotAWorker {
        what: "stdin cannot be replaced",
        source: errno.into(),
    })?;
    Ok(stream)
}

#[cfg(target_os = "linux")]
fn die_with_host() -> String {
    match rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)) {
        Ok(()) => "killed when the host ends".to_owned(),
        Err(error) => format!("ends when the channel closes; no kill at the host's end: {error}"),
    }
}

#[cfg(not(target_os = "linux"))]
fn die_with_host() -> String {
    "ends when the channel closes; no kill at the host's end: Linux only".to_owned()
}

/// If the machine runs out of memory, the worker shall go, not the host and nobody else.
fn be_first_to_go() -> String {
    match std::fs::write("/proc/self/oom_score_adj", "1000") {
        Ok(()) => "the worker goes first".to_owned(),
        Err(error) => format!("not available: {error}"),
    }
}

fn panicked(panic: &(dyn Any + Send)) -> BackendError {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    BackendError::internal(format!("panicked while it was made: {text}"))
}
