//! Collective operations between ranks that all live in this process.

use modelbench_contract::{BackendError, Collectives, DType, DeviceTensor, HostTensor, Op, Result};

use crate::{CpuRef, RefTensor, add, check, upload};

impl CpuRef {
    /// The values of the parts, one for each rank, and their common length.
    ///
    /// # Errors
    /// `InvalidArgument` without parts or ranks, for another number of parts than ranks, parts of another backend, of
    /// another dtype than f32, of another rank than 1, or of different lengths.
    fn parts<'a>(&self, parts: &[&'a RefTensor]) -> Result<(Vec<&'a [f32]>, usize)> {
        let ranks = self.ranks.ok_or_else(|| BackendError::invalid("no ranks yet; call init_ranks first"))?;
        if parts.len() != ranks {
            return Err(BackendError::invalid(format!(
                "{} parts; expected one for each of {ranks} ranks",
                parts.len()
            )));
        }
        let mut slices: Vec<&[f32]> = check::room("parts", ranks)?;
        for (rank, part) in parts.iter().enumerate() {
            if part.origin() != self.id {
                return Err(BackendError::invalid(format!(
                    "part {rank} belongs to another backend; expected a tensor of this one, upload it with upload_rank"
                )));
            }
            let values = check::f32_values(&format!("part {rank}"), part)?;
            let shape = &part.desc().shape;
            if shape.len() != 1 {
                return Err(BackendError::invalid(format!("part {rank} has shape {shape:?}; expected [n]")));
            }
            if let Some(first) = slices.first()
                && first.len() != values.len()
            {
                return Err(BackendError::invalid(format!(
                    "part {rank} has shape {shape:?} and part 0 has [{}]; expected equal shapes",
                    first.len()
                )));
            }
            slices.push(values);
        }
        let length = slices.first().map_or(0, |part| part.len());
        Ok((slices, length))
    }

    /// As [`CpuRef::parts`], with the length of one of the equal shards of a part.
    fn sharded_parts<'a>(&self, parts: &[&'a RefTensor]) -> Result<(Vec<&'a [f32]>, usize)> {
        let (slices, length) = self.parts(parts)?;
        if !length.is_multiple_of(slices.len()) {
            return Err(BackendError::invalid(format!(
                "parts of shape [{length}] over {} ranks; expected a length that the ranks divide",
                slices.len()
            )));
        }
        let shard = length / slices.len();
        Ok((slices, shard))
    }

    fn vector(&self, values: Vec<f32>) -> RefTensor {
        RefTensor::from_f32([values.len()], values, self.id)
    }
}

/// `((part0 + part1) + part2) + ...`, elementwise; the parts have equal lengths.
fn sum(parts: &[&[f32]]) -> Result<Vec<f32>> {
    let mut total = concatenation(parts.iter().take(1).copied())?;
    for part in parts.iter().skip(1) {
        add::add_row(&mut total, part);
    }
    Ok(total)
}

fn concatenation<'a>(parts: impl Iterator<Item = &'a [f32]> + Clone) -> Result<Vec<f32>> {
    let mut all = check::room("collective result", parts.clone().map(<[f32]>::len).sum())?;
    parts.for_each(|part| all.extend_from_slice(part));
    Ok(all)
}

impl Collectives for CpuRef {
    type Tensor = RefTensor;

    fn init_ranks(&mut self, ranks: usize) -> Result<()> {
        if ranks == 0 {
            return Err(BackendError::invalid("0 ranks; expected at least 1").in_op(Op::InitRanks));
        }
        self.ranks = Some(ranks);
        Ok(())
    }

    fn upload_rank(&mut self, rank: usize, tensor: &HostTensor) -> Result<RefTensor> {
        let ranks = self.ranks.unwrap_or(0);
        let refused = if rank >= ranks {
            Some(format!("rank {rank} of {ranks}; expected a rank below the number given to init_ranks"))
        } else if tensor.dtype() != DType::F32 {
            Some(format!("{} tensor of shape {:?} for a rank; expected f32", tensor.dtype(), tensor.shape()))
        } else {
            None
        };
        match refused {
            Some(message) => Err(BackendError::invalid(message)),
            None => upload::upload(tensor, DType::F32, self.id),
        }
        .map_err(|e| e.in_op(Op::UploadRank))
    }

    fn all_reduce_sum(&mut self, parts: &[&RefTensor]) -> Result<Vec<RefTensor>> {
        let reduce = || {
            let (parts, _) = self.parts(parts)?;
            Ok(vec![self.vector(sum(&parts)?); parts.len()])
        };
        reduce().map_err(|e: BackendError| e.in_op(Op::AllReduceSum))
    }

    fn all_gather(&mut self, parts: &[&RefTensor]) -> Result<Vec<RefTensor>> {
        let gather = || {
            let (parts, _) = self.parts(parts)?;
            Ok(vec![self.vector(concatenation(parts.iter().copied())?); parts.len()])
        };
        gather().map_err(|e: BackendError| e.in_op(Op::AllGather))
    }

    fn reduce_scatter(&mut self, parts: &[&RefTensor]) -> Result<Vec<RefTensor>> {
        let scatter = || -> Result<Vec<RefTensor>> {
            let (parts, shard) = self.sharded_parts(parts)?;
            sum(&parts)?
                .chunks_exact(shard)
                .map(|s| Ok(self.vector(concatenation([s].into_iter())?)))
                .collect()
        };
        scatter().map_err(|e| e.in_op(Op::ReduceScatter))
    }

    fn all_to_all(&mut self, parts: &[&RefTensor]) -> Result<Vec<RefTensor>> {
        let exchange = || -> Result<Vec<RefTensor>> {
            let (parts, shard) = self.sharded_parts(parts)?;
            let for_rank = |rank: usize| {
                let shards = parts.iter().map(|part| &part[rank * shard..(rank + 1) * shard]);
                Ok(self.vector(concatenation(shards)?))
            };
            (0..parts.len()).map(for_rank).collect()
        };
        exchange().map_err(|e| e.in_op(Op::AllToAll))
    }
}
