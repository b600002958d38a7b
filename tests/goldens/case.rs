//! A case of `ops_f64.safetensors`: the call with its operands, and its result to float64.

use modelbench_contract::{AttentionSpec, DType, RopeSpec};
use safetensors::SafeTensors;

use crate::file::Fields;

/// A weight matrix `[out, in]`, as stored and as the values that the bytes stand for.
pub struct Stored {
    pub dtype: DType,
    pub raw: Vec<u8>,
    pub values: Vec<f32>,
    /// Of `q4_k`: the sum of the magnitudes of the two parts of a value.
    pub magnitudes: Option<Vec<f32>>,
}

/// An op with its operands. Rows of `x`, `q` and the like lie one behind the other.
pub enum Call {
    /// `rows` is `None` for `matmul` of a vector.
    Matmul {
        w: Stored,
        x: Vec<f32>,
        inner: usize,
        rows: Option<usize>,
    },
    RmsNorm {
        x: Vec<f32>,
        weight: Vec<f32>,
        eps: f32,
    },
    Rope {
        x: Vec<f32>,
        spec: RopeSpec,
    },
    Swiglu {
        gate: Vec<f32>,
        up: Vec<f32>,
    },
    AddInPlace {
        dst: Vec<f32>,
        src: Vec<f32>,
    },
    AddBias {
        dst: Vec<f32>,
        bias: Vec<f32>,
    },
    Attention {
        q: Vec<f32>,
        k: Vec<f32>,
        v: Vec<f32>,
        kv_heads: usize,
        head_dim: usize,
        spec: AttentionSpec,
    },
    Argmax {
        x: Vec<f32>,
    },
}

pub struct Case {
    /// `kind.number`, as in the file.
    pub name: String,
    pub call: Call,
    /// The result, correctly rounded to float64; NaN where it is not defined.
    pub want: Vec<f64>,
    /// The magnitude to which the errors of a float64 evaluation are relative.
    pub size: Vec<f64>,
    /// True if there is one right f32 answer.
    pub exact: bool,
}

impl Case {
    /// The op's name, as in the suites and in `limits.toml`.
    pub fn op(&self) -> &str {
        self.name.split('.').next().unwrap()
    }
}

/// Every case of a file, by name.
pub fn all(file: &SafeTensors<'_>) -> Vec<Case> {
    let mut names: Vec<String> =
        file.names().into_iter().filter_map(|n| n.strip_suffix(".y")).map(str::to_owned).collect();
    names.sort();
    names.into_iter().map(|name| one(Fields { file, prefix: &name })).collect()
}

fn one(fields: Fields<'_>) -> Case {
    let (f, name) = (|field: &str| fields.f32s(field), fields.prefix.to_owned());
    let params = || fields.sizes("params");
    let call = match name.split('.').next().unwrap() {
        op @ ("matmul" | "batched_matmul") => Call::Matmul {
            w: stored(fields),
            x: f("x"),
            inner: *fields.shape("x").last().unwrap(),
            rows: (op == "batched_matmul").then(|| fields.shape("x")[0]),
        },
        "rms_norm" => Call::RmsNorm { x: f("x"), weight: f("weight"), eps: f("eps")[0] },
        "rope" => {
            let [pos, n_heads, head_dim] = params()[..] else { panic!("{name}: params") };
            Call::Rope { x: f("x"), spec: RopeSpec { pos, n_heads, head_dim, theta: f("theta")[0] } }
        }
        "swiglu" => Call::Swiglu { gate: f("gate"), up: f("up") },
        "add_in_place" => Call::AddInPlace { dst: f("dst"), src: f("src") },
        "add_bias" => Call::AddBias { dst: f("dst"), bias: f("bias") },
        "attention" => {
            let [kv_heads, group, head_dim, causal] = params()[..] else { panic!("{name}: params") };
            let spec = AttentionSpec { group, scale: f("scale")[0], causal: causal == 1 };
            Call::Attention { q: f("q"), k: f("k"), v: f("v"), kv_heads, head_dim, spec }
        }
        "argmax" => Call::Argmax { x: f("x") },
        other => panic!("{name}: unknown op {other}"),
    };
    let (want, size) = (fields.f64s("y"), fields.f64s("size"));
    assert_eq!(want.len(), size.len(), "{name}");
    Case { call, want, size, exact: fields.find("exact").is_some(), name }
}

fn stored(fields: Fields<'_>) -> Stored {
    let (values, magnitudes) = (fields.f32s("w"), fields.find("magnitudes").map(|b| crate::file::f32s(&b)));
    let Some(dtype) = fields.find("dtype") else {
        return Stored { dtype: DType::F32, raw: fields.bytes("w"), values, magnitudes };
    };
    let text = String::from_utf8(dtype).unwrap();
    let dtype = DType::ALL.into_iter().find(|d| d.as_str() == text).unwrap();
    Stored { dtype, raw: fields.bytes("raw"), values, magnitudes }
}
