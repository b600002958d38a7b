//! The worker's side: requests in, calls of a backend, answers at fences.

use std::collections::BTreeMap;
use std::time::Instant;

use super::effort::Stopwatch;
use super::frame::{self, FrameError};
use super::guard::guarded;
use super::message::{MAGIC, Request, Response, VERSIONS};
use super::table::{Fail, Table};
use super::{Transport, dispatch};
use crate::{Backend, BackendError, Op};

/// How a worker serves.
pub struct ServeOptions {
    /// Measures that hold the worker in, as the hello reports them.
    pub sandbox: BTreeMap<String, String>,
    /// Largest tensor that is taken, in bytes.
    pub body_limit: u64,
    /// Told of every op before it runs, so that a dead worker's last op is known.
    pub progress: Option<Box<dyn FnMut(Op)>>,
}

impl Default for ServeOptions {
    fn default() -> Self {
        ServeOptions { sandbox: BTreeMap::new(), body_limit: 16 << 30, progress: None }
    }
}

/// Why serving ended before the host said bye.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The host sent something that is not the protocol, or the stream failed.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The first request was no hello that this build can answer.
    #[error("hello: {0}")]
    Hello(String),
}

/// Serves a backend until the host says bye or closes the stream.
///
/// # Errors
/// [`ServeError`]. The backend's own errors are answers, and so is a panic of one of its methods.
pub fn serve<B: Backend>(
    backend: &mut B,
    transport: &mut impl Transport,
    mut options: ServeOptions,
) -> Result<(), ServeError> {
    let nonce_and_version = greeted(transport, &options)?;
    let Some((nonce, version)) = nonce_and_version else { return Ok(()) };
    let identity = match guarded(|| Ok(Box::new(backend.identity()))) {
        Ok(identity) => identity,
        Err(Fail::Error(error) | Fail::Consequence(error)) => return answer_error(transport, error),
    };
    let sandbox = std::mem::take(&mut options.sandbox);
    let hello = Response::Hello { magic: MAGIC.to_owned(), version, nonce, identity, sandbox };
    frame::write(transport, &hello, &[])?;
    let mut table = Table::new();
    let ended = converse(backend, transport, &mut table, &mut options);
    // However the conversation ended, nothing of it may stay behind in the backend; nobody is there to be told.
    let _ = dispatch::clear(backend, &mut table);
    ended
}

/// Answers requests until the host says bye or closes the stream.
fn converse<B: Backend>(
    backend: &mut B,
    transport: &mut impl Transport,
    table: &mut Table<B::Tensor, B::Kv>,
    options: &mut ServeOptions,
) -> Result<(), ServeError> {
    let mut sticky: Option<BackendError> = None;
    let mut stopwatch = Stopwatch::default();
    loop {
        let (request, body) = match frame::read::<Request>(transport, options.body_limit) {
            Ok(frame) => frame,
            Err(FrameError::Io(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let op = request.op();
        if let (Some(op), Some(progress)) = (op, options.progress.as_mut()) {
            progress(op);
        }
        if request.is_fence()
            && let Some(error) = sticky.take()
        {
            answer_error(transport, error)?;
            if request == Request::Bye {
                return Ok(());
            }
            continue;
        }
        let begun = Instant::now();
        let done = guarded(|| match &request {
            Request::Effort => {
                let effort = stopwatch.effort(backend.dispatches()?);
                Ok(Some((Response::Effort { effort }, Vec::new())))
            }
            request => dispatch::execute(backend, table, request, body),
        });
        stopwatch.count(&request, begun.elapsed());
        match done {
            Ok(answer) if request.is_fence() => {
                let (response, body) = answer.unwrap_or((Response::Done, Vec::new()));
                frame::write(transport, &response, &body)?;
                if request == Request::Bye {
                    return Ok(());
                }
            }
            Ok(_) => {}
            Err(fail) => {
                table.poison(request.outputs());
                let error = match fail {
                    Fail::Error(error) => op.map_or(error.clone(), |op| error.in_op(op)),
                    // The first error says it all; what follows from it is no news, except to a fence that asks.
                    Fail::Consequence(_) if !request.is_fence() => continue,
                    Fail::Consequence(error) => error,
                };
                if request.is_fence() {
                    answer_error(transport, error)?;
                    if request == Request::Bye {
                        return Ok(());
                    }
                } else {
                    sticky.get_or_insert(error);
                }
            }
        }
    }
}

/// Answers every request with one error: for a worker whose backend could not be made.
///
/// # Errors
/// As [`serve`].
pub fn refuse(transport: &mut impl Transport, error: &BackendError) -> Result<(), ServeError> {
    let options = ServeOptions::default();
    if greeted(transport, &options)?.is_some() {
        answer_error(transport, error.clone())?;
    }
    Ok(())
}

/// Sends an error, its message cut to what a header holds: a backend that talks too much must not end the worker.
fn answer_error(transport: &mut impl Transport, mut error: BackendError) -> Result<(), ServeError> {
    const LONGEST: usize = 8 << 10;
    if error.message.len() > LONGEST {
        error.message.truncate(error.message.floor_char_boundary(LONGEST));
        error.message.push_str(" …");
    }
    Ok(frame::write(transport, &Response::Error { error }, &[])?)
}

/// Reads the hello: the nonce and the newest common version, `None` if the host closed the stream.
fn greeted(
    transport: &mut impl Transport,
    options: &ServeOptions,
) -> Result<Option<(String, u32)>, ServeError> {
    let request = match frame::read::<Request>(transport, options.body_limit) {
        Ok((request, _)) => request,
        Err(FrameError::Io(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let Request::Hello { magic, min, max, nonce } = request else {
        return Err(ServeError::Hello("the first request was not hello".to_owned()));
    };
    let [oldest, newest] = VERSIONS;
    let version = newest.min(max);
    let refusal = if magic != MAGIC {
        Some(format!("magic is {magic:?}, expected {MAGIC:?}"))
    } else if version < oldest || version < min {
        Some(format!("the host speaks versions {min} to {max}, this worker {oldest} to {newest}"))
    } else {
        None
    };
    if let Some(text) = refusal {
        frame::write(transport, &Response::Error { error: BackendError::invalid(text.clone()) }, &[])?;
        return Err(ServeError::Hello(text));
    }
    Ok(Some((nonce, version)))
}
