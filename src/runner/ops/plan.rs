//! An op case made concrete: operands, the call, and how its truth is found.

use modelbench_contract::{AttentionSpec, DType, KvConfig, Op, RopeSpec};

use super::super::CheckError;
use crate::inputs::{Operand, Stream};
use crate::suite::{Case, Pattern, Recipe, SuiteError};

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

    /// The operand into which special values are planted unless the case names another one.
    fn usual_operand(&self) -> &'static str {
        match self {
            Call::Matmul | Call::BatchedMatmul | Call::RmsNorm { .. } | Call::Rope(_) => "x",
            Call::Swiglu => "gate",
            Call::AddInPlace | Call::AddBias => "dst",
            Call::Attention { .. } => "q",
            Call::Argmax => "logits",
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
        "matmul" => &["dtype", "out", "in", "plant", "into", "at"],
        "batched_matmul" => &["dtype", "rows", "out", "in", "plant", "into", "at"],
        "rms_norm" => &["rows", "n", "eps", "plant", "into", "at"],
        "rope" => &["rows", "heads", "head_dim", "pos", "theta", "plant", "into", "at"],
        "swiglu" | "add_in_place" | "add_bias" => &["rows", "n", "plant", "into", "at"],
        "attention" => &["kv", "kv_heads", "group", "head_dim", "rows", "plant", "into", "at"],
        "argmax" => &["pattern", "n", "plant", "into", "at"],
        _ => return None,
    })
}

impl OpPlan {
    /// True if its weight is `q8_0`, the only one that activations may be quantised for.
    pub fn takes_q8_0(&self) -> bool {
        self.operands.first().is_some_and(|w| w.tensor.dtype() == DType::Q8_0)
    }

    /// Makes the operands of a case whose check is an op.
    ///
    /// # Errors
    /// [`SuiteError`] if a parameter is missing or not allowed; a contract error if a shape is impossible.
    pub fn new(case: &Case, seed: u64) -> Result<OpPlan, CheckError> {
        OpPlan::of(&case.group.check, case, seed)
    }

    /// Makes the operands for a call of `op`, for a check that is about something else than one op.
    ///
    /// # Errors
    /// As [`OpPlan::new`].
    pub fn of(op: &str, case: &Case, seed: u64) -> Result<OpPlan, CheckError> {
        let make = |name, shape: &[usize], dtype, recipe| {
            Operand::make(name, shape, dtype, recipe, &Stream::new(seed, &case.id, name))
        };
        let recipe = case.group.input;
        // `rows` of 0 stands for a plain vector.
        let rows = case.size_or("rows", 0)?;
        let shaped = |n: usize| if rows == 0 { vec![n] } else { vec![rows, n] };
        let f32_of = |name, shape: &[usize]| make(name, shape, DType::F32, recipe);
        let (call, operands) = match op {
            "matmul" | "batched_matmul" => {
                let (out, inner, dtype) = (case.size("out")?, case.size("in")?, dtype(case)?);
                let x = activation(case, &shaped(inner), dtype, seed)?;
                let call = if op == "matmul" { Call::Matmul } else { Call::BatchedMatmul };
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
                (Call::AddInPlace, vec![f32_of("dst", &shape)?, addend(case, "src", &shape, seed)?])
            }
            "add_bias" => {
                let n = case.size("n")?;
                (Call::AddBias, vec![f32_of("dst", &shaped(n))?, addend(case, "bias", &[n], seed)?])
            }
            "attention" => {
                let OpPlan { call, operands } = super::attention::plan(case, seed)?;
                (call, operands)
            }
            "argmax" => (Call::Argmax, vec![super::patterns::logits(case, seed)?]),
            other => return Err(case.invalid(format!("no op {other:?}")).into()),
        };
        let mut plan = OpPlan { call, operands };
        if !(plan.call.op() == Op::Attention && matches!(recipe, Recipe::Select { .. })) {
            super::plants::plant(case, plan.call.usual_operand(), &mut plan.operands)?;
        }
        Ok(plan)
    }
}

/// The activation of a product. Against `q8_0` weights integer data gets one element of magnitude 127 in each block,
/// so that a backend which quantises activations by amax/127 keeps them exact, and so does one which does not.
fn activation(case: &Case, shape: &[usize], dtype: DType, seed: u64) -> Result<Operand, CheckError> {
    let stream = Stream::new(seed, &case.id, "x");
    let operand = Operand::make("x", shape, DType::F32, case.group.input, &stream)?;
    let exact = matches!(
        case.group.input,
        Recipe::Integers { .. }
            | Recipe::Odd { .. }
            | Recipe::Select { pattern: Pattern::Identity | Pattern::Permutation, .. }
    );
    if dtype != DType::Q8_0 || !exact {
        return Ok(operand);
    }
    let mut values = operand.values;
    for (block, chunk) in values.chunks_mut(32).enumerate() {
        // The element in front stays: with odd data it alone is even.
        let at = 1 + stream.below(u64::MAX - block as u64, chunk.len() as u64 - 1) as usize;
        chunk[at] = 127.0;
    }
    Ok(Operand::from_f32("x", shape, values)?)
}

/// The second operand of a sum: twice the recipe's values for odd data, so that no sum of odd and even is 0.
fn addend(case: &Case, name: &'static str, shape: &[usize], seed: u64) -> Result<Operand, CheckError> {
    let operand =
        Operand::make(name, shape, DType::F32, case.group.input, &Stream::new(seed, &case.id, name))?;
    let Recipe::Odd { .. } = case.group.input else { return Ok(operand) };
    Ok(Operand::from_f32(name, shape, operand.values.iter().map(|v| 2.0 * v).collect())?)
}

/// The gate of swiglu. For the exact tier it is so large that `silu(z) = z` in f32, and 0 here and there.
fn gate(case: &Case, shape: &[usize], seed: u64) -> Result<Operand, CheckError> {
    let stream = Stream::new(seed, &case.id, "gate");
    if !matches!(case.group.input, Recipe::Integers { .. } | Recipe::Odd { .. }) {
        return Ok(Operand::make("gate", shape, DType::F32, case.group.input, &stream)?);
    }
    let count: usize = shape.iter().product();
    let choose = |i: u64| if i % 5 == 4 { 0.0 } else { [32.0, 48.0, 64.0][stream.below(i, 3) as usize] };
    Ok(Operand::from_f32("gate", shape, (0..count as u64).map(choose).collect())?)
}

/// The dtype that a case names.
///
/// # Errors
/// [`SuiteError::Invalid`] if it names none, or one that does not exist.
pub fn dtype(case: &Case) -> Result<DType, SuiteError> {
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
