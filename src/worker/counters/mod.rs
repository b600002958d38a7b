//! What devices count for a worker's processes: the kernel's DRM clients and NVIDIA's management library.
//!
//! Everything is read from outside the worker. A [`Meter`] is made once for a worker, read before and after a load, and
//! the two [`Snapshot`]s give the [`CounterReading`](modelbench_evidence::counters::CounterReading) of the record.

mod fdinfo;
mod handles;
mod nodes;
mod nvml;
mod snapshot;

pub use nodes::{DrmNode, drm_nodes};
pub use nvml::{NvmlState, nvml_state};
pub use snapshot::{Meter, Snapshot};
