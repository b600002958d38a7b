//! Rotary position embedding, non-interleaved.

use std::rc::Rc;

use modelbench_contract::{BackendError, RopeSpec};

use crate::gpu::{Gpu, Memory, Result};
use crate::tensor::word;
use crate::vk::Kernel;

/// Tables that are kept: queries and keys of every layer share one, and so do the layers of an eviction.
const KEPT: usize = 4;
/// Lanes of a group.
const LANES: u32 = 64;

/// Which rows a table turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    theta: u32,
    half: usize,
    pos: usize,
    rows: usize,
}

/// Cosines and sines on the device, the newest last.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    kept: Vec<(Key, Rc<Memory>)>,
}

/// Rows of a rotation: `rows` rows of `heads` heads, from row `from` of one memory to row `to` of another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rotation {
    pub(crate) rows: usize,
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// Position of the first row, heads and base.
    pub(crate) spec: RopeSpec,
}

/// Checks the base and the last position of `rows` rows from `pos`.
///
/// # Errors
/// `InvalidArgument` naming the attribute.
pub(crate) fn check(rows: usize, pos: usize, theta: f32) -> Result<()> {
    if !(theta.is_finite() && theta > 0.0) {
        return Err(
            BackendError::invalid(format!("theta is {theta}; expected a finite number above 0")).into()
        );
    }
    if pos.checked_add(rows).is_none() {
        let text = format!("pos {pos} with {rows} rows; expected a last position that fits an index");
        return Err(BackendError::invalid(text).into());
    }
    Ok(())
}

impl Turns {
    /// Rotates rows of `x` into `y`. The attributes have passed [`check`].
    pub(crate) fn rotate(&mut self, gpu: &mut Gpu, x: &Memory, y: &Memory, what: Rotation) -> Result<()> {
        let Rotation { rows, from, to, spec } = what;
        let half = spec.head_dim / 2;
        let table = self.table(gpu, rows, &spec)?;
        let push = [
            word("rows", rows)?,
            word("heads", spec.n_heads)?,
            word("half of a head", half)?,
            word("the first row", from)?,
            word("the first row", to)?,
        ];
        let pairs = (rows as u64).saturating_mul(spec.n_heads as u64).saturating_mul(half as u64);
        gpu.run(Kernel::Rope, LANES, &[x, &table, y], &push, pairs.div_ceil(u64::from(LANES)))
    }

    /// The table for a rotation of so many rows; it is kept, so that a rotation which follows at once needs no memory.
    pub(crate) fn table(&mut self, gpu: &mut Gpu, rows: usize, spec: &RopeSpec) -> Result<Rc<Memory>> {
        let key = Key { theta: spec.theta.to_bits(), half: spec.head_dim / 2, pos: spec.pos, rows };
        let table = match self.kept.iter().position(|(known, _)| *known == key) {
            Some(at) => self.kept.remove(at).1,
            None => Rc::new(table(gpu, key)?),
        };
        if self.kept.len() >= KEPT {
            self.kept.remove(0);
        }
        self.kept.push((key, Rc::clone(&table)));
        Ok(table)
    }
}

/// Cosines and sines of every row and pair. Angles need float64: at position 100,000 an f32 angle is off by thousands of
/// units of the result.
fn table(gpu: &mut Gpu, key: Key) -> Result<Memory> {
    let count = key.rows.saturating_mul(key.half);
    // Ask the device for the room first: it may refuse what the host could not hold either.
    let memory = gpu.floats("a table of angles", count.saturating_mul(2))?;
    let frequency: Vec<f64> = (0..key.half)
        .map(|j| f64::from(f32::from_bits(key.theta)).powf(-((2 * j) as f64) / (2 * key.half) as f64))
        .collect();
    let angle =
        |i: usize| (key.pos + i / key.half) as f64 * frequency.get(i % key.half).copied().unwrap_or(0.0);
    let mut bytes = Vec::with_capacity(count * 8);
    (0..count).for_each(|i| bytes.extend((angle(i).cos() as f32).to_le_bytes()));
    (0..count).for_each(|i| bytes.extend((angle(i).sin() as f32).to_le_bytes()));
    gpu.fill(&memory, &bytes)?;
    Ok(memory)
}
