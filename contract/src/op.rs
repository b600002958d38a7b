//! The names of the operations.

use serde::{Deserialize, Serialize};

macro_rules! ops {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// One operation of the contract, as named in suites, records and on the wire.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Op { $($(#[$doc])* #[serde(rename = $name)] $variant,)* }

        impl Op {
            /// Every operation.
            pub const ALL: &'static [Op] = &[$(Op::$variant,)*];

            /// The name of the operation.
            pub fn as_str(self) -> &'static str {
                match self { $(Op::$variant => $name,)* }
            }
        }
    };
}

ops! {
    /// Copy a host tensor to the device.
    Upload = "upload",
    /// View a tensor in host memory.
    Host = "host",
    /// Fence and copy to the host as f32.
    Read = "read",
    /// Release a tensor or a store.
    Free = "free",
    /// Fence without a copy.
    Sync = "sync",
    /// Create a KV store.
    NewKv = "new_kv",
    /// `w[out,in] * x[in]`.
    Matmul = "matmul",
    /// `w[out,in] * x[P,in]`.
    BatchedMatmul = "batched_matmul",
    /// Root-mean-square normalisation.
    RmsNorm = "rms_norm",
    /// Rotary position embedding.
    Rope = "rope",
    /// `silu(gate) * up`.
    Swiglu = "swiglu",
    /// `dst += src`.
    AddInPlace = "add_in_place",
    /// `dst += bias`, row by row.
    AddBias = "add_bias",
    /// Grouped-query attention over the KV store.
    Attention = "attention",
    /// Index of the first maximum.
    Argmax = "argmax",
    /// Append positions to a KV store.
    KvAppend = "kv_append",
    /// Number of positions in a KV store.
    KvLen = "kv_len",
    /// Post-RoPE keys of a layer.
    KvKeys = "kv_keys",
    /// Values of a layer.
    KvValues = "kv_values",
    /// Positions held.
    KvPositions = "kv_positions",
    /// Drop a span of positions.
    KvEvict = "kv_evict",
    /// Deep copy of a KV store.
    KvClone = "kv_clone",
    /// Prepare ranks for collectives.
    InitRanks = "init_ranks",
    /// Upload to one rank.
    UploadRank = "upload_rank",
    /// Sum over ranks, result on every rank.
    AllReduceSum = "all_reduce_sum",
    /// Concatenate shards, result on every rank.
    AllGather = "all_gather",
    /// Sum over ranks, each rank keeps its shard.
    ReduceScatter = "reduce_scatter",
    /// Transpose of shards between ranks.
    AllToAll = "all_to_all",
    /// Device memory, total and free.
    DeviceCapacity = "device_capacity",
    /// Host memory, total and free.
    HostCapacity = "host_capacity",
    /// Compile an op list.
    CompileGraph = "compile_graph",
    /// Run a compiled op list.
    ReplayGraph = "replay_graph",
}

impl Op {
    /// The ops that carry a model's work: delegating one of them is not running the model on the device.
    pub fn is_hot(self) -> bool {
        matches!(self, Op::Matmul | Op::BatchedMatmul | Op::Attention)
    }
}

impl std::fmt::Display for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
