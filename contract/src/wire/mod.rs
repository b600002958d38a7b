//! The wire protocol between host and worker.
//!
//! # Frames
//!
//! Both directions carry frames: `u32` length of the header, `u64` length of the body (both little-endian), the header
//! (one JSON object in UTF-8, at most 64 KiB), the body (raw little-endian bytes of at most one tensor).
//!
//! # Conversation
//!
//! 1. The host sends `{"op":"hello","magic":"MODELBENCH","min":1,"max":1,"nonce":"…"}`.
//! 2. The worker answers `{"is":"hello","magic":"MODELBENCH","version":1,"nonce":"…","identity":{…},"sandbox":{…}}`: the
//!    newest version that both speak, the same nonce, who the backend is ([`Identity`](crate::Identity)), and what holds the
//!    worker in. A worker that cannot serve answers `{"is":"error","error":{"kind":"unavailable","op":null,"message":"…"}}`.
//! 3. The host sends requests ([`Request`]), one after the other. **Handles** of results are numbers that the host
//!    chooses, so that it need not wait for them.
//! 4. Only *fences* are answered ([`Request::is_fence`]): `identity effort sync bye host read argmax kv_len kv_keys
//!    kv_values kv_positions kv_evict device_capacity host_capacity`. Every other request gets no answer.
//! 5. If a request without an answer fails, its results have no value, later requests that need them fail silently, and
//!    the first error is the answer to the next fence, which is not carried out then. `op` in the error names the request
//!    that caused it. After that the slate is clean.
//! 6. A handle that names nothing, or names something already where a result should go, is `invalid-argument`.
//! 7. `reset` frees everything; `bye` frees everything, is answered, and ends the conversation. A closed stream ends it too.
//!
//! # Values
//!
//! `upload` has the tensor's bytes as body, in the layout of its dtype. `read`, `kv_keys`, `kv_values` are answered by
//! `{"is":"values","shape":[…]}` with an f32 body of exactly that shape; `host` by `{"is":"view","some":true}` with one, or
//! `false` without; `argmax`, `kv_len`, `kv_evict` by `{"is":"index","value":n}`; `kv_positions` by `{"is":"positions"}` with
//! `u64` values. Scalars are JSON numbers that hold the f32 exactly.
//!
//! # Effort
//!
//! `effort` is answered by `{"is":"effort","effort":{"calls_ns":n,"fence_ns":n,"dispatches":n}}` ([`Effort`]): how long the
//! last fence took inside the backend, how long the calls between it and the fence before took, and how many work items
//! the device was given since the start (`null` if nobody counts). The serve loop measures the times; the host asks only
//! in the proofs of `Async`, `FusedAttn` and `FusedFFN`.
//!
//! # Deadlines
//!
//! The host gives every request a deadline, which covers sending it and, for a fence, its answer. A worker that misses it
//! is killed with its whole process group.

pub mod check;
mod client;
mod client_backend;
mod client_extensions;
mod dispatch;
mod effort;
pub mod frame;
mod guard;
mod message;
mod serve;
mod table;
mod transport;

pub use client::{ConnectError, Fault, RemoteBackend, RemoteKv, RemoteTensor};
pub use effort::Effort;
pub use frame::FrameError;
pub use message::{Handle, MAGIC, Request, Response, VERSIONS};
pub use serve::{ServeError, ServeOptions, refuse, serve};
pub use transport::{MemoryTransport, SocketTransport, Transport, memory_pair};
