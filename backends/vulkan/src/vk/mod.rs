//! Everything that calls Vulkan. The only module that knows vulkano, and the only one with `unsafe` code: commands are
//! recorded by vulkano's unchecked calls, and what makes them sound (ranges inside their buffers, barriers, buffers that
//! outlive the commands that use them) is kept by [`Stream`].

#![allow(unsafe_code)]

mod barriers;
mod buffer;
mod choose;
mod device;
mod error;
mod facts;
mod kernel;
mod messages;
mod sets;
mod stream;
mod timing;

pub(crate) use buffer::{Buffer, Kind, TEXEL};
pub(crate) use device::Device;
pub(crate) use error::Fault;
pub(crate) use facts::Facts;
pub(crate) use kernel::{Kernel, PUSH_WORDS};
pub(crate) use stream::{Part, Stream};
pub use timing::Times;
