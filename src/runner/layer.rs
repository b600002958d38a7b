//! Rung 2: one layer, from the residual stream to the residual stream, within its own running error bound.

use modelbench_contract::{
    AttentionSpec, Backend, BackendError, Class, DType, HostTensor, KvConfig, NumericProfile, Result,
    RopeSpec,
};
use modelbench_reference::CpuRef;

use super::finding::{CheckError, Finding};
use super::kv_rows::kv_store;
use super::ops::allowance;
use super::script::{Script, Truths, conclude};
use crate::compare::{Question, Want, mistrust};
use crate::inputs::{Source, Stream};
use crate::oracle::{self, LayerShape, LayerWeights};
use crate::suite::{Case, Recipe};

/// Names of the axes that the check reads.
pub const AXES: [&str; 6] = ["rows", "dim", "hidden", "kv_heads", "group", "head_dim"];

const THETA: f32 = 10_000.0;
const EPS: f32 = 1e-5;

/// A layer with its data: `x`, then the nine weights in the order of [`LayerWeights`].
struct Layer {
    shape: LayerShape,
    rows: usize,
    tensors: Vec<(Vec<usize>, Vec<f32>)>,
}

impl Layer {
    fn new(case: &Case, seed: u64) -> std::result::Result<Layer, CheckError> {
        let (rows, dim, hidden) = (case.size("rows")?, case.size("dim")?, case.size("hidden")?);
        let (kv_heads, group, head_dim) =
            (case.size("kv_heads")?, case.size("group")?, case.size("head_dim")?);
        let (q, kv) = (kv_heads * group * head_dim, kv_heads * head_dim);
        let shapes = [
            ("x", vec![rows, dim]),
            ("attention_norm", vec![dim]),
            ("q", vec![q, dim]),
            ("k", vec![kv, dim]),
            ("v", vec![kv, dim]),
            ("o", vec![dim, q]),
            ("ffn_norm", vec![dim]),
            ("gate", vec![hidden, dim]),
            ("up", vec![hidden, dim]),
            ("down", vec![dim, hidden]),
        ];
        let make = |(name, shape): (&str, Vec<usize>)| {
            let stream = Stream::new(seed, &case.id, name);
            // Matrices shrink by their width as trained ones do, so that activations keep their size.
            let width = if shape.len() == 2 && name != "x" { shape[1] } else { 1 };
            let recipe = match case.group.input {
                Recipe::Reals { exponent } => {
                    Recipe::Reals { exponent: exponent - (width.ilog2() / 2) as i32 }
                }
                other => other,
            };
            let source = Source::new(recipe, name, shape.last().copied().unwrap_or(1), &stream);
            let values = (0..shape.iter().product::<usize>() as u64).map(|i| source.value(i)).collect();
            (shape, values)
        };
        let shape = LayerShape { dim, hidden, kv_heads, group, head_dim, theta: THETA, eps: EPS };
        Ok(Layer { shape, rows, tensors: shapes.into_iter().map(make).collect() })
    }

    fn want(&self, case: &Case, profile: &NumericProfile) -> std::result::Result<(Want, f64), CheckError> {
        let (allowance, slack) = allowance(case)?;
        let values: Vec<&[f32]> = self.tensors.iter().map(|(_, values)| values.as_slice()).collect();
        let [x, attention_norm, q, k, v, o, ffn_norm, gate, up, down] = values.as_slice() else {
            return Err(CheckError::Kit(format!("{}: a layer has ten tensors", case.id)));
        };
        let weights = LayerWeights { attention_norm, q, k, v, o, ffn_norm, gate, up, down };
        let bounded = oracle::layer(&weights, x, &self.shape, profile, &allowance)
            .map_err(|e| CheckError::Kit(format!("{}: {e}", case.id)))?;
        Ok((Want::Bounded(bounded), slack))
    }

    /// The chain of ops on a backend; nothing is read before the end.
    fn run<B: Backend>(&self, backend: &mut B) -> Result<Vec<f32>> {
        let LayerShape { kv_heads, group, head_dim, theta, eps, .. } = self.shape;
        let mut on_device = Vec::with_capacity(self.tensors.len());
        for (shape, values) in &self.tensors {
            on_device.push(backend.upload(&HostTensor::from_f32(shape, values)?, DType::F32)?);
        }
        let [x, attention_norm, wq, wk, wv, wo, ffn_norm, wgate, wup, wdown] = on_device.as_mut_slice()
        else {
            return Err(BackendError::internal("a layer has ten tensors"));
        };
        let h = backend.rms_norm(x, attention_norm, eps)?;
        let (q, k, v) = (
            backend.batched_matmul(wq, &h)?,
            backend.batched_matmul(wk, &h)?,
            backend.batched_matmul(wv, &h)?,
        );
        let spec = |n_heads| RopeSpec { pos: 0, n_heads, head_dim, theta };
        let (q_rope, k_rope) = (backend.rope(&q, spec(kv_heads * group))?, backend.rope(&k, spec(kv_heads))?);
        let config = KvConfig { layers: 1, kv_heads, head_dim, capacity: self.rows, theta };
        let mut kv = kv_store(backend)?.new_kv(&config)?;
        kv_store(backend)?.append(&mut kv, 0, &k, &k_rope, &v, 0)?;
        let mixed = backend.attention(&q_rope, &kv, 0, AttentionSpec::causal(group, head_dim))?;
        let out = backend.batched_matmul(wo, &mixed)?;
        backend.add_in_place(x, &out)?;
        let h1 = backend.rms_norm(x, ffn_norm, eps)?;
        let (gate, up) = (backend.batched_matmul(wgate, &h1)?, backend.batched_matmul(wup, &h1)?);
        let act = backend.swiglu(&gate, &up)?;
        let down = backend.batched_matmul(wdown, &act)?;
        backend.add_in_place(x, &down)?;
        let values = backend.read(x)?;
        for tensor in [h, q, k, v, q_rope, k_rope, mixed, out, h1, gate, up, act, down] {
            backend.free(tensor)?;
        }
        for tensor in on_device {
            backend.free(tensor)?;
        }
        kv_store(backend)?.free_kv(kv)?;
        backend.sync()?;
        Ok(values)
    }
}

/// Runs a layer and judges every element of its result.
///
/// # Errors
/// What stopped the check.
pub fn check<B: Backend>(
    case: &Case,
    seed: u64,
    backend: &mut B,
    class: Class,
    profile: &NumericProfile,
) -> std::result::Result<Finding, CheckError> {
    let layer = Layer::new(case, seed)?;
    let truths = Truths::new(profile, |profile| Ok(vec![layer.want(case, profile)?]))?;
    let script = |values: Vec<f32>| {
        let mut script = Script::default();
        script.answer("the layer", 0, values);
        script
    };
    let host = layer.run(&mut CpuRef::new()).map(script);
    let got = layer.run(backend)?;
    let poor = mistrust(&got);
    let mut finding = conclude(case, &truths, host, &script(got), class)?;
    finding.mistrusted = poor;
    Ok(finding)
}

/// What a layer case wants, for a backend that declares plain f32.
///
/// # Errors
/// A suite error or a defect of the kit.
pub fn question(case: &Case, seed: u64) -> std::result::Result<Question, CheckError> {
    let layer = Layer::new(case, seed)?;
    let (want, slack) = layer.want(case, &NumericProfile::F32)?;
    Ok(Question { want, row: layer.shape.dim, slack, next_position: None, needs_information: true })
}
