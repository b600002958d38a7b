//! The optional parts of the contract, each a trait of its own.

use serde::{Deserialize, Serialize};

use crate::{HostTensor, Op, Result};

/// Shape of a KV store.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct KvConfig {
    /// Layers, each with its own rows.
    pub layers: usize,
    /// KV heads.
    pub kv_heads: usize,
    /// Elements of a head, even.
    pub head_dim: usize,
    /// Positions the store must be able to hold.
    pub capacity: usize,
    /// RoPE base, needed to rotate survivors after `evict`.
    #[serde(serialize_with = "crate::exact::one")]
    pub theta: f32,
}

impl KvConfig {
    /// Elements of one position in one layer: `kv_heads * head_dim`.
    pub fn row_len(&self) -> usize {
        self.kv_heads * self.head_dim
    }
}

/// A KV store: three rows per position and layer (pre-RoPE key, post-RoPE key, value).
///
/// After [`KvStore::evict`] a store equals one that never saw the span.
pub trait KvStore {
    /// A tensor on the device.
    type Tensor;
    /// A store on the device.
    type Kv;

    /// An empty store.
    fn new_kv(&mut self, config: &KvConfig) -> Result<Self::Kv>;
    /// Appends one position (rows `[kv_dim]`) or `P` consecutive ones (`[P, kv_dim]`) starting at `pos`. The
    /// positions are recorded once, with layer 0; every layer must then append the same ones. `pos` must be the
    /// number of positions that this layer already holds.
    fn append(
        &mut self,
        kv: &mut Self::Kv,
        layer: usize,
        k_raw: &Self::Tensor,
        k_rope: &Self::Tensor,
        v: &Self::Tensor,
        pos: usize,
    ) -> Result<()>;
    /// Number of positions held (as recorded with layer 0).
    fn len(&mut self, kv: &Self::Kv) -> Result<usize>;
    /// Post-RoPE keys of a layer, `[len, kv_dim]` row-major; waits.
    fn keys(&mut self, kv: &Self::Kv, layer: usize) -> Result<Vec<f32>>;
    /// Values of a layer, `[len, kv_dim]` row-major; waits.
    fn values(&mut self, kv: &Self::Kv, layer: usize) -> Result<Vec<f32>>;
    /// The positions held, in order: always `0..len` renumbered.
    fn positions(&mut self, kv: &Self::Kv) -> Result<Vec<usize>>;
    /// Drops `n` positions from `from` in every layer, clamped at the end; survivors are renumbered `0..len-1` and
    /// each one that moved gets a fresh post-RoPE key from its pre-RoPE key. Returns how many were dropped: 0 for
    /// `from < 0`, `n <= 0` or `from >= len`.
    fn evict(&mut self, kv: &mut Self::Kv, from: i64, n: i64) -> Result<usize>;
    /// A deep copy: neither store ever sees what happens to the other.
    fn clone_kv(&mut self, kv: &Self::Kv) -> Result<Self::Kv>;
    /// Releases a store.
    fn free_kv(&mut self, kv: Self::Kv) -> Result<()>;
}

/// Collective operations over ranks: sums in rank order, shards contiguous and equal.
///
/// Refused with `InvalidArgument`: no parts, another number of parts than ranks, ragged or indivisible lengths,
/// parts that are not f32, parts of another backend.
pub trait Collectives {
    /// A tensor on the device.
    type Tensor;

    /// Prepares `ranks` ranks, at least one.
    fn init_ranks(&mut self, ranks: usize) -> Result<()>;
    /// Copies an f32 tensor to one rank.
    fn upload_rank(&mut self, rank: usize, tensor: &HostTensor) -> Result<Self::Tensor>;
    /// `[n]` on each rank; every rank gets the sum `((part0 + part1) + part2) + ...`, `[n]`.
    fn all_reduce_sum(&mut self, parts: &[&Self::Tensor]) -> Result<Vec<Self::Tensor>>;
    /// `[n]` on each rank; every rank gets the concatenation in rank order, `[ranks*n]`.
    fn all_gather(&mut self, parts: &[&Self::Tensor]) -> Result<Vec<Self::Tensor>>;
    /// `[ranks*n]` on each rank; rank `r` gets shard `r` of the sum, `[n]`.
    fn reduce_scatter(&mut self, parts: &[&Self::Tensor]) -> Result<Vec<Self::Tensor>>;
    /// `[ranks*n]` on each rank; rank `r` gets shard `r` of every rank in rank order, `[ranks*n]`.
    fn all_to_all(&mut self, parts: &[&Self::Tensor]) -> Result<Vec<Self::Tensor>>;
}

/// How much memory there is. Unknown is a state of its own, never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// Bytes in all.
    pub total: u64,
    /// Bytes free now, or `None` if the device cannot tell.
    pub free: Option<u64>,
}

/// Asks the device for its memory.
pub trait DeviceCapacity {
    /// Total and free device memory in bytes.
    fn capacity(&mut self) -> Result<Capacity>;
}

/// Asks for the host memory that the backend may use.
pub trait HostCapacity {
    /// Total and free host memory in bytes.
    fn capacity(&mut self) -> Result<Capacity>;
}

/// One step of an op list: `inputs` and `output` are slots of the list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GraphStep {
    /// The op; one of the math group without a KV store.
    pub op: Op,
    /// Slots read.
    pub inputs: Vec<usize>,
    /// Slot written; equals `inputs[0]` for ops in place.
    pub output: usize,
    /// Scalar parameters in the order of the method (`eps`, or `pos n_heads head_dim theta`).
    pub scalars: Vec<f64>,
}

/// An op list over slots; slots `0..inputs` are given at each replay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    /// Number of input slots.
    pub inputs: usize,
    /// The steps, in order.
    pub steps: Vec<GraphStep>,
    /// The slot that a replay returns.
    pub result: usize,
}

/// A compiled op list, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GraphId(pub u64);

/// Records op lists and replays them with new inputs and the same bits as eager calls.
pub trait GraphCompile {
    /// A tensor on the device.
    type Tensor;

    /// Compiles an op list for inputs of the given tensors' shapes.
    fn compile(&mut self, graph: &Graph, examples: &[&Self::Tensor]) -> Result<GraphId>;
    /// Runs a compiled op list.
    fn replay(&mut self, graph: GraphId, inputs: &[&Self::Tensor]) -> Result<Self::Tensor>;
    /// Releases a compiled op list.
    fn drop_graph(&mut self, graph: GraphId) -> Result<()>;
}
