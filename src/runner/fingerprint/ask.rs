//! Probes as calls of the contract, and their results as counts.

use modelbench_contract::{
    AttentionSpec, Backend, BackendError, DType, HostTensor, KvConfig, NumericProfile, Op,
};
use modelbench_evidence::tree::Product;

use super::ProbeError;
use super::scale::{Room, Scale};
use crate::inputs::Stream;

/// Rows of every call, and columns of every call of attention. Kernels are chosen by the number of rows, and those of
/// different kernels may differ in order; so all calls have the same shape. Usual tiles of 4 to 96 rows fit it.
pub(super) const ROWS: usize = 192;
/// Elements of an attention head.
const HEAD_DIM: usize = 64;
/// Elements of a query that are not zero.
const QUERY: usize = 4;

/// Asks for one product of `n` terms.
pub(super) struct Asker<'a> {
    product: Product,
    n: usize,
    profile: &'a NumericProfile,
    stream: Stream,
    /// Random numbers used so far.
    drawn: u64,
}

/// The values of some probes, `[probes, n]`.
struct Rows {
    /// Place of each row's pair in the question.
    pair: Vec<usize>,
    /// Exponent of a row's ones.
    units: Vec<i32>,
    values: Vec<f32>,
    /// Exponents of the other operand.
    other: Vec<i32>,
}

fn power(e: i32) -> f32 {
    libm::ldexpf(1.0, e)
}

impl<'a> Asker<'a> {
    pub(super) fn new(product: Product, n: usize, profile: &'a NumericProfile, seed: u64) -> Asker<'a> {
        let stream = Stream::new(seed, &format!("fingerprint/{}/k{n}", product.as_str()), "probes");
        Asker { product, n, profile, stream, drawn: 0 }
    }

    fn draw(&mut self, count: usize) -> u64 {
        let first = self.drawn;
        self.drawn += count as u64;
        first
    }

    /// How many terms are added after each pair has met.
    ///
    /// # Errors
    /// [`ProbeError`] if the backend refuses, or a result is no count.
    pub(super) fn counts<B: Backend>(
        &mut self,
        backend: &mut B,
        pairs: &[(usize, usize)],
    ) -> Result<Vec<usize>, ProbeError> {
        let room = Room::of(self.product, self.n, self.profile)?;
        let rows = self.rows(&room, pairs);
        let results = match self.product {
            Product::Matmul => self.matmul(backend, &rows, Op::Matmul)?,
            Product::BatchedMatmul => self.matmul(backend, &rows, Op::BatchedMatmul)?,
            Product::MatmulOneRow => self.one_by_one(backend, &rows)?,
            Product::AttentionSum => self.attention(backend, &rows)?,
        };
        let mut counts: Vec<Option<usize>> = vec![None; pairs.len()];
        for ((&at, &unit), value) in rows.pair.iter().zip(&rows.units).zip(results) {
            let (i, j) = pairs[at];
            let count = self.count((i, j), f64::from(value) / libm::ldexp(1.0, unit))?;
            match counts[at].replace(count) {
                Some(before) if before != count => {
                    let expected = format!("{before}, as in another row of the same probe");
                    return Err(ProbeError::NoTree { i, j, n: self.n, count, expected });
                }
                _ => {}
            }
        }
        // Every pair has a row at least.
        Ok(counts.into_iter().flatten().collect())
    }

    /// The rows of the pairs in random order. What is needed to fill up the last call repeats the first pairs
    /// with other scales.
    fn rows(&mut self, room: &Room, pairs: &[(usize, usize)]) -> Rows {
        let wanted = match self.product {
            Product::MatmulOneRow => pairs.len(),
            _ => pairs.len().next_multiple_of(ROWS),
        };
        let spread = room.spread;
        let first = self.draw(self.n);
        let stream = self.stream;
        let shift = |k: usize| stream.below(first + k as u64, 2 * spread as u64 + 1) as i32 - spread;
        let other: Vec<i32> = match self.product {
            // The weights of attention are all equal.
            Product::AttentionSum => vec![0; self.n],
            _ => (0..self.n).map(shift).collect(),
        };
        let first = self.draw(wanted);
        let order = stream.order(first, wanted);
        let pair: Vec<usize> = order.into_iter().map(|row| row % pairs.len()).collect();
        let first = self.draw(wanted * 2);
        let (mut units, mut values) = (Vec::with_capacity(wanted), Vec::with_capacity(wanted * self.n));
        for (row, &at) in pair.iter().enumerate() {
            let Scale { unit, mask } = room.draw(&stream, first + row as u64);
            let (i, j) = pairs[at];
            units.push(unit);
            values.extend((0..self.n).map(|k| match k {
                _ if k == i => power(mask - other[k]),
                _ if k == j => -power(mask - other[k]),
                _ => power(unit - other[k]),
            }));
        }
        Rows { pair, units, values, other }
    }

    /// The whole number that a result stands for.
    ///
    /// Sums of powers of two are exact. Attention divides by a sum of `n` equal terms before or after its own sum, in at
    /// most `2n + 4` roundings of the accumulator and two of the operands, whose relative errors add up to
    /// `t / (1 - t)`.
    fn count(&self, (i, j): (usize, usize), units: f64) -> Result<usize, ProbeError> {
        let n = self.n;
        let most = n.saturating_sub(2);
        let no_count = |value| ProbeError::NoCount { i, j, n, value, most };
        if self.product != Product::AttentionSum {
            let whole = (0..=most).find(|&count| count as f64 == units);
            return whole.ok_or_else(|| no_count(units));
        }
        let value = units * n as f64;
        let (sum, operand) = (self.profile.accumulator.unit_roundoff(), self.profile.operand.unit_roundoff());
        let steps = (2 * n + 4) as f64 * sum + 2.0 * operand;
        let relative = steps / (1.0 - steps);
        let near = |&count: &usize| (value - count as f64).abs() <= count as f64 * relative;
        let fitting: Vec<usize> = (0..=most).filter(near).collect();
        match fitting.as_slice() {
            [count] if relative.is_sign_positive() => Ok(*count),
            [] if relative.is_sign_positive() => Err(no_count(value)),
            _ => Err(ProbeError::NoRoom(format!(
                "with {} sums and {} operands the mean of {n} terms does not tell how many of them there are",
                self.profile.accumulator.as_str(),
                self.profile.operand.as_str()
            ))),
        }
    }

    /// Many probes in one call: rows of the weight, or of the activations.
    fn matmul<B: Backend>(&self, backend: &mut B, rows: &Rows, op: Op) -> Result<Vec<f32>, BackendError> {
        let n = self.n;
        let batched = op == Op::BatchedMatmul;
        let other: Vec<f32> = rows.other.iter().map(|&e| power(e)).collect();
        let shape = if batched { vec![1, n] } else { vec![n] };
        let other = HostTensor::from_f32(&shape, &other)?;
        let mut results = Vec::with_capacity(rows.units.len());
        for part in rows.values.chunks(ROWS * n) {
            let probes = HostTensor::from_f32(&[part.len() / n, n], part)?;
            results.extend(product(backend, &probes, &other, batched)?);
        }
        Ok(results)
    }

    /// A call for each probe. All are sent before the first is read.
    fn one_by_one<B: Backend>(&self, backend: &mut B, rows: &Rows) -> Result<Vec<f32>, BackendError> {
        let n = self.n;
        let other: Vec<f32> = rows.other.iter().map(|&e| power(e)).collect();
        let other = HostTensor::from_f32(&[n], &other)?;
        with_tensors(backend, |backend, held| {
            held.push(backend.upload(&other, DType::F32)?);
            for row in rows.values.chunks_exact(n) {
                let weight = HostTensor::from_f32(&[1, n], row)?;
                held.push(backend.upload(&weight, DType::F32)?);
                let result = backend.matmul(&held[held.len() - 1], &held[0])?;
                held.push(result);
            }
            let results = held.iter().skip(2).step_by(2);
            let values = results.map(|result| backend.read(result)).collect::<Result<Vec<_>, _>>()?;
            Ok(values.concat())
        })
    }

    /// Every column of the values is a probe, and every position has the same score, so that all weights are equal.
    fn attention<B: Backend>(&self, backend: &mut B, rows: &Rows) -> Result<Vec<f32>, BackendError> {
        let mut results = Vec::with_capacity(rows.units.len());
        for part in rows.values.chunks(ROWS * self.n) {
            results.extend(self.heads(backend, part)?);
        }
        Ok(results)
    }

    fn heads<B: Backend>(&self, backend: &mut B, probes: &[f32]) -> Result<Vec<f32>, BackendError> {
        let n = self.n;
        let width = probes.len() / n;
        let sign = |i: usize| if self.stream.bits(i as u64) & 1 == 0 { 1.0f32 } else { -1.0 };
        // Scores of a few ones: exact in every arithmetic, and far from where an exponential overflows.
        let query: Vec<f32> = (0..width).map(|d| if d % HEAD_DIM < QUERY { sign(d) } else { 0.0 }).collect();
        let key: Vec<f32> = (0..width).map(|d| sign(width + d)).collect();
        let values: Vec<f32> = (0..n).flat_map(|k| (0..width).map(move |d| probes[d * n + k])).collect();
        let tensors = [
            HostTensor::from_f32(&[width], &query)?,
            HostTensor::from_f32(&[n, width], &key.repeat(n))?,
            HostTensor::from_f32(&[n, width], &values)?,
        ];
        let config = KvConfig {
            layers: 1,
            kv_heads: width / HEAD_DIM,
            head_dim: HEAD_DIM,
            capacity: n,
            theta: 10_000.0,
        };
        let mut kv = store(backend, |store| store.new_kv(&config))?;
        let result = with_tensors(backend, |backend, held| {
            for tensor in &tensors {
                held.push(backend.upload(tensor, DType::F32)?);
            }
            store(backend, |store| store.append(&mut kv, 0, &held[1], &held[1], &held[2], 0))?;
            held.push(backend.attention(&held[0], &kv, 0, AttentionSpec::causal(1, HEAD_DIM))?);
            backend.read(&held[3])
        });
        let freed = store(backend, |store| store.free_kv(kv));
        result.and_then(|values| freed.map(|()| values))
    }
}

/// One call of `matmul` or `batched_matmul`.
pub(super) fn product<B: Backend>(
    backend: &mut B,
    probes: &HostTensor,
    other: &HostTensor,
    batched: bool,
) -> Result<Vec<f32>, BackendError> {
    with_tensors(backend, |backend, held| {
        for tensor in [probes, other] {
            held.push(backend.upload(tensor, DType::F32)?);
        }
        let result = match batched {
            true => backend.batched_matmul(&held[1], &held[0]),
            false => backend.matmul(&held[0], &held[1]),
        };
        held.push(result?);
        backend.read(&held[2])
    })
}

/// Calls the KV store of a backend.
fn store<B: Backend, T>(
    backend: &mut B,
    call: impl FnOnce(
        &mut dyn modelbench_contract::KvStore<Tensor = B::Tensor, Kv = B::Kv>,
    ) -> Result<T, BackendError>,
) -> Result<T, BackendError> {
    backend.kv_store().map_or_else(|| Err(BackendError::unimplemented(Op::NewKv)), call)
}

/// Runs calls that leave their tensors in a list, and frees all of them whatever happened.
fn with_tensors<B: Backend, T>(
    backend: &mut B,
    calls: impl FnOnce(&mut B, &mut Vec<B::Tensor>) -> Result<T, BackendError>,
) -> Result<T, BackendError> {
    let mut held = Vec::new();
    let result = calls(backend, &mut held);
    if result.is_err() {
        // Other calls may have failed with it; their errors must not be the answer to what is asked next.
        let _ = backend.sync();
    }
    let mut freed = Ok(());
    for tensor in held {
        freed = freed.and(backend.free(tensor));
    }
    // The first error is the one that explains the others.
    result.and_then(|value| freed.map(|()| value))
}
