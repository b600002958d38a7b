//! The ranks of the backend under the tests: all of them in one memory.

use modelbench_contract::{BackendError, Collectives, DType, HostTensor, Op, Result};

use crate::backend::{HostMemory, Trip, Vector};

impl HostMemory {
    fn parts(&mut self, op: Op, parts: &[&Vector]) -> Result<Option<Trip>> {
        let trip = self.watch.enter(op)?;
        let length = parts.first().map_or(0, |part| part.values.len());
        if parts.len() != self.ranks || length == 0 || parts.iter().any(|p| p.values.len() != length) {
            return Err(BackendError::invalid(format!(
                "{} parts, expected {} alike",
                parts.len(),
                self.ranks
            )));
        }
        Ok(trip)
    }
    /// One tensor for each rank.
    fn results(&self, trip: Option<Trip>, values: impl Fn(usize) -> Vec<f32>) -> Result<Vec<Vector>> {
        let count = self.ranks - usize::from(matches!(trip, Some(Trip::Short)));
        Ok((0..count).map(values).map(|v| self.tensor(&[v.len()], v)).collect())
    }
}

fn sum(parts: &[&Vector]) -> Vec<f32> {
    (0..parts[0].values.len()).map(|i| parts.iter().map(|p| p.values[i]).sum()).collect()
}

impl Collectives for HostMemory {
    type Tensor = Vector;

    fn init_ranks(&mut self, ranks: usize) -> Result<()> {
        self.watch.enter(Op::InitRanks)?;
        self.ranks = ranks;
        Ok(())
    }
    fn upload_rank(&mut self, rank: usize, tensor: &HostTensor) -> Result<Vector> {
        self.watch.enter(Op::UploadRank)?;
        if rank >= self.ranks {
            return Err(BackendError::invalid(format!("rank {rank}, expected below {}", self.ranks)));
        }
        use modelbench_contract::Backend;
        self.upload(tensor, DType::F32)
    }
    fn all_reduce_sum(&mut self, parts: &[&Vector]) -> Result<Vec<Vector>> {
        let trip = self.parts(Op::AllReduceSum, parts)?;
        self.results(trip, |_| sum(parts))
    }
    fn all_gather(&mut self, parts: &[&Vector]) -> Result<Vec<Vector>> {
        let trip = self.parts(Op::AllGather, parts)?;
        self.results(trip, |_| parts.iter().flat_map(|p| p.values.clone()).collect())
    }
    fn reduce_scatter(&mut self, parts: &[&Vector]) -> Result<Vec<Vector>> {
        let trip = self.parts(Op::ReduceScatter, parts)?;
        let shard = parts[0].values.len() / self.ranks;
        self.results(trip, |rank| sum(parts)[rank * shard..(rank + 1) * shard].to_vec())
    }
    fn all_to_all(&mut self, parts: &[&Vector]) -> Result<Vec<Vector>> {
        let trip = self.parts(Op::AllToAll, parts)?;
        let shard = parts[0].values.len() / self.ranks;
        self.results(trip, |rank| {
            parts.iter().flat_map(|p| p.values[rank * shard..(rank + 1) * shard].to_vec()).collect()
        })
    }
}
