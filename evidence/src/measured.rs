//! What was measured about where the work ran: one line of the record, between the cases and the footer.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::counters::CounterReading;
use crate::outcome::Outcome;
use crate::tree;

/// A measurement, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reading<T> {
    /// What was measured.
    Measured(T),
    /// Why nothing was.
    NotMeasured(String),
}

/// All that was measured beside the cases, on a fresh worker after the last case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Summation trees, by product and length.
    pub order: Reading<Vec<tree::Measured>>,
    /// A known load: what it cost the worker, and what it costs cpu-ref.
    pub load: Reading<Load>,
    /// Counters of the device before and after that load.
    pub counters: Reading<CounterReading>,
    /// Poisoned answers that were offered to the backend.
    pub watermark: Reading<Watermark>,
    /// Cases asked again with inputs that nobody could know.
    pub tier: Reading<Tier>,
}

/// A known load: matrix products, on the worker and on cpu-ref.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Products of the load.
    pub calls: u64,
    /// Multiplications of each product.
    pub multiplications: u64,
    /// CPU time of all the worker's processes while it ran them, in nanoseconds.
    pub worker_cpu_ns: u64,
    /// CPU time of cpu-ref for the same products on the same machine, in nanoseconds.
    pub reference_cpu_ns: u64,
    /// What was wrong with the answers, if anything was: work that was not done costs nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrong: Option<String>,
}

/// What became of poisoned answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watermark {
    /// Questions, by op.
    pub asked: BTreeMap<String, u64>,
    /// Poisoned answers that the host served because the backend lacked the op, by op.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub served: BTreeMap<String, u64>,
    /// Elements with the poison in answers that the backend claims as its own, by op.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub found: BTreeMap<String, u64>,
}

/// Cases asked again on a fresh worker, with a seed that was drawn (or that a challenge gave) for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tier {
    /// The nonce that chose cases and inputs, lower-case hex.
    pub nonce: String,
    /// The seed of the inputs, as `0x…`.
    pub seed: String,
    /// The cases, in the order in which they were asked.
    pub cases: Vec<TierCase>,
}

/// A case of the tier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TierCase {
    /// Its id.
    pub id: String,
    /// What happened.
    pub outcome: Outcome,
    /// sha256 over the outputs, in order.
    pub output_sha256: String,
    /// The outputs themselves, f32 little-endian in base64, for a verifier to judge again; absent if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<String>,
}
