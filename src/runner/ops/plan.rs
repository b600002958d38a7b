//! An op case made concrete: operands, the call, and how its truth is found.

use modelbench_contract::{AttentionSpec, DType, KvConfig, Op, RopeSpec};

use super::super::CheckError;
use crate::inputs::{Operand, Stream};
use crate::suite::{Case, Recipe, SuiteError};

/// The call of one op with its scalar parameters; the operands are in [`OpPlan::operands`], in the order of the
/// contract's method.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Call {
    /// `w, x`.
    Matmul,
    /// `w, x`.
    BatchedMatmul,
    /// `x, weight`.
    RmsNorm {
        /// Added to the mean square.
        eps: f32,
    },
    /// `x`.
    Rope(RopeSpec),
    /// `gate, up`.
    Swiglu,
    /// `dst, src`.
    AddInPlace,
    /// `dst, bias`.
    AddBias,
    /// `q, k_raw, k_rope, v`; the last three are appended to a store of one layer at position 0.
    Attention {
        /// Shape of the store.
        kv: KvConfig,
        /// Grouping, scale, mask.
        spec: AttentionSpec,
    },
    /// `logits`.
    Argmax,
}

impl Call {
    /// The op's name.
    pub fn op(&self) -> Op {
        match self {
            Call::Matmul => Op::Matmul,
            Call::BatchedMatmul => Op::BatchedMatmul,
            Call::RmsNorm { .. } => Op::RmsNorm,
            Call::Rope(_) => Op::Rope,
            Call::Swiglu => Op::Swiglu,
            Call::AddInPlace => Op::AddInPlace,
            Call::AddBias => Op::AddBias,
            Call::Attention { .. } => Op::Attention,
            Call::Argmax => Op::Argmax,
        }
    }
}

/// A case with its data.
#[derive(Debug, Clone)]
pub struct OpPlan {
    /// The call.
    pub call: Call,
    /// Its operands.
    pub operands: Vec<Operand>,
}

/// Names of the axes that the check of an op reads.
pub fn axes(check: &str) -> Option<&'static [&'static str]> {
    Some(match check {
        "matmul" => &["dtype", "out", "in"],
        "batched_matmul" => &["dtype", "rows", "out", "in"],
        "rms_norm" => &["rows", "n", "eps"],
        "rope" => &["rows", "heads", "head_dim", "pos", "theta"],
        "swiglu" | "add_in_place" | "add_bias" => &["rows", "n"],
        "attention" => &["kv", "kv_heads", "group", "head_dim", "rows"],
        "argmax" => &["pattern", "n"],
        _ => return None,
    })
}

impl OpPlan {
    /// Makes the operands of a case.
    ///
    /// # Errors
    /// [`SuiteError`] if a parameter is missing or not allowed; a contract error if a shape is impossible.
    pub fn new(case: &Case, seed: u64) -> Result<OpPlan, CheckError> {
        let make = |name, shape: &[usize], dtype, recipe| {
            Operand::make(name, shape, dtype, recipe, &Stream::new(seed, &case.id, name))
        };
        let recipe = case.group.input;
        // `rows` of 0 stands for a plain vector.
        let rows = case.size_or("rows", 0)?;
        let shaped = |n: usize| if rows == 0 { vec![n] } else { vec![rows, n] };
        let f32_of = |name, shape: &[usize]| make(name, shape, DType::F32, recipe);
        let (call, operands) = match case.group.check.as_str() {
            check @ ("matmul" | "batched_matmul") => {
                let (out, inner, dtype) = (case.size("out")?, case.size("in")?, dtype(case)?);
                let x = activation(case, &shaped(inner), dtype, seed)?;
                let call = if check == "matmul" { Call::Matmul } else { Call::BatchedMatmul };
                (call, vec![make("w", &[out, inner], dtype, recipe)?, x])
            }
            "rms_norm" => {
                let n = case.size("n")?;
                (
                    Call::RmsNorm { eps: float(case, "eps")? },
                    vec![f32_of("x", &shaped(n))?, f32_of("weight", &[n])?],
                )
            }
            "rope" => {
                let (n_heads, head_dim) = (case.size("heads")?, case.size("head_dim")?);
                let spec =
                    RopeSpec { pos: case.size("pos")?, n_heads, head_dim, theta: float(case, "theta")? };
                (Call::Rope(spec), vec![f32_of("x", &shaped(n_heads * head_dim))?])
            }
            "swiglu" => {
                let shape = shaped(case.size("n")?);
                (Call::Swiglu, vec![gate(case, &shape, seed)?, f32_of("up", &shape)?])
            }
            "add_in_place" => {
                let shape = shaped(case.size("n")?);
                (Call::AddInPlace, vec![f32_of("dst", &shape)?, f32_of("src", &shape)?])
            }
            "add_bias" => {
                let n = case.size("n")?;
                (Call::AddBias, vec![f32_of("dst", &shaped(n))?, f32_of("bias", &[n])?])
            }
            "attention" => return attention(case, seed),
            "argmax" => (Call::Argmax, vec![super::patterns::logits(case, seed)?]),
            other => return Err(case.invalid(format!("no check {other:?}")).into()),
        };
        Ok(OpPlan { call, operands })
    }
}

fn attention(case: &Case, seed: u64) -> Result<OpPlan, CheckError> {
    let (positions, kv_heads) = (case.size("kv")?, case.size("kv_heads")?);
    let (group, head_dim, rows) = (case.size("group")?, case.size("head_dim")?, case.size_or("rows", 0)?);
    let kv = KvConfig { layers: 1, kv_heads, head_dim, capacity: positions, theta: 10_000.0 };
    let spec = AttentionSpec { group, scale: (1.0 / (head_dim as f64).sqrt()) as f32, causal: true };
    let width = kv_heads * group * head_dim;
    let exact = matches!(case.group.input, Recipe::Integers { .. });
    let make = |name: &'static str, shape: &[usize], recipe| {
        Operand::make(name, shape, DType::F32, recipe, &Stream::new(seed, &case.id, name))
    };
    // Zero queries give equal scores, so that with a power of two of positions every weight is exact.
    let queries = if exact { Recipe::None } else { case.group.input };
    let q_shape = if rows == 0 { vec![width] } else { vec![rows, width] };
    let row = [positions, kv.row_len()];
    Ok(OpPlan {
        call: Call::Attention { kv, spec },
        operands: vec![
            make("q", &q_shape, queries)?,
            make("k_raw", &row, case.group.input)?,
            make("k_rope", &row, case.group.input)?,
            make("v", &row, case.group.input)?,
        ],
    })
}

/// The activation of a product. Against `q8_0` weights integer data gets one element of magnitude 127 in each block,
/// so that a backend which quantises activations by amax/127 keeps them exact, and so does one which does not.
fn activation(case: &Case, shape: &[usize], dtype: DType, seed: u64) -> Result<Operand, CheckError> {
    let stream = Stream::new(seed, &case.id, "x");
    let operand = Operand::make("x", shape, DType::F32, case.group.input, &stream)?;
    let Recipe::Integers { .. } = case.group.input else { return Ok(operand) };
    if dtype != DType::Q8_0 {
        return Ok(operand);
    }
    let mut values = operand.values;
    for (block, chunk) in values.chunks_mut(32).enumerate() {
        let at = stream.below(u64::MAX - block as u64, chunk.len() as u64) as usize;
        chunk[at] = 127.0;
    }
    Ok(Operand::from_f32("x", shape, values)?)
}

/// The gate of swiglu. For the exact tier it is 0, or so large that `silu(z) = z` in f32.
fn gate(case: &Case, shape: &[usize], seed: u64) -> Result<Operand, CheckError> {
    let stream = Stream::new(seed, &case.id, "gate");
    let operand = Operand::make("gate", shape, DType::F32, case.group.input, &stream)?;
    let Recipe::Integers { .. } = case.group.input else { return Ok(operand) };
    let values =
        operand.values.iter().enumerate().map(|(i, _)| [0.0, 32.0, 64.0][stream.below(i as u64, 3) as usize]);
    Ok(Operand::from_f32("gate", shape, values.collect())?)
}

fn dtype(case: &Case) -> Result<DType, SuiteError> {
    let text = case.text("dtype")?;
    DType::ALL.into_iter().find(|d| d.as_str() == text).ok_or_else(|| {
        let known: Vec<&str> = DType::ALL.iter().map(|d| d.as_str()).collect();
        case.invalid(format!("dtype {text:?}: expected one of {}", known.join(", ")))
    })
}

fn float(case: &Case, axis: &str) -> Result<f32, SuiteError> {
    let text = case.text(axis)?;
    text.parse().map_err(|_| {
        case.invalid(format!("{axis} = {text:?}: expected a number in quotes, such as \"1e-5\""))
    })
}
