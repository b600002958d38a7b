//! One request, checked and turned into one call of the backend.

use super::check;
use super::guard::guarded;
use super::message::{Handle, Request, Response};
use super::table::{Fail, Table};
use crate::{
    AttentionSpec, Backend, BackendError, Collectives, DType, DeviceTensor, GraphCompile, HostTensor,
    KvStore, Op, Result, RopeSpec,
};

type Answer = Option<(Response, Vec<u8>)>;
type Handles<B> = Table<<B as Backend>::Tensor, <B as Backend>::Kv>;

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn index(value: usize) -> Result<Answer, Fail> {
    Ok(Some((Response::Index { value: value as u64 }, Vec::new())))
}

fn rows(values: &[f32], width: usize) -> Result<Answer, Fail> {
    let shape = vec![values.len() / width.max(1), width];
    Ok(Some((Response::Values { shape }, floats(values))))
}

fn kv_store<B: Backend>(backend: &mut B, op: Op) -> Result<&mut dyn KvStore<Tensor = B::Tensor, Kv = B::Kv>> {
    backend.kv_store().ok_or_else(|| BackendError::unimplemented(op))
}

fn ranks<B: Backend>(backend: &mut B, op: Op) -> Result<&mut dyn Collectives<Tensor = B::Tensor>> {
    backend.collectives().ok_or_else(|| BackendError::unimplemented(op))
}

fn graphs<B: Backend>(backend: &mut B, op: Op) -> Result<&mut dyn GraphCompile<Tensor = B::Tensor>> {
    backend.graph_compile().ok_or_else(|| BackendError::unimplemented(op))
}

/// Runs one request. Fences give an answer; the others give none.
pub(super) fn execute<B: Backend>(
    backend: &mut B,
    table: &mut Handles<B>,
    request: &Request,
    body: Vec<u8>,
) -> Result<Answer, Fail> {
    table.vacant(request.outputs())?;
    match request {
        Request::Hello { .. } => return Err(BackendError::invalid("hello came twice").into()),
        Request::Identity => {
            return Ok(Some((Response::Identity { identity: Box::new(backend.identity()) }, Vec::new())));
        }
        Request::Sync => backend.sync()?,
        Request::Reset | Request::Bye => clear(backend, table)?,
        Request::Upload { out, shape, dtype, as_dtype, quant } => {
            let mut tensor = HostTensor::from_bytes(shape, *dtype, body)?;
            if let Some(quant) = quant {
                tensor = tensor.with_quant(quant.clone());
            }
            let tensor = backend.upload(&tensor, *as_dtype)?;
            table.add_tensor(*out, tensor);
        }
        Request::Host { tensor } => {
            let view = backend.host(table.tensor(*tensor)?)?;
            let body = view.as_deref().map(floats);
            return Ok(Some((Response::View { some: body.is_some() }, body.unwrap_or_default())));
        }
        Request::Read { tensor } => {
            let tensor = table.tensor(*tensor)?;
            let values = backend.read(tensor)?;
            return Ok(Some((Response::Values { shape: tensor.desc().shape.clone() }, floats(&values))));
        }
        Request::Free { tensor } => {
            if let Some(tensor) = table.take_tensor(*tensor)? {
                backend.free(tensor)?;
            }
        }
        Request::Matmul { out, w, x } => {
            let (w, x) = (table.tensor(*w)?, table.tensor(*x)?);
            check::matmul(w.desc(), x.desc())?;
            let result = backend.matmul(w, x)?;
            table.add_tensor(*out, result);
        }
        Request::BatchedMatmul { out, w, x } => {
            let (w, x) = (table.tensor(*w)?, table.tensor(*x)?);
            check::batched_matmul(w.desc(), x.desc())?;
            let result = backend.batched_matmul(w, x)?;
            table.add_tensor(*out, result);
        }
        Request::RmsNorm { out, x, weight, eps } => {
            let (x, weight) = (table.tensor(*x)?, table.tensor(*weight)?);
            check::rms_norm(x.desc(), weight.desc())?;
            check::finite(Op::RmsNorm, "eps", f64::from(*eps as f32))?;
            let result = backend.rms_norm(x, weight, *eps as f32)?;
            table.add_tensor(*out, result);
        }
        Request::Rope { out, x, pos, n_heads, head_dim, theta } => {
            let spec = RopeSpec { pos: *pos, n_heads: *n_heads, head_dim: *head_dim, theta: *theta as f32 };
            let x = table.tensor(*x)?;
            check::rope(x.desc(), &spec)?;
            let result = backend.rope(x, spec)?;
            table.add_tensor(*out, result);
        }
        Request::Swiglu { out, gate, up } => {
            let (gate, up) = (table.tensor(*gate)?, table.tensor(*up)?);
            check::swiglu(gate.desc(), up.desc())?;
            let result = backend.swiglu(gate, up)?;
            table.add_tensor(*out, result);
        }
        Request::AddInPlace { dst, src } => {
            in_place(table, *dst, *src, |dst, src| {
                check::add_in_place(dst.desc(), src.desc())?;
                backend.add_in_place(dst, src)
            })?;
        }
        Request::AddBias { dst, bias } => {
            in_place(table, *dst, *bias, |dst, bias| {
                check::add_bias(dst.desc(), bias.desc())?;
                backend.add_bias(dst, bias)
            })?;
        }
        Request::Attention { out, q, kv, layer, group, scale, causal } => {
            let spec = AttentionSpec { group: *group, scale: *scale as f32, causal: *causal };
            let (q, (kv, config)) = (table.tensor(*q)?, table.kv(*kv)?);
            check::attention(q.desc(), config, *layer, &spec)?;
            let result = backend.attention(q, kv, *layer, spec)?;
            table.add_tensor(*out, result);
        }
        Request::Argmax { logits } => {
            let logits = table.tensor(*logits)?;
            check::argmax(logits.desc())?;
            return index(backend.argmax(logits)?);
        }
        Request::DeviceCapacity => {
            let device =
                backend.device_capacity().ok_or_else(|| BackendError::unimplemented(Op::DeviceCapacity))?;
            return Ok(Some((Response::Capacity { capacity: device.capacity()? }, Vec::new())));
        }
        Request::HostCapacity => {
            let host =
                backend.host_capacity().ok_or_else(|| BackendError::unimplemented(Op::HostCapacity))?;
            return Ok(Some((Response::Capacity { capacity: host.capacity()? }, Vec::new())));
        }
        request => return extensions(backend, table, request, body),
    }
    Ok(None)
}

/// Takes `dst` out for the call, so that it can be changed while `src` is only read.
fn in_place<T, K>(
    table: &mut Table<T, K>,
    dst: Handle,
    src: Handle,
    call: impl FnOnce(&mut T, &T) -> Result<()>,
) -> Result<(), Fail> {
    if dst == src {
        return Err(BackendError::invalid(format!("handle {dst} is both destination and source")).into());
    }
    table.tensor(dst)?;
    table.tensor(src)?;
    let Some(mut tensor) = table.take_tensor(dst)? else { return Ok(()) };
    let done = table.tensor(src).and_then(|src| guarded(|| Ok(call(&mut tensor, src)?)));
    table.add_tensor(dst, tensor);
    done
}

fn extensions<B: Backend>(
    backend: &mut B,
    table: &mut Handles<B>,
    request: &Request,
    body: Vec<u8>,
) -> Result<Answer, Fail> {
    match request {
        Request::NewKv { out, config } => {
            check::kv_config(config)?;
            let kv = kv_store(backend, Op::NewKv)?.new_kv(config)?;
            table.add_kv(*out, kv, *config);
        }
        Request::KvAppend { kv, layer, k_raw, k_rope, v, pos } => {
            let (_, config) = table.kv(*kv)?;
            let rows = [table.tensor(*k_raw)?, table.tensor(*k_rope)?, table.tensor(*v)?];
            check::append(config, *layer, rows.map(|t| t.desc()))?;
            let Some((mut store, config)) = table.take_kv(*kv)? else { return Ok(None) };
            let done = table.tensor(*k_raw).and_then(|k_raw| {
                let (k_rope, v) = (table.tensor(*k_rope)?, table.tensor(*v)?);
                guarded(|| {
                    let ops = kv_store(backend, Op::KvAppend)?;
                    Ok(ops.append(&mut store, *layer, k_raw, k_rope, v, *pos)?)
                })
            });
            table.add_kv(*kv, store, config);
            done?;
        }
        Request::KvLen { kv } => return index(kv_store(backend, Op::KvLen)?.len(table.kv(*kv)?.0)?),
        Request::KvKeys { kv, layer } => {
            let (kv, config) = table.kv(*kv)?;
            layer_in_range(*layer, config.layers)?;
            return rows(&kv_store(backend, Op::KvKeys)?.keys(kv, *layer)?, config.row_len());
        }
        Request::KvValues { kv, layer } => {
            let (kv, config) = table.kv(*kv)?;
            layer_in_range(*layer, config.layers)?;
            return rows(&kv_store(backend, Op::KvValues)?.values(kv, *layer)?, config.row_len());
        }
        Request::KvPositions { kv } => {
            let positions = kv_store(backend, Op::KvPositions)?.positions(table.kv(*kv)?.0)?;
            let bytes = positions.iter().flat_map(|&p| (p as u64).to_le_bytes()).collect();
            return Ok(Some((Response::Positions, bytes)));
        }
        Request::KvEvict { kv, from, n } => {
            table.kv(*kv)?;
            let Some((mut store, config)) = table.take_kv(*kv)? else { return Ok(None) };
            let done = guarded(|| Ok(kv_store(backend, Op::KvEvict)?.evict(&mut store, *from, *n)?));
            table.add_kv(*kv, store, config);
            return index(done?);
        }
        Request::KvClone { out, kv } => {
            let (kv, config) = table.kv(*kv)?;
            let (config, copy) = (*config, kv_store(backend, Op::KvClone)?.clone_kv(kv)?);
            table.add_kv(*out, copy, config);
        }
        Request::FreeKv { kv } => {
            if let Some((kv, _)) = table.take_kv(*kv)? {
                kv_store(backend, Op::Free)?.free_kv(kv)?;
            }
        }
        Request::InitRanks { ranks: count } => ranks(backend, Op::InitRanks)?.init_ranks(*count)?,
        Request::UploadRank { out, rank, shape } => {
            let tensor = HostTensor::from_bytes(shape, DType::F32, body)?;
            let tensor = ranks(backend, Op::UploadRank)?.upload_rank(*rank, &tensor)?;
            table.add_tensor(*out, tensor);
        }
        Request::AllReduceSum { out, parts } => {
            one_each(out, parts)?;
            let results = ranks(backend, Op::AllReduceSum)?.all_reduce_sum(&table.tensors(parts)?)?;
            add_all(backend, table, out, results)?;
        }
        Request::AllGather { out, parts } => {
            one_each(out, parts)?;
            let results = ranks(backend, Op::AllGather)?.all_gather(&table.tensors(parts)?)?;
            add_all(backend, table, out, results)?;
        }
        Request::ReduceScatter { out, parts } => {
            one_each(out, parts)?;
            let results = ranks(backend, Op::ReduceScatter)?.reduce_scatter(&table.tensors(parts)?)?;
            add_all(backend, table, out, results)?;
        }
        Request::AllToAll { out, parts } => {
            one_each(out, parts)?;
            let results = ranks(backend, Op::AllToAll)?.all_to_all(&table.tensors(parts)?)?;
            add_all(backend, table, out, results)?;
        }
        Request::CompileGraph { out, graph, examples } => {
            let compiler = graphs(backend, Op::CompileGraph)?;
            let examples = table.tensors(examples)?;
            let descs: Vec<_> = examples.iter().map(|t| t.desc().clone()).collect();
            check::graph(graph, &descs.iter().collect::<Vec<_>>())?;
            let graph = compiler.compile(graph, &examples)?;
            table.add_graph(*out, graph, descs);
        }
        Request::ReplayGraph { out, graph, inputs } => {
            let (graph, descs) = table.graph(*graph)?;
            let inputs = table.tensors(inputs)?;
            check::replay(descs, &inputs.iter().map(|t| t.desc()).collect::<Vec<_>>())?;
            let result = graphs(backend, Op::ReplayGraph)?.replay(graph, &inputs)?;
            table.add_tensor(*out, result);
        }
        Request::DropGraph { graph } => {
            if let Some(graph) = table.take_graph(*graph)? {
                graphs(backend, Op::Free)?.drop_graph(graph)?;
            }
        }
        other => return Err(BackendError::internal(format!("{other:?} has no handler")).into()),
    }
    Ok(None)
}

fn layer_in_range(layer: usize, layers: usize) -> Result<(), Fail> {
    if layer < layers {
        Ok(())
    } else {
        Err(BackendError::invalid(format!("layer {layer}, expected below {layers}")).into())
    }
}

/// Every part needs a handle for its result, before the backend does the work.
fn one_each(out: &[Handle], parts: &[Handle]) -> Result<(), Fail> {
    if out.len() == parts.len() {
        return Ok(());
    }
    let text = format!("{} handles for the results of {} parts, expected one each", out.len(), parts.len());
    Err(BackendError::invalid(text).into())
}

fn add_all<B: Backend>(
    backend: &mut B,
    table: &mut Handles<B>,
    out: &[Handle],
    results: Vec<B::Tensor>,
) -> Result<(), Fail> {
    if out.len() != results.len() {
        let text = format!("wrong shape: {} results for {} parts", results.len(), out.len());
        for result in results {
            backend.free(result)?;
        }
        return Err(BackendError::internal(text).into());
    }
    for (handle, result) in out.iter().zip(results) {
        table.add_tensor(*handle, result);
    }
    Ok(())
}

/// Frees everything, whatever goes wrong on the way.
///
/// # Errors
/// The first error or panic; the rest is freed all the same.
pub(super) fn clear<B: Backend>(backend: &mut B, table: &mut Handles<B>) -> Result<(), Fail> {
    let (tensors, stores, compiled) = table.drain();
    let mut first = Ok(());
    for tensor in tensors {
        first = first.and(guarded(|| Ok(backend.free(tensor)?)));
    }
    for kv in stores {
        first = first.and(guarded(|| Ok(kv_store(backend, Op::Free)?.free_kv(kv)?)));
    }
    for graph in compiled {
        first = first.and(guarded(|| Ok(graphs(backend, Op::Free)?.drop_graph(graph)?)));
    }
    first
}
