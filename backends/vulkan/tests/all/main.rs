//! The Vulkan backend against f64 evaluations written here, element by element. A Vulkan device must be
//! there; the software device of mesa-vulkan-drivers is one.

// A test that meets an unexpected error has failed; its message is in the panic.
#![allow(clippy::unwrap_used)]

mod attention;
mod faults;
mod hostile;
mod kit;
mod kv;
mod ops;
mod random;
mod refusals;
mod weights;
