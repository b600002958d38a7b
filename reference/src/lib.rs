//! cpu-ref: the backend that says what `Reference` means.
//!
//! Every operation is one f32 rounding unless f64 is named, in a fixed order, without contraction of products into
//! sums; `exp`, `sin`, `cos` and `pow` come from the pure-Rust `libm` in f64. So the same call gives the same bits on
//! every machine. Threads are used only across rows and heads that do not depend on each other, where the bits
//! cannot change.
//!
//! [`CpuRef`] is the backend, [`ops`] has the same arithmetic over plain slices.

mod add;
mod argmax;
mod attention;
mod backend;
mod check;
mod collectives;
mod dot;
mod fp8;
mod integer;
mod kv;
mod matmul;
mod norm;
pub mod ops;
mod parallel;
mod q4_k;
mod q8_0;
mod rope;
mod swiglu;
mod tensor;
mod upload;

pub use backend::CpuRef;
pub use kv::RefKv;
pub use tensor::RefTensor;
