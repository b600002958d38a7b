//! The candle backend: every op of the contract through candle-core's own tensors and kernels.
//!
//! Weights stay in the type they were uploaded in as long as candle has that type; products are always formed in
//! f32, so the declared profile is plain f32 with float activations. Nothing here knows cpu-ref.
//!
//! With the feature `cuda` the same code runs on the first CUDA device.

mod attention;
mod backend;
mod device;
mod fault;
mod kv;
mod math;
mod quant;
mod rope;
mod shape;
mod tensor;

pub use backend::Candle;
pub use kv::CandleKv;
pub use tensor::CandleTensor;
