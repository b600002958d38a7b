//! The Vulkan backend: every op of the contract as compute shaders, on any device with Vulkan 1.2.
//!
//! Tensors and KV stores live in device memory. Calls are recorded into one command buffer, with barriers where two of
//! them touch the same bytes, and run when a fence asks for a result. Weights stay in the format they came in (`f32`,
//! `f16`, `bf16`, `q8_0`, `q4_k`) and are widened inside the kernels; `fp8` is resident as `f16`, which holds its values
//! exactly, and `i8` and `i4` are widened at upload. Products and sums are f32 throughout. Nothing here knows cpu-ref.
//!
//! The Vulkan loader is opened at run time, so that a program with this backend starts on machines without Vulkan.

mod attention;
mod backend;
mod float;
mod formats;
mod gpu;
mod hazard;
#[cfg(test)]
mod injected;
mod kv;
mod math;
mod narrow;
mod options;
mod pool;
mod probe;
mod rope;
mod tensor;
mod vk;

pub use backend::Vulkan;
pub use kv::VulkanKv;
pub use options::{DEVICE_VARIABLE, Options, OptionsError, VALIDATION_VARIABLE, WITHOUT_VARIABLE};
pub use tensor::VulkanTensor;
pub use vk::Times;
