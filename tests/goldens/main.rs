//! cpu-ref, the kit's oracle and a second, slow float64 evaluator against goldens from independent producers.
//!
//! All three answer the same cases of `golden/ops_f64.safetensors`; conversions must give the same bits. Any
//! disagreement is a defect of the kit, never of a backend under test, and the message says so.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it is")]

mod case;
mod conversions;
mod cpu_ref;
mod file;
mod limits;
mod manifest;
mod ops;
mod oracle;
mod quantise;
mod slow;
mod whole;
