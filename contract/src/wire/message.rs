//! Requests and responses.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::effort::Effort;
use crate::{BackendError, Capacity, DType, Graph, Identity, KvConfig, Op, QuantSpec};

/// First field of both hellos.
pub const MAGIC: &str = "MODELBENCH";
/// Oldest and newest protocol version that this build speaks.
pub const VERSIONS: [u32; 2] = [1, 1];

/// A handle: a number that the host chooses for a tensor, a store or a graph.
pub type Handle = u64;

/// What the host asks. Those of [`Request::is_fence`] are answered, all others are not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
#[allow(
    missing_docs,
    reason = "the fields are the parameters of the contract's methods, under the same names"
)]
pub enum Request {
    /// First request: magic, protocol versions, a nonce that the answer repeats.
    Hello {
        magic: String,
        min: u32,
        max: u32,
        nonce: String,
    },
    /// Who the backend is now.
    Identity,
    /// What the span up to the last fence cost.
    Effort,
    /// Waits for everything.
    Sync,
    /// Frees every tensor and store. Not answered.
    Reset,
    /// Ends the conversation; answered.
    Bye,
    /// The body holds the tensor's bytes.
    Upload {
        out: Handle,
        shape: Vec<usize>,
        dtype: DType,
        as_dtype: DType,
        quant: Option<QuantSpec>,
    },
    Host {
        tensor: Handle,
    },
    Read {
        tensor: Handle,
    },
    Free {
        tensor: Handle,
    },
    Matmul {
        out: Handle,
        w: Handle,
        x: Handle,
    },
    BatchedMatmul {
        out: Handle,
        w: Handle,
        x: Handle,
    },
    RmsNorm {
        out: Handle,
        x: Handle,
        weight: Handle,
        eps: f64,
    },
    Rope {
        out: Handle,
        x: Handle,
        pos: usize,
        n_heads: usize,
        head_dim: usize,
        theta: f64,
    },
    Swiglu {
        out: Handle,
        gate: Handle,
        up: Handle,
    },
    AddInPlace {
        dst: Handle,
        src: Handle,
    },
    AddBias {
        dst: Handle,
        bias: Handle,
    },
    Attention {
        out: Handle,
        q: Handle,
        kv: Handle,
        layer: usize,
        group: usize,
        scale: f64,
        causal: bool,
    },
    Argmax {
        logits: Handle,
    },
    NewKv {
        out: Handle,
        config: KvConfig,
    },
    KvAppend {
        kv: Handle,
        layer: usize,
        k_raw: Handle,
        k_rope: Handle,
        v: Handle,
        pos: usize,
    },
    KvLen {
        kv: Handle,
    },
    KvKeys {
        kv: Handle,
        layer: usize,
    },
    KvValues {
        kv: Handle,
        layer: usize,
    },
    KvPositions {
        kv: Handle,
    },
    KvEvict {
        kv: Handle,
        from: i64,
        n: i64,
    },
    KvClone {
        out: Handle,
        kv: Handle,
    },
    FreeKv {
        kv: Handle,
    },
    InitRanks {
        ranks: usize,
    },
    /// The body holds the tensor's bytes, f32.
    UploadRank {
        out: Handle,
        rank: usize,
        shape: Vec<usize>,
    },
    AllReduceSum {
        out: Vec<Handle>,
        parts: Vec<Handle>,
    },
    AllGather {
        out: Vec<Handle>,
        parts: Vec<Handle>,
    },
    ReduceScatter {
        out: Vec<Handle>,
        parts: Vec<Handle>,
    },
    AllToAll {
        out: Vec<Handle>,
        parts: Vec<Handle>,
    },
    DeviceCapacity,
    HostCapacity,
    CompileGraph {
        out: Handle,
        graph: Graph,
        examples: Vec<Handle>,
    },
    ReplayGraph {
        out: Handle,
        graph: Handle,
        inputs: Vec<Handle>,
    },
    DropGraph {
        graph: Handle,
    },
}

impl Request {
    /// True if the request is answered: it waits for everything before it.
    pub fn is_fence(&self) -> bool {
        use Request::*;
        matches!(
            self,
            Hello { .. }
                | Identity
                | Effort
                | Sync
                | Bye
                | Host { .. }
                | Read { .. }
                | Argmax { .. }
                | KvLen { .. }
                | KvKeys { .. }
                | KvValues { .. }
                | KvPositions { .. }
                | KvEvict { .. }
                | DeviceCapacity
                | HostCapacity
        )
    }

    /// The op of the contract, `None` for the conversation itself.
    pub fn op(&self) -> Option<Op> {
        use Request::*;
        Some(match self {
            Hello { .. } | Identity | Effort | Reset | Bye => return None,
            Sync => Op::Sync,
            Upload { .. } => Op::Upload,
            Host { .. } => Op::Host,
            Read { .. } => Op::Read,
            Free { .. } | FreeKv { .. } | DropGraph { .. } => Op::Free,
            Matmul { .. } => Op::Matmul,
            BatchedMatmul { .. } => Op::BatchedMatmul,
            RmsNorm { .. } => Op::RmsNorm,
            Rope { .. } => Op::Rope,
            Swiglu { .. } => Op::Swiglu,
            AddInPlace { .. } => Op::AddInPlace,
            AddBias { .. } => Op::AddBias,
            Attention { .. } => Op::Attention,
            Argmax { .. } => Op::Argmax,
            NewKv { .. } => Op::NewKv,
            KvAppend { .. } => Op::KvAppend,
            KvLen { .. } => Op::KvLen,
            KvKeys { .. } => Op::KvKeys,
            KvValues { .. } => Op::KvValues,
            KvPositions { .. } => Op::KvPositions,
            KvEvict { .. } => Op::KvEvict,
            KvClone { .. } => Op::KvClone,
            InitRanks { .. } => Op::InitRanks,
            UploadRank { .. } => Op::UploadRank,
            AllReduceSum { .. } => Op::AllReduceSum,
            AllGather { .. } => Op::AllGather,
            ReduceScatter { .. } => Op::ReduceScatter,
            AllToAll { .. } => Op::AllToAll,
            DeviceCapacity => Op::DeviceCapacity,
            HostCapacity => Op::HostCapacity,
            CompileGraph { .. } => Op::CompileGraph,
            ReplayGraph { .. } => Op::ReplayGraph,
        })
    }

    /// Handles that the request gives to its results.
    pub fn outputs(&self) -> &[Handle] {
        use Request::*;
        match self {
            Upload { out, .. }
            | Matmul { out, .. }
            | BatchedMatmul { out, .. }
            | RmsNorm { out, .. }
            | Rope { out, .. }
            | Swiglu { out, .. }
            | Attention { out, .. }
            | NewKv { out, .. }
            | KvClone { out, .. }
            | UploadRank { out, .. }
            | CompileGraph { out, .. }
            | ReplayGraph { out, .. } => std::slice::from_ref(out),
            AllReduceSum { out, .. }
            | AllGather { out, .. }
            | ReduceScatter { out, .. }
            | AllToAll { out, .. } => out,
            _ => &[],
        }
    }
}

/// What the worker answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case", deny_unknown_fields)]
pub enum Response {
    /// To `hello`.
    Hello {
        /// [`MAGIC`].
        magic: String,
        /// The common protocol version.
        version: u32,
        /// The host's nonce.
        nonce: String,
        /// Who the backend is.
        identity: Box<Identity>,
        /// What holds the worker in, measure by measure.
        sandbox: BTreeMap<String, String>,
    },
    /// To `identity`.
    Identity {
        /// Who the backend is now.
        identity: Box<Identity>,
    },
    /// To `sync` and `bye`.
    Done,
    /// To `read`, `kv_keys` and `kv_values`; the body holds f32 values, row-major.
    Values {
        /// Shape of the values.
        shape: Vec<usize>,
    },
    /// To `host`: with a view the body holds its f32 values.
    View {
        /// True if there is a view.
        some: bool,
    },
    /// To `argmax`, `kv_len` and `kv_evict`.
    Index {
        /// The number.
        value: u64,
    },
    /// To `kv_positions`; the body holds `u64` values, little-endian.
    Positions,
    /// To the capacity requests.
    Capacity {
        /// The figures.
        capacity: Capacity,
    },
    /// To `effort`.
    Effort {
        /// The figures.
        effort: Effort,
    },
    /// To any fence: this or an earlier request failed.
    Error {
        /// What failed.
        error: BackendError,
    },
}
