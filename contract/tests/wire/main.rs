//! The wire protocol from end to end: a small backend behind `serve`, called through `RemoteBackend`, and workers that
//! break the rules.

#![allow(clippy::unwrap_used)]

mod backend;
mod backend_kv;
mod backend_ranks;
mod calls;
mod errors;
mod faults;
mod frames;
mod handles;
mod harness;
mod hello;
mod messages;
mod panics;
mod refusals;
mod scalars;
mod sockets;
