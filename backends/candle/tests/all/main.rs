//! The candle backend against f64 evaluations written here, element by element.

// A test that meets an unexpected error has failed; its message is in the panic.
#![allow(clippy::unwrap_used)]

mod attention;
mod kit;
mod kv;
mod ops;
mod refusals;
mod weights;
