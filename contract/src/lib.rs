//! The contract between modelbench and an ML compute backend.
//!
//! Design rules:
//!
//! - **Whole ops.** A backend gets complete operations on complete tensors; how it tiles, fuses or schedules them is
//!   its own business. Shapes are in the tensors, attention attributes are parameters.
//! - **Nothing panics across the seam.** Every call returns a [`Result`]; errors have an [`ErrorKind`].
//! - **`Unimplemented` is a normal answer.** It is cheap, and the kit reports it as a gap by name.
//! - **Caps are promises.** False is always safe; true is proven by the kit or named as a lie.
//! - **Only fences wait.** `read`, `argmax`, `host`, `sync`, the KV read-backs and the capacity calls may block; every
//!   other call may return before its work is done.
//! - **Inputs are inputs.** An op changes nothing but its result (or `dst` of the two in-place ops).
//! - **One instance, one thread.** Calls come one at a time; a backend may use as many threads as it likes.
//! - **This crate imports nothing of the project**, so that a vendor depends on the contract alone.
//!
//! # A small backend, complete
//!
//! Host memory, f32: residency, [`Backend::matmul`] and [`Backend::add_in_place`]. Everything else answers
//! `Unimplemented` until it is written. The serve loop ([`wire::serve`]) has checked shapes, dtypes and handles before a
//! method is called, so that methods only compute. A worker process hands `serve` a [`wire::SocketTransport`]; here a pipe in
//! memory takes its place.
//!
//! ```
//! use std::borrow::Cow;
//! use std::time::Duration;
//!
//! use modelbench_contract::wire::{RemoteBackend, ServeOptions, memory_pair, serve};
//! use modelbench_contract::*;
//!
//! struct Tensor {
//!     desc: TensorDesc,
//!     values: Vec<f32>,
//! }
//!
//! impl DeviceTensor for Tensor {
//!     fn desc(&self) -> &TensorDesc {
//!         &self.desc
//!     }
//! }
//!
//! struct Small;
//!
//! impl Backend for Small {
//!     type Tensor = Tensor;
//!     type Kv = NoKv;
//!
//!     fn name(&self) -> &str {
//!         "small"
//!     }
//!     fn version(&self) -> &str {
//!         "0.1.0"
//!     }
//!     fn tier(&self) -> &str {
//!         "scalar"
//!     }
//!     fn class(&self) -> Class {
//!         Class::Approx // Own arithmetic, within the derived bounds.
//!     }
//!     fn caps(&self) -> Caps {
//!         Caps::new() // Each cap is a promise; none is always safe.
//!     }
//!     fn numerics(&self) -> NumericProfile {
//!         NumericProfile::F32
//!     }
//!     fn device(&self) -> DeviceInfo {
//!         DeviceInfo {
//!             kind: DeviceKind::Cpu,
//!             hardware: "the host's processor".to_owned(),
//!             driver: String::new(),
//!             runtime: "small 0.1.0".to_owned(),
//!         }
//!     }
//!
//!     fn upload(&mut self, tensor: &HostTensor, _as_dtype: DType) -> Result<Tensor> {
//!         if tensor.dtype() != DType::F32 {
//!             return Err(BackendError::unimplemented(Op::Upload));
//!         }
//!         let (words, _) = tensor.bytes().as_chunks::<4>();
//!         let values = words.iter().map(|&word| f32::from_le_bytes(word)).collect();
//!         Ok(Tensor { desc: tensor.desc().clone(), values })
//!     }
//!     fn host<'a>(&'a mut self, tensor: &'a Tensor) -> Result<Option<Cow<'a, [f32]>>> {
//!         Ok(Some(Cow::Borrowed(&tensor.values)))
//!     }
//!     fn read(&mut self, tensor: &Tensor) -> Result<Vec<f32>> {
//!         Ok(tensor.values.clone())
//!     }
//!     fn free(&mut self, _tensor: Tensor) -> Result<()> {
//!         Ok(()) // Dropped here; a device gives its memory back.
//!     }
//!
//!     fn matmul(&mut self, w: &Tensor, x: &Tensor) -> Result<Tensor> {
//!         let rows = w.values.chunks_exact(x.values.len());
//!         let values: Vec<f32> = rows.map(|row| row.iter().zip(&x.values).map(|(w, x)| w * x).sum()).collect();
//!         Ok(Tensor { desc: TensorDesc::new([values.len()], DType::F32), values })
//!     }
//!     fn add_in_place(&mut self, dst: &mut Tensor, src: &Tensor) -> Result<()> {
//!         dst.values.iter_mut().zip(&src.values).for_each(|(dst, src)| *dst += src);
//!         Ok(())
//!     }
//! }
//!
//! # fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
//! let (host, mut worker) = memory_pair();
//! let serving = std::thread::spawn(move || serve(&mut Small, &mut worker, ServeOptions::default()));
//!
//! let mut remote = RemoteBackend::connect(host, "any text", Duration::from_secs(10))?;
//! let w = remote.upload(&HostTensor::from_f32(&[2, 2], &[1.0, 2.0, 3.0, 4.0])?, DType::F32)?;
//! let x = remote.upload(&HostTensor::from_f32(&[2], &[5.0, 6.0])?, DType::F32)?;
//! let mut y = remote.matmul(&w, &x)?; // Sent, not waited for.
//! remote.add_in_place(&mut y, &x)?;
//! assert_eq!(remote.read(&y)?, [17.0 + 5.0, 39.0 + 6.0]); // Waits; an earlier error would be told here.
//!
//! remote.bye()?;
//! serving.join().expect("the worker does not panic")?;
//! # Ok(())
//! # }
//! ```

mod backend;
mod dtype;
mod error;
mod exact;
mod extensions;
mod identity;
mod op;
mod quant;
mod tensor;
pub mod wire;

pub use backend::{AttentionSpec, Backend, NoKv, Result, RopeSpec};
pub use dtype::{DType, Layout};
pub use error::{BackendError, ErrorKind};
pub use extensions::{
    Capacity, Collectives, DeviceCapacity, Graph, GraphCompile, GraphId, GraphStep, HostCapacity, KvConfig,
    KvStore,
};
pub use identity::{
    Activation, Cap, Caps, Class, DeviceInfo, DeviceKind, Identity, NumericProfile, Precision, is_backend_id,
};
pub use op::Op;
pub use quant::QuantSpec;
pub use tensor::{DeviceTensor, HostTensor, MAX_RANK, TensorDesc};
