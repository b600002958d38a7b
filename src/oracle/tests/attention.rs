//! Bounds of attention.

use half::f16;
use modelbench_contract::{AttentionSpec, NumericProfile, Precision};
use proptest::prelude::*;

use super::data::Data;
use super::naive::{self, ORDERS, Order};
use super::worst;
use crate::oracle::{Allowance, AttentionInput, Bounded, attention};

const F32: NumericProfile = NumericProfile::F32;

struct Case {
    q: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
    dim: usize,
    kv_heads: usize,
    group: usize,
}

impl Case {
    fn new(
        seed: u64,
        rows: usize,
        len: usize,
        dim: usize,
        kv_heads: usize,
        group: usize,
        scale: f32,
    ) -> Case {
        let mut data = Data::new(seed);
        Case {
            q: data.reals(rows * kv_heads * group * dim, scale),
            keys: data.reals(len * kv_heads * dim, scale),
            values: data.reals(len * kv_heads * dim, 1.0),
            dim,
            kv_heads,
            group,
        }
    }

    fn spec(&self, causal: bool) -> AttentionSpec {
        AttentionSpec { group: self.group, scale: 1.0 / (self.dim as f32).sqrt(), causal }
    }

    fn truth(&self, causal: bool, profile: &NumericProfile) -> Bounded {
        let input = AttentionInput {
            q: &self.q,
            keys: &self.keys,
            values: &self.values,
            kv_heads: self.kv_heads,
            head_dim: self.dim,
        };
        attention(&input, &self.spec(causal), profile, &Allowance::default()).unwrap()
    }

    /// Answers of `head(scores, values)` for each row and head over the positions that it sees, less `hidden` ones.
    fn answer(
        &self,
        causal: bool,
        hidden: usize,
        order: Order,
        head: impl Fn(&[f32], &[f32]) -> Vec<f32>,
    ) -> Vec<f32> {
        let (kv_row, q_row) = (self.kv_heads * self.dim, self.kv_heads * self.group * self.dim);
        let (rows, len) = (self.q.len() / q_row, self.keys.len() / kv_row);
        let mut out = Vec::new();
        for row in 0..rows {
            let seen = if causal { len - rows + 1 + row } else { len } - hidden;
            for h in 0..self.kv_heads * self.group {
                let at = h / self.group * self.dim;
                let pick = |x: &[f32]| -> Vec<f32> {
                    x.chunks(kv_row).take(seen).flat_map(|r| r[at..at + self.dim].to_vec()).collect()
                };
                let q = &self.q[row * q_row + h * self.dim..][..self.dim];
                let scores = naive::scores(q, &pick(&self.keys), self.spec(causal).scale, order);
                out.extend(head(&scores, &pick(&self.values)));
            }
        }
        out
    }

    fn plain(&self, causal: bool, order: Order) -> Vec<f32> {
        self.answer(causal, 0, order, |s, v| naive::plain(s, v, self.dim, order))
    }
}

/// The order in which an online softmax visits positions, by their scores.
type Choose = fn(&[f32]) -> Vec<usize>;

fn in_order(scores: &[f32]) -> Vec<usize> {
    (0..scores.len()).collect()
}

fn rising(scores: &[f32]) -> Vec<usize> {
    let mut order = in_order(scores);
    order.sort_by(|a, b| scores[*a].total_cmp(&scores[*b]));
    order
}

fn falling(scores: &[f32]) -> Vec<usize> {
    let mut order = rising(scores);
    order.reverse();
    order
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn plain_and_online_softmax_hold(
        seed in any::<u64>(), rows in 1usize..4, more in 0usize..60, half in 1usize..20,
        kv_heads in 1usize..3, group in 1usize..3, scale in 1u32..16, causal in any::<bool>(),
    ) {
        let (len, dim) = (rows + more, 2 * half);
        let case = Case::new(seed, rows, len, dim, kv_heads, group, scale as f32);
        let bounded = case.truth(causal, &F32);
        for order in ORDERS {
            let ratio = worst(&bounded, &case.plain(causal, order));
            prop_assert!(ratio <= 1.0, "plain {order:?}: {ratio}");
        }
        // In order, by rising score (every position raises the maximum), and by falling score.
        for choose in [in_order, rising, falling] as [Choose; 3] {
            let got = case.answer(causal, 0, Order::Fused, |s, v| naive::online(s, v, dim, &choose(s)));
            let ratio = worst(&bounded, &got);
            prop_assert!(ratio <= 1.0, "online: {ratio}");
        }
    }
}

#[test]
fn a_position_too_few_or_too_many_is_outside() {
    let case = Case::new(3, 3, 24, 32, 2, 2, 1.0);
    let causal = case.truth(true, &F32);
    let right = worst(&causal, &case.plain(true, Order::Sequential));
    assert!((0.01..=1.0).contains(&right), "{right}");
    let short = case.answer(true, 1, Order::Sequential, |s, v| naive::plain(s, v, 32, Order::Sequential));
    assert!(worst(&causal, &short) > 1.0, "without the last position");
    assert!(worst(&causal, &case.plain(false, Order::Sequential)) > 1.0, "without the mask");
    let mut one_off = case.plain(true, Order::Pairwise);
    one_off[40] *= 1.0 + (-6f32).exp2();
    assert!(worst(&causal, &one_off) > 1.0, "one element");
}

#[test]
fn other_heads_are_outside() {
    let case = Case::new(5, 1, 16, 16, 2, 2, 1.0);
    let bounded = case.truth(true, &F32);
    // Heads dealt in turn instead of in groups.
    let mut swapped = case.plain(true, Order::Sequential);
    let other = Case { q: [&case.q[..16], &case.q[32..48], &case.q[16..32], &case.q[48..]].concat(), ..case };
    let dealt = other.plain(true, Order::Sequential);
    swapped[16..32].copy_from_slice(&dealt[32..48]);
    assert!(worst(&bounded, &swapped) > 1.0);
}

#[test]
fn f16_operands_hold_only_where_declared() {
    let case = Case::new(7, 2, 40, 32, 1, 2, 1.0);
    let half = |x: &[f32]| -> Vec<f32> { x.iter().map(|v| f16::from_f32(*v).to_f32()).collect() };
    let rounded = Case {
        q: half(&case.q),
        keys: half(&case.keys),
        values: half(&case.values),
        ..Case::new(7, 2, 40, 32, 1, 2, 1.0)
    };
    let got = rounded.answer(true, 0, Order::Lanes, |s, v| {
        let max = s.iter().fold(f32::NEG_INFINITY, |m, &s| m.max(s));
        let e: Vec<f32> = s.iter().map(|s| naive::exp(s - max)).collect();
        let sum: f32 = e.iter().sum();
        let mix = |d: usize| {
            e.iter().zip(v.chunks(32)).map(|(e, v)| f16::from_f32(*e).to_f32() * v[d]).sum::<f32>()
        };
        (0..32).map(|d| mix(d) / sum).collect()
    });
    let declared = case.truth(true, &NumericProfile { operand: Precision::F16, ..F32 });
    assert!(worst(&declared, &got) <= 1.0);
    assert!(worst(&case.truth(true, &F32), &got) > 1.0);
}

#[test]
fn one_position_gives_its_values() {
    let case = Case::new(1, 1, 1, 8, 1, 1, 1.0);
    let bounded = case.truth(true, &F32);
    assert!(worst(&bounded, &case.values) <= 1.0);
    let short = AttentionInput { q: &case.q, keys: &case.keys, values: &[], kv_heads: 1, head_dim: 8 };
    assert!(attention(&short, &case.spec(true), &F32, &Allowance::default()).is_err());
    let two = [&case.q[..], &case.q[..]].concat();
    let more = AttentionInput { q: &two, keys: &case.keys, values: &case.values, kv_heads: 1, head_dim: 8 };
    let error = attention(&more, &case.spec(true), &F32, &Allowance::default()).unwrap_err().to_string();
    assert!(error.contains("2 causal queries over 1 positions"), "{error}");
}
