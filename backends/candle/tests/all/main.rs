//! The candle backend against f64 evaluations written here, element by element.

// A test that meets an unexpected error has failed; its message is in the panic.
#![allow(clippy::unwrap_used)]

mod ops;
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
