//! The operands of an attention case.

use modelbench_contract::{AttentionSpec, DType, KvConfig};

use super::super::CheckError;
use super::plan::{Call, OpPlan};
use crate::inputs::{Operand, Stream};
use crate::suite::{Case, Recipe};

/// Scores that the axis `plant` asks for, on data that selects.
pub const PLANTS: [&str; 3] = ["one-huge-score", "scores-near-the-limit", "scores-below-a-mask"];

/// Query component against a key component of 1: the scores differ by 256 even for heads of 4096 elements, and
/// exp(-256) is 0 in f32 and too little to round anything in f64.
const GAP: f32 = 16_384.0;

/// The plan of a case: `q, k_raw, k_rope, v` over a store of one layer.
///
/// # Errors
/// As [`OpPlan::new`].
pub fn plan(case: &Case, seed: u64) -> Result<OpPlan, CheckError> {
    let (positions, kv_heads) = (case.size("kv")?, case.size("kv_heads")?);
    let (group, head_dim, rows) = (case.size("group")?, case.size("head_dim")?, case.size_or("rows", 0)?);
    let kv = KvConfig { layers: 1, kv_heads, head_dim, capacity: positions, theta: 10_000.0 };
    let spec = AttentionSpec::causal(group, head_dim);
    let width = kv_heads * group * head_dim;
    let recipe = case.group.input;
    let make = |name: &'static str, shape: &[usize], recipe| {
        Operand::make(name, shape, DType::F32, recipe, &Stream::new(seed, &case.id, name))
    };
    let q_shape = if rows == 0 { vec![width] } else { vec![rows, width] };
    let row = [positions, kv.row_len()];
    let call = Call::Attention { kv, spec };
    if let Recipe::Select { max, .. } = recipe {
        let odd = Recipe::Odd { max, exponent: 0 };
        let v = make("v", &row, odd)?;
        let k_raw = make("k_raw", &row, odd)?;
        let selection = Selection::new(case, &kv, rows.max(1), seed)?;
        let k_rope = selection.keys(make("k_rope", &row, odd)?)?;
        let q = selection.queries(&q_shape, kv_heads * group, head_dim)?;
        return Ok(OpPlan { call, operands: vec![q, k_raw, k_rope, v] });
    }
    // Zero queries give equal scores, so that with a power of two of positions every weight is exact.
    let queries =
        if matches!(recipe, Recipe::Integers { .. } | Recipe::Odd { .. }) { Recipe::None } else { recipe };
    Ok(OpPlan {
        call,
        operands: vec![
            make("q", &q_shape, queries)?,
            make("k_raw", &row, recipe)?,
            make("k_rope", &row, recipe)?,
            make("v", &row, recipe)?,
        ],
    })
}

/// Queries and keys whose softmax is exactly 1 at one position and 0 elsewhere.
///
/// The first two components of a head carry the choice: query head `h` looks at component `h mod 2`, in which the key
/// of one position holds 1 and all others 0. With several query rows the last position, which only the last row may
/// see, holds 2: whoever ignores the mask picks it.
struct Selection {
    kv: KvConfig,
    /// Position picked, by KV head and component.
    picked: Vec<[usize; 2]>,
    /// Positions that hold a larger score, and are seen by the last row alone.
    trap: Option<usize>,
    query: f32,
    /// Key component of a picked position, of every other one, and of the trap.
    levels: [f32; 3],
}

impl Selection {
    fn new(case: &Case, kv: &KvConfig, rows: usize, seed: u64) -> Result<Selection, CheckError> {
        let stream = Stream::new(seed, &case.id, "picked");
        let visible = kv.capacity.saturating_sub(rows - 1).max(1) as u64;
        let picked =
            (0..kv.kv_heads as u64).map(|head| [0, 1].map(|c| stream.below(2 * head + c, visible) as usize));
        let plant = if case.params().contains_key("plant") { case.text("plant")? } else { "" };
        let (query, levels) = match plant {
            "" => (GAP, [1.0, 0.0, 2.0]),
            // 2^64 * 2^40: other scores are small, and their difference from the largest is all there is.
            "one-huge-score" => (2f32.powi(64), [2f32.powi(40), 0.0, 2f32.powi(41)]),
            // Products of ±2^125, and of 2^126 in the trap: finite, and so are their scaled differences.
            "scores-near-the-limit" => (2f32.powi(63), [2f32.powi(62), -(2f32.powi(62)), 2f32.powi(63)]),
            // Below -1e30, where an additive mask of -1e30 no longer hides: a hidden score of 0 would win.
            "scores-below-a-mask" => (2f32.powi(63), [-(2f32.powi(43)), -(2f32.powi(45)), 0.0]),
            other => {
                return Err(case
                    .invalid(format!("plant = {other:?}: expected one of {}", PLANTS.join(", ")))
                    .into());
            }
        };
        Ok(Selection {
            kv: *kv,
            picked: picked.collect(),
            trap: (rows > 1 && kv.capacity > 1).then(|| kv.capacity - 1),
            query,
            levels,
        })
    }

    fn keys(&self, keys: Operand) -> Result<Operand, CheckError> {
        let mut values = keys.values;
        let [hit, miss, trap] = self.levels;
        for (position, row) in values.chunks_mut(self.kv.row_len()).enumerate() {
            for (head, key) in row.chunks_mut(self.kv.head_dim).enumerate() {
                for (c, value) in key.iter_mut().take(2).enumerate() {
                    *value = match self.trap {
                        Some(at) if at == position => trap,
                        _ if self.picked[head][c] == position => hit,
                        _ => miss,
                    };
                }
            }
        }
        Ok(Operand::from_f32("k_rope", &[self.kv.capacity, self.kv.row_len()], values)?)
    }

    fn queries(&self, shape: &[usize], heads: usize, head_dim: usize) -> Result<Operand, CheckError> {
        let mut values = vec![0.0; shape.iter().product()];
        for (i, head) in values.chunks_mut(head_dim).enumerate() {
            head[i % heads % 2] = self.query;
        }
        Ok(Operand::from_f32("q", shape, values)?)
    }
}
