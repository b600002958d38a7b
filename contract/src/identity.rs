//! Who a backend says it is, and what it promises.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// How close to cpu-ref a backend promises to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Class {
    /// Bit for bit equal to cpu-ref.
    Reference,
    /// Equal within derived bounds, by its own arithmetic.
    Approx,
}

impl Class {
    /// The name used in rows.
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Reference => "Reference",
            Class::Approx => "Approx",
        }
    }
}

/// An optional ability. Advertising one is a promise that the kit checks; leaving it out is always safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Cap {
    /// Tensors live in memory that the host cannot view.
    DeviceMemory,
    /// `upload` narrows f32 to f16, bf16 or q8_0.
    UploadDtype,
    /// Ops return before their result is ready; `read` and `argmax` fence.
    Async,
    /// Attention runs as one kernel without a score matrix.
    FusedAttn,
    /// The feed-forward block runs fused.
    FusedFFN,
    /// Op lists can be compiled and replayed.
    GraphCompile,
    /// Collective operations over ranks.
    Collective,
    /// Device memory can be asked for.
    CapacityProbe,
    /// Host memory can be asked for.
    HostCapacityProbe,
}

impl Cap {
    /// Every cap.
    pub const ALL: [Cap; 9] = [
        Cap::DeviceMemory,
        Cap::UploadDtype,
        Cap::Async,
        Cap::FusedAttn,
        Cap::FusedFFN,
        Cap::GraphCompile,
        Cap::Collective,
        Cap::CapacityProbe,
        Cap::HostCapacityProbe,
    ];

    /// The name used in rows and suites.
    pub fn as_str(self) -> &'static str {
        match self {
            Cap::DeviceMemory => "DeviceMemory",
            Cap::UploadDtype => "UploadDtype",
            Cap::Async => "Async",
            Cap::FusedAttn => "FusedAttn",
            Cap::FusedFFN => "FusedFFN",
            Cap::GraphCompile => "GraphCompile",
            Cap::Collective => "Collective",
            Cap::CapacityProbe => "CapacityProbe",
            Cap::HostCapacityProbe => "HostCapacityProbe",
        }
    }
}

/// The set of advertised caps.
pub type Caps = BTreeSet<Cap>;

/// A floating-point precision, by its significand and exponent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 53-bit significand.
    F64,
    /// 24-bit significand.
    F32,
    /// 11-bit significand, 8-bit exponent.
    Tf32,
    /// 11-bit significand, 5-bit exponent.
    F16,
    /// 8-bit significand, 8-bit exponent.
    Bf16,
}

impl Precision {
    /// Unit roundoff: half the distance from 1 to the next larger number.
    pub fn unit_roundoff(self) -> f64 {
        let bits = match self {
            Precision::F64 => 53,
            Precision::F32 => 24,
            Precision::Tf32 | Precision::F16 => 11,
            Precision::Bf16 => 8,
        };
        (-f64::from(bits)).exp2()
    }

    /// The name used in rows.
    pub fn as_str(self) -> &'static str {
        match self {
            Precision::F64 => "f64",
            Precision::F32 => "f32",
            Precision::Tf32 => "tf32",
            Precision::F16 => "f16",
            Precision::Bf16 => "bf16",
        }
    }
}

/// How a quantised weight meets its activation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Activation {
    /// The activation stays a float; the weight is dequantised.
    Float,
    /// The activation is quantised to 8-bit codes per block of 32 with scale amax/127.
    Int8,
}

/// The arithmetic that a backend declares. Bounds are derived from it; computing in less is a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumericProfile {
    /// Precision to which operands of a product are rounded.
    pub operand: Precision,
    /// Precision of the running sum.
    pub accumulator: Precision,
    /// True when denormal inputs or results become zero.
    pub flush_to_zero: bool,
    /// How `matmul` and `batched_matmul` treat activations against `q8_0` weights.
    pub q8_activation: Activation,
    /// True when the same call on the same bytes always gives the same bits.
    pub deterministic: bool,
}

impl NumericProfile {
    /// Plain f32 arithmetic with denormals, deterministic, float activations.
    pub const F32: NumericProfile = NumericProfile {
        operand: Precision::F32,
        accumulator: Precision::F32,
        flush_to_zero: false,
        q8_activation: Activation::Float,
        deterministic: true,
    };
}

/// What kind of thing the device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// The host's own processor, openly.
    Cpu,
    /// An accelerator that is really implemented by the CPU (llvmpipe, WARP, SwiftShader, an emulator).
    Software,
    /// An accelerator that shares the host's memory.
    Integrated,
    /// An accelerator with its own memory.
    Discrete,
    /// An accelerator behind virtualisation.
    Virtual,
}

/// The hardware, driver and runtime that a backend says it runs on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// What kind of thing it is.
    pub kind: DeviceKind,
    /// Name of the hardware, as the driver or the operating system gives it.
    pub hardware: String,
    /// Driver and its version; empty for a CPU.
    pub driver: String,
    /// Library that runs the ops, with its version.
    pub runtime: String,
}

/// Everything a backend says about itself; it may not change while the backend lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Stable id, `[a-z0-9][a-z0-9-]{0,31}`; a self-test backend carries a `mock:` prefix.
    pub name: String,
    /// Version of the backend.
    pub version: String,
    /// Private tier string: `scalar`, `avx2`, `sm90`, `software:llvmpipe`.
    pub tier: String,
    /// Promise of closeness.
    pub class: Class,
    /// Advertised caps.
    pub caps: Caps,
    /// Declared arithmetic.
    pub numerics: NumericProfile,
    /// Where it runs.
    pub device: DeviceInfo,
}

/// True if `name` is a legal backend id: `[a-z0-9][a-z0-9-]{0,31}`.
pub fn is_backend_id(name: &str) -> bool {
    let bytes = name.as_bytes();
    let legal = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    matches!(bytes.first(), Some(b) if legal(b))
        && bytes.len() <= 32
        && bytes.iter().all(|b| legal(b) || *b == b'-')
}
