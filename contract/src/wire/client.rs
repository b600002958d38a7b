//! The host's side: a backend in another process that looks like one in this process.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use super::Transport;
use super::effort::Effort;
use super::frame::{self, FrameError};
use super::message::{Handle, MAGIC, Request, Response, VERSIONS};
use crate::{BackendError, DeviceTensor, ErrorKind, Identity, KvConfig, Op, Result, TensorDesc};

/// A conversation that cannot go on. Every later call answers `Unavailable` at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// A request was not answered in time.
    Timeout {
        /// The request that was waited for.
        op: Option<Op>,
        /// The deadline.
        after: Duration,
    },
    /// The peer is gone.
    Closed {
        /// The request in flight.
        op: Option<Op>,
    },
    /// The peer sent something that is not the protocol.
    Protocol {
        /// The request in flight.
        op: Option<Op>,
        /// What was wrong.
        message: String,
    },
}

/// Why no conversation came about.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The stream failed, or the answer was not the protocol.
    #[error("no hello: {0}")]
    Frame(#[from] FrameError),
    /// The worker answered with an error: its backend is not available, or it speaks other versions.
    #[error("{0}")]
    Refused(BackendError),
    /// The answer was a message of another kind, or repeated another nonce.
    #[error("hello: {0}")]
    Unexpected(String),
}

/// A tensor on the other side: its handle, and the shape that the op gives it.
#[derive(Debug)]
pub struct RemoteTensor {
    /// Its handle.
    pub handle: Handle,
    pub(super) desc: TensorDesc,
}

impl DeviceTensor for RemoteTensor {
    fn desc(&self) -> &TensorDesc {
        &self.desc
    }
}

/// A KV store on the other side.
#[derive(Debug)]
pub struct RemoteKv {
    /// Its handle.
    pub handle: Handle,
    pub(super) config: KvConfig,
}

/// A backend behind a transport. Ops are sent and not waited for; errors come with the next fence.
#[derive(Debug)]
pub struct RemoteBackend<T> {
    transport: T,
    pub(super) identity: Identity,
    sandbox: BTreeMap<String, String>,
    deadline: Duration,
    next: Handle,
    fault: Option<Fault>,
    sent: BTreeMap<Op, u64>,
    last: Option<Op>,
    pub(super) graphs: BTreeMap<u64, TensorDesc>,
}

/// Largest answer without a known size: a host view or KV rows.
const OPEN_BODY: u64 = 16 << 30;

impl<T: Transport> RemoteBackend<T> {
    /// Says hello and waits for the answer.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(mut transport: T, nonce: &str, deadline: Duration) -> Result<Self, ConnectError> {
        transport.set_deadline(Instant::now().checked_add(deadline));
        let [min, max] = VERSIONS;
        let hello = Request::Hello { magic: MAGIC.to_owned(), min, max, nonce: nonce.to_owned() };
        frame::write(&mut transport, &hello, &[])?;
        let (response, _) = frame::read::<Response>(&mut transport, 0)?;
        let (identity, sandbox) = match response {
            Response::Hello { magic, version, nonce: echoed, identity, sandbox } => {
                if magic != MAGIC || !(min..=max).contains(&version) {
                    let text =
                        format!("magic {magic:?} version {version}, expected {MAGIC:?} {min} to {max}");
                    return Err(ConnectError::Unexpected(text));
                }
                if echoed != nonce {
                    return Err(ConnectError::Unexpected("the worker repeated another nonce".to_owned()));
                }
                (*identity, sandbox)
            }
            Response::Error { error } => return Err(ConnectError::Refused(error)),
            other => return Err(ConnectError::Unexpected(format!("the worker answered {other:?}"))),
        };
        Ok(RemoteBackend {
            transport,
            identity,
            sandbox,
            deadline,
            next: 1,
            fault: None,
            sent: BTreeMap::new(),
            last: None,
            graphs: BTreeMap::new(),
        })
    }

    /// Longest time that one request may take from now on.
    pub fn set_deadline(&mut self, deadline: Duration) {
        self.deadline = deadline;
    }

    /// Why the conversation cannot go on, if it cannot.
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// How often each op was sent.
    pub fn ops_sent(&self) -> &BTreeMap<Op, u64> {
        &self.sent
    }

    /// The op that was sent last.
    pub fn last_op(&self) -> Option<Op> {
        self.last
    }

    /// What holds the worker in, as its hello says.
    pub fn sandbox(&self) -> &BTreeMap<String, String> {
        &self.sandbox
    }

    /// A handle that no result has had yet.
    pub fn new_handle(&mut self) -> Handle {
        self.next += 1;
        self.next
    }

    /// Frees everything on the other side and waits, so that nothing of one case is there for the next.
    ///
    /// # Errors
    /// The first error of an earlier request, or of freeing; the handles are gone all the same.
    pub fn reset(&mut self) -> Result<()> {
        let pending = self.fence(&Request::Sync);
        self.submit(&Request::Reset, &[])?;
        let freed = self.fence(&Request::Sync);
        self.graphs.clear();
        pending.and(freed)
    }

    /// Asks who the backend is now.
    ///
    /// # Errors
    /// The first error of an earlier request, or a fault.
    pub fn refresh_identity(&mut self) -> Result<Identity> {
        match self.call(&Request::Identity, &[], 0)? {
            (Response::Identity { identity }, _) => Ok(*identity),
            (other, _) => Err(self.unexpected(None, &other)),
        }
    }

    /// Asks what the span of calls up to the last fence cost, as the worker measured it.
    ///
    /// # Errors
    /// The first error of an earlier request, or a fault.
    pub fn effort(&mut self) -> Result<Effort> {
        match self.call(&Request::Effort, &[], 0)? {
            (Response::Effort { effort }, _) => Ok(effort),
            (other, _) => Err(self.unexpected(None, &other)),
        }
    }

    /// Ends the conversation.
    ///
    /// # Errors
    /// The first error of an earlier request, or a fault.
    pub fn bye(&mut self) -> Result<()> {
        self.fence(&Request::Bye)
    }

    pub(super) fn fence(&mut self, request: &Request) -> Result<()> {
        match self.call(request, &[], 0)? {
            (Response::Done, _) => Ok(()),
            (other, _) => Err(self.unexpected(request.op(), &other)),
        }
    }

    /// Sends a request that is not answered, exactly as it is: nothing is checked, so that a test can send bad ones.
    ///
    /// # Errors
    /// `Unavailable` if the conversation cannot go on, `InvalidArgument` if the request is too long for a frame.
    pub fn submit(&mut self, request: &Request, body: &[u8]) -> Result<()> {
        self.alive()?;
        self.transport.set_deadline(Instant::now().checked_add(self.deadline));
        if let Some(op) = request.op() {
            *self.sent.entry(op).or_default() += 1;
            self.last = Some(op);
        }
        frame::write(&mut self.transport, request, body).map_err(|error| match error {
            FrameError::Io(_) => self.failed(request.op(), error),
            // Nothing was sent, so the conversation goes on.
            error => {
                let error = BackendError::invalid(format!("the request cannot be sent: {error}"));
                request.op().map_or(error.clone(), |op| error.in_op(op))
            }
        })
    }

    /// Sends a fence and waits for its answer, whose body has at most `limit` bytes.
    ///
    /// # Errors
    /// The worker's error, which may be that of an earlier request; `Unavailable` if the conversation cannot go on.
    pub fn call(&mut self, request: &Request, body: &[u8], limit: u64) -> Result<(Response, Vec<u8>)> {
        self.submit(request, body)?;
        match frame::read::<Response>(&mut self.transport, limit) {
            Ok((Response::Error { error }, _)) => Err(error),
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.failed(request.op(), error)),
        }
    }

    fn alive(&self) -> Result<()> {
        match &self.fault {
            None => Ok(()),
            Some(fault) => Err(unavailable(fault)),
        }
    }

    fn failed(&mut self, op: Option<Op>, error: FrameError) -> BackendError {
        let fault = match error {
            FrameError::Io(e) if e.kind() == io::ErrorKind::TimedOut => {
                Fault::Timeout { op, after: self.deadline }
            }
            FrameError::Io(_) => Fault::Closed { op },
            other => Fault::Protocol { op, message: other.to_string() },
        };
        self.fail(fault)
    }

    pub(super) fn fail(&mut self, fault: Fault) -> BackendError {
        let error = unavailable(&fault);
        self.fault.get_or_insert(fault);
        error
    }

    pub(super) fn unexpected(&mut self, op: Option<Op>, response: &Response) -> BackendError {
        self.fail(Fault::Protocol { op, message: format!("unexpected answer {response:?}") })
    }

    /// Reads f32 values of a shape that the host already knows.
    pub(super) fn values(&mut self, request: &Request, expected: &[usize]) -> Result<Vec<f32>> {
        let elements: usize = expected.iter().product();
        // Room for a shape that is wrong by a little, which is the backend's mistake and not the protocol's.
        let limit = (elements as u64).saturating_mul(8).saturating_add(1 << 20);
        let (shape, values) = self.shaped(request, limit)?;
        if shape != expected {
            let text = format!("wrong shape: the answer has {shape:?}, the op gives {expected:?}");
            let error = BackendError::internal(text);
            return Err(request.op().map_or(error.clone(), |op| error.in_op(op)));
        }
        Ok(values)
    }

    /// Reads f32 values whose first dimension is not known.
    pub(super) fn open_values(&mut self, request: &Request) -> Result<(Vec<usize>, Vec<f32>)> {
        self.shaped(request, OPEN_BODY)
    }

    fn shaped(&mut self, request: &Request, limit: u64) -> Result<(Vec<usize>, Vec<f32>)> {
        let (shape, body) = match self.call(request, &[], limit)? {
            (Response::Values { shape }, body) => (shape, body),
            (other, _) => return Err(self.unexpected(request.op(), &other)),
        };
        let bytes = shape.iter().try_fold(4usize, |n, &d| n.checked_mul(d));
        if bytes != Some(body.len()) {
            let message = format!("short read: shape {shape:?} came with {} bytes", body.len());
            return Err(self.fail(Fault::Protocol { op: request.op(), message }));
        }
        Ok((shape, floats(&body)))
    }

    pub(super) fn index(&mut self, request: &Request) -> Result<usize> {
        match self.call(request, &[], 0)? {
            (Response::Index { value }, _) => usize::try_from(value).map_err(|_| {
                BackendError::internal(format!("wrong shape: index {value} does not fit this machine"))
            }),
            (other, _) => Err(self.unexpected(request.op(), &other)),
        }
    }

    pub(super) fn open_call(&mut self, request: &Request) -> Result<(Response, Vec<u8>)> {
        self.call(request, &[], OPEN_BODY)
    }
}

pub(super) fn floats(body: &[u8]) -> Vec<f32> {
    body.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn unavailable(fault: &Fault) -> BackendError {
    let (op, text) = match fault {
        Fault::Timeout { op, after } => (op, format!("the worker did not answer within {after:?}")),
        Fault::Closed { op } => (op, "the worker is gone".to_owned()),
        Fault::Protocol { op, message } => (op, format!("the worker broke the protocol: {message}")),
    };
    BackendError { kind: ErrorKind::Unavailable, op: *op, message: text }
}
