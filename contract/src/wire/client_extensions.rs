//! [`RemoteBackend`] as a KV store, as ranks and as a compiler of graphs.

use super::client::{Fault, RemoteBackend, RemoteKv, RemoteTensor};
use super::message::{Request, Response};
use super::{Transport, check};
use crate::{
    BackendError, Collectives, DType, Graph, GraphCompile, GraphId, HostTensor, KvConfig, KvStore, Op,
    Result, TensorDesc,
};

impl<T: Transport> KvStore for RemoteBackend<T> {
    type Tensor = RemoteTensor;
    type Kv = RemoteKv;

    fn new_kv(&mut self, config: &KvConfig) -> Result<RemoteKv> {
        check::kv_config(config)?;
        let handle = self.new_handle();
        self.submit(&Request::NewKv { out: handle, config: *config }, &[])?;
        Ok(RemoteKv { handle, config: *config })
    }
    fn append(
        &mut self,
        kv: &mut RemoteKv,
        layer: usize,
        k_raw: &RemoteTensor,
        k_rope: &RemoteTensor,
        v: &RemoteTensor,
        pos: usize,
    ) -> Result<()> {
        check::append(&kv.config, layer, [&k_raw.desc, &k_rope.desc, &v.desc])?;
        let (k_raw, k_rope, v) = (k_raw.handle, k_rope.handle, v.handle);
        self.submit(&Request::KvAppend { kv: kv.handle, layer, k_raw, k_rope, v, pos }, &[])
    }
    fn len(&mut self, kv: &RemoteKv) -> Result<usize> {
        self.index(&Request::KvLen { kv: kv.handle })
    }
    fn keys(&mut self, kv: &RemoteKv, layer: usize) -> Result<Vec<f32>> {
        self.kv_rows(kv, &Request::KvKeys { kv: kv.handle, layer })
    }
    fn values(&mut self, kv: &RemoteKv, layer: usize) -> Result<Vec<f32>> {
        self.kv_rows(kv, &Request::KvValues { kv: kv.handle, layer })
    }
    fn positions(&mut self, kv: &RemoteKv) -> Result<Vec<usize>> {
        let (response, body) = self.open_call(&Request::KvPositions { kv: kv.handle })?;
        if response != Response::Positions {
            return Err(self.unexpected(Some(Op::KvPositions), &response));
        }
        if body.len() % 8 != 0 {
            let message = format!("positions of {} bytes: expected a multiple of 8", body.len());
            return Err(self.fail(Fault::Protocol { op: Some(Op::KvPositions), message }));
        }
        let word = |b: &[u8]| u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]);
        Ok(body.chunks_exact(8).map(|b| usize::try_from(word(b)).unwrap_or(usize::MAX)).collect())
    }
    fn evict(&mut self, kv: &mut RemoteKv, from: i64, n: i64) -> Result<usize> {
        self.index(&Request::KvEvict { kv: kv.handle, from, n })
    }
    fn clone_kv(&mut self, kv: &RemoteKv) -> Result<RemoteKv> {
        let handle = self.new_handle();
        self.submit(&Request::KvClone { out: handle, kv: kv.handle }, &[])?;
        Ok(RemoteKv { handle, config: kv.config })
    }
    fn free_kv(&mut self, kv: RemoteKv) -> Result<()> {
        self.submit(&Request::FreeKv { kv: kv.handle }, &[])
    }
}

impl<T: Transport> RemoteBackend<T> {
    fn kv_rows(&mut self, kv: &RemoteKv, request: &Request) -> Result<Vec<f32>> {
        let (shape, values) = self.open_values(request)?;
        match shape.as_slice() {
            [_, width] if *width == kv.config.row_len() => Ok(values),
            _ => {
                let expected = kv.config.row_len();
                let text = format!("wrong shape: the store gave {shape:?}, expected [len, {expected}]");
                let error = BackendError::internal(text);
                Err(request.op().map_or(error.clone(), |op| error.in_op(op)))
            }
        }
    }

    /// Sends a collective with one result for each part, described by `length` of the parts' length.
    fn collective(
        &mut self,
        parts: &[&RemoteTensor],
        length: impl Fn(usize) -> usize,
        request: impl FnOnce(Vec<u64>, Vec<u64>) -> Request,
    ) -> Result<Vec<RemoteTensor>> {
        let results: Vec<RemoteTensor> = parts
            .iter()
            .map(|part| {
                let desc = TensorDesc::new([length(part.desc.elements())], DType::F32);
                RemoteTensor { handle: self.new_handle(), desc }
            })
            .collect();
        let (out, parts) =
            (results.iter().map(|r| r.handle).collect(), parts.iter().map(|p| p.handle).collect());
        self.submit(&request(out, parts), &[])?;
        Ok(results)
    }
}

impl<T: Transport> Collectives for RemoteBackend<T> {
    type Tensor = RemoteTensor;

    fn init_ranks(&mut self, ranks: usize) -> Result<()> {
        self.submit(&Request::InitRanks { ranks }, &[])
    }
    fn upload_rank(&mut self, rank: usize, tensor: &HostTensor) -> Result<RemoteTensor> {
        let (desc, shape) = (tensor.desc().clone(), tensor.shape().to_vec());
        self.result_with_body(desc, tensor.bytes(), |out| Request::UploadRank { out, rank, shape })
    }
    fn all_reduce_sum(&mut self, parts: &[&RemoteTensor]) -> Result<Vec<RemoteTensor>> {
        self.collective(parts, |n| n, |out, parts| Request::AllReduceSum { out, parts })
    }
    fn all_gather(&mut self, parts: &[&RemoteTensor]) -> Result<Vec<RemoteTensor>> {
        let ranks = parts.len();
        self.collective(parts, |n| n.saturating_mul(ranks), |out, parts| Request::AllGather { out, parts })
    }
    fn reduce_scatter(&mut self, parts: &[&RemoteTensor]) -> Result<Vec<RemoteTensor>> {
        let ranks = parts.len().max(1);
        self.collective(parts, |n| n / ranks, |out, parts| Request::ReduceScatter { out, parts })
    }
    fn all_to_all(&mut self, parts: &[&RemoteTensor]) -> Result<Vec<RemoteTensor>> {
        self.collective(parts, |n| n, |out, parts| Request::AllToAll { out, parts })
    }
}

impl<T: Transport> GraphCompile for RemoteBackend<T> {
    type Tensor = RemoteTensor;

    fn compile(&mut self, graph: &Graph, examples: &[&RemoteTensor]) -> Result<GraphId> {
        let desc = check::graph(graph, &examples.iter().map(|t| &t.desc).collect::<Vec<_>>())?;
        let handle = self.new_handle();
        let examples = examples.iter().map(|t| t.handle).collect();
        self.submit(&Request::CompileGraph { out: handle, graph: graph.clone(), examples }, &[])?;
        self.graphs.insert(handle, desc);
        Ok(GraphId(handle))
    }
    fn replay(&mut self, graph: GraphId, inputs: &[&RemoteTensor]) -> Result<RemoteTensor> {
        let Some(desc) = self.graphs.get(&graph.0).cloned() else {
            return Err(BackendError::invalid(format!("graph {} was never compiled here", graph.0))
                .in_op(Op::ReplayGraph));
        };
        let inputs = inputs.iter().map(|t| t.handle).collect();
        self.result(desc, |out| Request::ReplayGraph { out, graph: graph.0, inputs })
    }
    fn drop_graph(&mut self, graph: GraphId) -> Result<()> {
        self.graphs.remove(&graph.0);
        self.submit(&Request::DropGraph { graph: graph.0 }, &[])
    }
}
