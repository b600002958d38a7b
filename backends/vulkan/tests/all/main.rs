//! The Vulkan backend against f64 evaluations written here, element by element. A Vulkan device must be
//! there; the software device of mesa-vulkan-drivers is one.

// A test that meets an unexpected error has failed; its message is in the panic.
#![allow(clippy::unwrap_used)]

mod faults;
mod hostile;
mod ops;
mod random;
mod subject;

// What every backend must do is tested by the same code.
#[path = "../../../tests/attention.rs"]
mod attention;
#[path = "../../../tests/kit.rs"]
mod kit;
#[path = "../../../tests/kv.rs"]
mod kv;
#[path = "../../../tests/refusals.rs"]
mod refusals;
#[path = "../../../tests/rows.rs"]
mod rows;
#[path = "../../../tests/weights.rs"]
mod weights;
