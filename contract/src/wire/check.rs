//! What every call of the contract requires of its operands, as pure functions over descriptions.
//!
//! The serve loop asks them before a request reaches a backend, the client asks them for the shape of a result that it
//! does not wait for, and a backend may ask them itself.

use std::collections::BTreeMap;

use crate::{
    AttentionSpec, BackendError, DType, Graph, GraphStep, KvConfig, Op, Result, RopeSpec, TensorDesc,
};

fn refuse<T>(op: Op, text: String) -> Result<T> {
    Err(BackendError::invalid(text).in_op(op))
}

fn float(op: Op, what: &str, t: &TensorDesc) -> Result<()> {
    if t.dtype == DType::F32 {
        return Ok(());
    }
    refuse(op, format!("{what} is {}, expected f32", t.dtype))
}

fn row_wise(op: Op, what: &str, t: &TensorDesc) -> Result<()> {
    float(op, what, t)?;
    if matches!(t.shape.len(), 1 | 2) {
        return Ok(());
    }
    refuse(op, format!("{what} has shape {:?}, expected [n] or [P, n]", t.shape))
}

fn vector(op: Op, what: &str, t: &TensorDesc) -> Result<()> {
    float(op, what, t)?;
    if t.shape.len() == 1 {
        return Ok(());
    }
    refuse(op, format!("{what} has shape {:?}, expected [n]", t.shape))
}

fn product(op: Op, w: &TensorDesc, x: &TensorDesc, rank: usize) -> Result<TensorDesc> {
    let (&[out, inner], Some(&last)) = (w.shape.as_slice(), x.shape.last()) else {
        return refuse(op, format!("w has shape {:?}, expected [out, in]", w.shape));
    };
    float(op, "x", x)?;
    if x.shape.len() != rank || last != inner {
        let expected = if rank == 1 { format!("[{inner}]") } else { format!("[P, {inner}]") };
        return refuse(op, format!("w is {:?} and x is {:?}, expected x {expected}", w.shape, x.shape));
    }
    let mut shape = x.shape.clone();
    shape[rank - 1] = out;
    Ok(TensorDesc::new(shape, DType::F32))
}

/// `w[out, in]`, `x[in]`: the result is `[out]`.
pub fn matmul(w: &TensorDesc, x: &TensorDesc) -> Result<TensorDesc> {
    product(Op::Matmul, w, x, 1)
}

/// `w[out, in]`, `x[P, in]`: the result is `[P, out]`.
pub fn batched_matmul(w: &TensorDesc, x: &TensorDesc) -> Result<TensorDesc> {
    product(Op::BatchedMatmul, w, x, 2)
}

/// `x[n]` or `[P, n]`, `weight[n]`; the result is shaped as `x`.
pub fn rms_norm(x: &TensorDesc, weight: &TensorDesc) -> Result<TensorDesc> {
    row_wise(Op::RmsNorm, "x", x)?;
    vector(Op::RmsNorm, "weight", weight)?;
    if x.row_len() != weight.row_len() {
        return refuse(
            Op::RmsNorm,
            format!("x is {:?} and weight is {:?}: rows and weight differ in length", x.shape, weight.shape),
        );
    }
    Ok(TensorDesc::new(x.shape.clone(), DType::F32))
}

/// A scalar or a scale is a number: neither infinite nor NaN, which the wire cannot carry.
pub fn finite(op: Op, what: &str, value: f64) -> Result<()> {
    if value.is_finite() {
        Ok(())
    } else {
        refuse(op, format!("{what} is {value}, expected a finite number"))
    }
}

/// `x[n_heads*head_dim]` or `[P, n_heads*head_dim]`; the result is shaped as `x`.
pub fn rope(x: &TensorDesc, spec: &RopeSpec) -> Result<TensorDesc> {
    row_wise(Op::Rope, "x", x)?;
    if spec.n_heads == 0 || spec.head_dim == 0 || !spec.head_dim.is_multiple_of(2) {
        let text = format!(
            "{} heads of {}: expected at least one head of an even length",
            spec.n_heads, spec.head_dim
        );
        return refuse(Op::Rope, text);
    }
    if spec.n_heads.checked_mul(spec.head_dim) != Some(x.row_len()) {
        let text =
            format!("x is {:?}, expected rows of {} heads times {}", x.shape, spec.n_heads, spec.head_dim);
        return refuse(Op::Rope, text);
    }
    if !(spec.theta.is_finite() && spec.theta > 0.0) {
        return refuse(Op::Rope, format!("theta is {}, expected a positive number", spec.theta));
    }
    Ok(TensorDesc::new(x.shape.clone(), DType::F32))
}

fn alike(op: Op, names: [&str; 2], a: &TensorDesc, b: &TensorDesc) -> Result<TensorDesc> {
    row_wise(op, names[0], a)?;
    row_wise(op, names[1], b)?;
    if a.shape != b.shape {
        let text =
            format!("{} is {:?} and {} is {:?}, expected equal shapes", names[0], a.shape, names[1], b.shape);
        return refuse(op, text);
    }
    Ok(TensorDesc::new(a.shape.clone(), DType::F32))
}

/// Equal shapes; the result has the same.
pub fn swiglu(gate: &TensorDesc, up: &TensorDesc) -> Result<TensorDesc> {
    alike(Op::Swiglu, ["gate", "up"], gate, up)
}

/// Equal shapes.
pub fn add_in_place(dst: &TensorDesc, src: &TensorDesc) -> Result<()> {
    alike(Op::AddInPlace, ["dst", "src"], dst, src).map(|_| ())
}

/// `dst[n]` or `[P, n]`, `bias[n]`.
pub fn add_bias(dst: &TensorDesc, bias: &TensorDesc) -> Result<()> {
    row_wise(Op::AddBias, "dst", dst)?;
    vector(Op::AddBias, "bias", bias)?;
    if dst.row_len() != bias.row_len() {
        return refuse(
            Op::AddBias,
            format!("dst is {:?} and bias is {:?}: rows and bias differ in length", dst.shape, bias.shape),
        );
    }
    Ok(())
}

/// `q` rows of `kv_heads*group*head_dim`, a layer of the store; the result is shaped as `q`.
pub fn attention(q: &TensorDesc, kv: &KvConfig, layer: usize, spec: &AttentionSpec) -> Result<TensorDesc> {
    row_wise(Op::Attention, "q", q)?;
    if layer >= kv.layers {
        return refuse(Op::Attention, format!("layer {layer}, expected below {}", kv.layers));
    }
    let width = kv.row_len().checked_mul(spec.group).filter(|_| spec.group > 0);
    if width != Some(q.row_len()) {
        let text = format!(
            "q is {:?}, expected rows of {} KV heads times group {} times {}",
            q.shape, kv.kv_heads, spec.group, kv.head_dim
        );
        return refuse(Op::Attention, text);
    }
    if !spec.scale.is_finite() {
        return refuse(Op::Attention, format!("scale is {}, expected a finite number", spec.scale));
    }
    Ok(TensorDesc::new(q.shape.clone(), DType::F32))
}

/// `logits[n]`.
pub fn argmax(logits: &TensorDesc) -> Result<()> {
    vector(Op::Argmax, "logits", logits)
}

/// A KV store that can exist: no zero size, an even head, and a size that fits memory.
pub fn kv_config(kv: &KvConfig) -> Result<()> {
    let sizes = [kv.layers, kv.kv_heads, kv.head_dim, kv.capacity];
    let bytes = sizes.iter().try_fold(12usize, |n, &size| n.checked_mul(size));
    if sizes.contains(&0) || !kv.head_dim.is_multiple_of(2) || bytes.is_none_or(|b| b > isize::MAX as usize) {
        return refuse(
            Op::NewKv,
            format!("{kv:?}: expected sizes above zero, an even head_dim, and that it fits memory"),
        );
    }
    finite(Op::NewKv, "theta", f64::from(kv.theta))?;
    Ok(())
}

/// Three equal blocks of rows `[kv_dim]` or `[P, kv_dim]` for a layer; gives the number of positions.
pub fn append(kv: &KvConfig, layer: usize, rows: [&TensorDesc; 3]) -> Result<usize> {
    const OP: Op = Op::KvAppend;
    if layer >= kv.layers {
        return refuse(OP, format!("layer {layer}, expected below {}", kv.layers));
    }
    for (name, t) in ["k_raw", "k_rope", "v"].into_iter().zip(rows) {
        row_wise(OP, name, t)?;
        if t.row_len() != kv.row_len() || t.shape != rows[0].shape {
            let text = format!(
                "{name} is {:?}, expected rows of {} heads times {} and the shape of k_raw, {:?}",
                t.shape, kv.kv_heads, kv.head_dim, rows[0].shape
            );
            return refuse(OP, text);
        }
    }
    Ok(rows[0].rows())
}

/// The description of what an op list gives for such inputs.
///
/// # Errors
/// `InvalidArgument`: another number of inputs, a slot that nothing wrote, or a step whose operands do not fit.
pub fn graph(graph: &Graph, inputs: &[&TensorDesc]) -> Result<TensorDesc> {
    let wrong = |text: String| BackendError::invalid(text).in_op(Op::CompileGraph);
    if inputs.len() != graph.inputs {
        return Err(wrong(format!("{} inputs for a graph of {}", inputs.len(), graph.inputs)));
    }
    let mut slots: BTreeMap<usize, TensorDesc> =
        inputs.iter().enumerate().map(|(slot, &desc)| (slot, desc.clone())).collect();
    for step in &graph.steps {
        for &scalar in &step.scalars {
            finite(Op::CompileGraph, "a scalar", scalar)?;
        }
        let args: Option<Vec<&TensorDesc>> = step.inputs.iter().map(|slot| slots.get(slot)).collect();
        let args = args.ok_or_else(|| wrong(format!("{} reads a slot that nothing wrote", step.op)))?;
        let desc = step_result(step, &args).map_err(|e| wrong(format!("step {}: {}", step.op, e.message)))?;
        slots.insert(step.output, desc);
    }
    slots.remove(&graph.result).ok_or_else(|| wrong(format!("nothing writes slot {}", graph.result)))
}

/// Inputs of a replay have the shapes and dtypes that the op list was compiled for.
///
/// # Errors
/// `InvalidArgument` naming the first input that differs.
pub fn replay(compiled: &[TensorDesc], inputs: &[&TensorDesc]) -> Result<()> {
    const OP: Op = Op::ReplayGraph;
    if compiled.len() != inputs.len() {
        return refuse(OP, format!("{} inputs for a graph of {}", inputs.len(), compiled.len()));
    }
    for (slot, (want, got)) in compiled.iter().zip(inputs).enumerate() {
        if want.shape != got.shape || want.dtype != got.dtype {
            let text = format!(
                "input {slot} is {} {:?}, the graph was compiled for {} {:?}",
                got.dtype, got.shape, want.dtype, want.shape
            );
            return refuse(OP, text);
        }
    }
    Ok(())
}

fn step_result(step: &GraphStep, args: &[&TensorDesc]) -> Result<TensorDesc> {
    match (step.op, args, step.scalars.as_slice()) {
        (Op::Matmul, [w, x], []) => matmul(w, x),
        (Op::BatchedMatmul, [w, x], []) => batched_matmul(w, x),
        (Op::RmsNorm, [x, weight], [_]) => rms_norm(x, weight),
        (Op::Rope, [x], &[pos, heads, dim, theta]) => {
            let spec = RopeSpec {
                pos: pos as usize,
                n_heads: heads as usize,
                head_dim: dim as usize,
                theta: theta as f32,
            };
            rope(x, &spec)
        }
        (Op::Swiglu, [gate, up], []) => swiglu(gate, up),
        (Op::AddInPlace, [dst, src], []) => add_in_place(dst, src).map(|()| (*dst).clone()),
        (Op::AddBias, [dst, bias], []) => add_bias(dst, bias).map(|()| (*dst).clone()),
        (op, args, scalars) => Err(BackendError::invalid(format!(
            "{op} with {} inputs and {} scalars cannot be a step of a graph",
            args.len(),
            scalars.len()
        ))),
    }
}
