//! Workers: processes that hold the backends, so that no backend can take the kit down with it.
//!
//! The host's side is [`Worker`]. [`Worker::launch`] starts a process in a group of its own, with a socket as its
//! stdin, captured output, a cleared environment, an empty working folder and a watch on its memory. The runner talks
//! to [`Worker::remote`]; when that reports a fault, [`Worker::autopsy`] ends the process and says why it ended, and
//! the runner launches the next one.
//!
//! The worker's side is [`Channel`]: [`Channel::enter`] ties the process to its host and gives up rights,
//! [`Channel::serve`] makes the backend and serves it.

mod child;
pub mod counters;
mod cpu;
mod death;
mod environment;
mod error;
mod interference;
mod launch;
mod memory;
mod output;
mod proc;
mod process;
mod progress;
mod sandbox;
mod supervise;
mod watchdog;

pub use child::Channel;
pub use cpu::{CpuTime, cpu_time, cpu_time_available, own_cpu_time};
pub use death::{Cause, Death};
pub use environment::Environment;
pub use error::WorkerError;
pub use launch::WorkerSpec;
pub use memory::MemoryMeter;
pub use process::Exit;
pub use sandbox::{SandboxReport, sandbox_report};
pub use supervise::{Farewell, Remote, Worker};
pub use watchdog::Usage;
