//! A served backend, a worker that follows a script, and what tests say often.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use modelbench_contract::wire::{
    MAGIC, MemoryTransport, RemoteBackend, RemoteTensor, Request, Response, ServeError, ServeOptions, frame,
    memory_pair, serve,
};
use modelbench_contract::{Backend, BackendError, DType, ErrorKind, HostTensor};

use crate::backend::{HostMemory, Watch};

/// Long enough for a busy machine: nothing but a test of the deadline waits for it.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub type Remote = RemoteBackend<MemoryTransport>;

pub struct Served {
    pub remote: Remote,
    pub watch: Arc<Watch>,
    thread: JoinHandle<Result<(), ServeError>>,
}

/// Serves a fresh backend in a thread.
pub fn served() -> Served {
    served_with(ServeOptions::default)
}

pub fn served_with(options: impl FnOnce() -> ServeOptions + Send + 'static) -> Served {
    let (ours, mut theirs) = memory_pair();
    let watch = Arc::new(Watch::default());
    let mut backend = HostMemory::new(&watch);
    let thread = thread::spawn(move || serve(&mut backend, &mut theirs, options()));
    let remote = RemoteBackend::connect(ours, "a nonce", PATIENCE).unwrap();
    Served { remote, watch, thread }
}

impl Served {
    /// Says bye; the worker must end well and leave nothing behind.
    pub fn bye(mut self) {
        self.remote.bye().unwrap();
        self.ended().unwrap();
    }
    /// Waits for the worker to end by itself once the stream is closed, with nothing left behind.
    pub fn ended(self) -> Result<(), ServeError> {
        drop(self.remote);
        let ended = self.thread.join().unwrap();
        assert_eq!(self.watch.live(), 0, "tensors or stores were left behind");
        ended
    }
    pub fn upload(&mut self, shape: &[usize], values: &[f32]) -> RemoteTensor {
        self.remote.upload(&HostTensor::from_f32(shape, values).unwrap(), DType::F32).unwrap()
    }
    /// Sends a bad request that is not answered, and gives what the next fence says about it.
    pub fn refused(&mut self, request: &Request, body: &[u8]) -> BackendError {
        self.remote.submit(request, body).unwrap();
        let error = self.remote.sync().unwrap_err();
        self.remote.sync().unwrap();
        error
    }
}

/// A worker that answers hello and then does as it is told.
pub fn fake(script: impl FnOnce(&mut MemoryTransport) + Send + 'static) -> (Remote, JoinHandle<()>) {
    fake_within(PATIENCE, script)
}

pub fn fake_within(
    deadline: Duration,
    script: impl FnOnce(&mut MemoryTransport) + Send + 'static,
) -> (Remote, JoinHandle<()>) {
    let (ours, mut theirs) = memory_pair();
    let thread = thread::spawn(move || {
        let (hello, _) = frame::read::<Request>(&mut theirs, 0).unwrap();
        let Request::Hello { nonce, .. } = hello else { panic!("{hello:?}") };
        frame::write(&mut theirs, &hello_answer(MAGIC, 1, &nonce), &[]).unwrap();
        script(&mut theirs);
    });
    (RemoteBackend::connect(ours, "a nonce", deadline).unwrap(), thread)
}

pub fn hello_answer(magic: &str, version: u32, nonce: &str) -> Response {
    Response::Hello {
        magic: magic.to_owned(),
        version,
        nonce: nonce.to_owned(),
        identity: Box::new(HostMemory::new(&Arc::default()).identity()),
        sandbox: [("network".to_owned(), "none".to_owned())].into(),
    }
}

/// Two values on the other side of a fake worker, which reads the upload and nothing more.
pub fn two_values(remote: &mut Remote) -> RemoteTensor {
    remote.upload(&HostTensor::from_f32(&[2], &[1.0, 2.0]).unwrap(), DType::F32).unwrap()
}

#[track_caller]
pub fn assert_invalid(error: &BackendError, text: &str) {
    assert_eq!(error.kind, ErrorKind::InvalidArgument, "{error}");
    assert!(error.message.contains(text), "{error} does not say {text:?}");
}
