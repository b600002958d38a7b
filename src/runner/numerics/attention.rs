//! Probes of `attention`.
//!
//! Scores are chosen such that one position, or two with equal shares, take the whole weight: the others lie so far below
//! that `exp` gives zero. Then the result is a value, or the mean of two, and no exponential blurs it.

use modelbench_contract::{AttentionSpec, KvConfig};

use super::super::CheckError;
use super::super::ops::{Call, OpPlan};
use super::probe::{Aspect, Kind, Probe, carrying, power};
use crate::inputs::{Operand, Stream};
use crate::suite::Case;

/// Attention of one case.
pub(super) struct Heads<'a> {
    pub(super) case: &'a Case,
    pub(super) seed: u64,
    pub(super) kv: usize,
    pub(super) kv_heads: usize,
    pub(super) group: usize,
    pub(super) head_dim: usize,
    /// 0 for one vector of queries.
    pub(super) rows: usize,
}

/// What a head's query and its positions hold: the first two elements of query and key (the others are zero), and the
/// value at each place of the head.
struct Head<'f> {
    query: &'f dyn Fn(u64) -> [f32; 2],
    key: &'f dyn Fn(usize, u64) -> [f32; 2],
    value: &'f dyn Fn(usize, u64) -> f32,
    scale: f32,
}

impl Heads<'_> {
    /// The probes of an aspect.
    ///
    /// # Errors
    /// A suite error if the sizes leave no two positions that every row sees.
    pub(super) fn probes(&self, aspect: Aspect) -> Result<Vec<Probe>, CheckError> {
        if self.kv_heads == 0 || self.group == 0 || self.head_dim < 2 || self.kv <= self.rows.max(1) {
            let text = format!(
                "kv{} rows{}: probes need two positions that every row sees, and heads of two elements",
                self.kv, self.rows
            );
            return Err(self.case.invalid(text).into());
        }
        match aspect {
            Aspect::Operand => self.operand(),
            Aspect::Accumulator => self.accumulator(),
            Aspect::Flush => self.flush(),
        }
    }

    /// Two different positions that every row sees.
    fn two(&self) -> (usize, usize) {
        let seen = (self.kv + 1 - self.rows.max(1)) as u64;
        let place = Stream::new(self.seed, &self.case.id, "positions");
        let first = place.below(0, seen);
        let second = (first + 1 + place.below(1, seen - 1)) % seen;
        (first as usize, second as usize)
    }

    /// The value of the only position with weight; scores whose difference hangs on the low bits of a query or a key; and
    /// weights with all bits, each seen alone.
    fn operand(&self) -> Result<Vec<Probe>, CheckError> {
        let (a, b) = self.two();
        let stream = Stream::new(self.seed, &self.case.id, "carrying");
        let value = |j: usize, d: u64| carrying(&stream, j as u64 * self.width() as u64 + d);
        let mut probes = vec![self.one(a, &value, Kind::Plain)?];
        for beyond in [1.5 * power(17), 1.5 * power(-30)] {
            probes.push(self.one(a, &|_, _| beyond, Kind::BeyondF16)?);
        }
        // 64 to 128, and the same cut to 8 bits: the scores differ by what bf16 drops, 0.2 to 0.3, and by 0.02 less or
        // more in tf32.
        let wide = |i: u64| carrying(&stream, i).abs() * 64.0;
        let short = |i: u64| f32::from_bits(wide(i).to_bits() & 0xffff_0000);
        let sign = |j: usize, _: u64| {
            if j == a {
                1.0
            } else if j == b {
                -1.0
            } else {
                0.0
            }
        };
        let low = [-512.0, -512.0];
        let keys = |j: usize, _: u64| {
            if j == a {
                [1.0, 0.0]
            } else if j == b {
                [0.0, 1.0]
            } else {
                [-8.0, -8.0]
            }
        };
        let queries = Head { query: &|i| [wide(i), short(i)], key: &keys, value: &sign, scale: 1.0 };
        probes.push(self.probe(&queries, Kind::Amplified)?);
        let keys = |j: usize, h: u64| {
            if j == a {
                [wide(h), 0.0]
            } else if j == b {
                [0.0, short(h)]
            } else {
                low
            }
        };
        probes.push(self.probe(
            &Head { query: &|_| [1.0, 1.0], key: &keys, value: &sign, scale: 1.0 },
            Kind::Amplified,
        )?);
        // Element d of the result is the weight of position d (modulo the number of positions).
        let keys = |j: usize, _: u64| [(j % 5) as f32 * 0.3125, 0.0];
        let own = |j: usize, d: u64| f32::from(u8::from(d as usize % self.head_dim % self.kv == j));
        probes.push(
            self.probe(&Head { query: &|_| [1.0, 0.0], key: &keys, value: &own, scale: 1.0 }, Kind::Plain)?,
        );
        Ok(probes)
    }

    /// Two scores of `2^p + 1` and `2^p`: with a scale of 32 the first takes the whole weight, unless the sum lost its 1,
    /// which makes them equal. Two equal scores whose values add up to `2^p + 1`. Scores and sums beyond f16's range.
    fn accumulator(&self) -> Result<Vec<Probe>, CheckError> {
        let (a, b) = self.two();
        let sign = |j: usize, _: u64| {
            if j == a {
                1.0
            } else if j == b {
                -1.0
            } else {
                0.0
            }
        };
        let mut probes = Vec::new();
        for root in [16.0, 64.0] {
            let keys = |j: usize, _: u64| {
                if j == a {
                    [root, 1.0]
                } else if j == b {
                    [root, 0.0]
                } else {
                    [-root, 0.0]
                }
            };
            let head = Head { query: &|_| [root, 1.0], key: &keys, value: &sign, scale: 32.0 };
            probes.push(self.probe(&head, Kind::Amplified)?);
        }
        let keys = |j: usize, _: u64| if j == a { [256.0, 0.0] } else { [-256.0, 0.0] };
        let head = Head { query: &|_| [256.0, 0.0], key: &keys, value: &sign, scale: power(-8) };
        probes.push(self.probe(&head, Kind::BeyondF16)?);
        let sums = |j: usize, d: u64| match (j == a, j == b) {
            (true, _) => [512.0, 8192.0][d as usize % 2],
            (_, true) => 2.0,
            _ => 0.0,
        };
        probes.push(self.pair(&sums, Kind::Plain)?);
        let large = |j: usize, _: u64| if j == a || j == b { 49_152.0 } else { 0.0 };
        probes.push(self.pair(&large, Kind::BeyondF16)?);
        Ok(probes)
    }

    /// A denormal value, a denormal mean of normal values, and a small normal value.
    fn flush(&self) -> Result<Vec<Probe>, CheckError> {
        let (a, _) = self.two();
        let least = |j: usize, _: u64| if j == a { 1.5 * power(-126) } else { 0.0 };
        Ok(vec![
            self.one(a, &|_, _| 1.5 * power(-120), Kind::Normal)?,
            self.one(a, &|_, _| 1.5 * power(-130), Kind::Plain)?,
            self.pair(&least, Kind::Plain)?,
        ])
    }

    /// Position `a` alone has weight.
    fn one(&self, a: usize, value: &dyn Fn(usize, u64) -> f32, kind: Kind) -> Result<Probe, CheckError> {
        let key = |j: usize, _: u64| if j == a { [16.0, 0.0] } else { [-16.0, 0.0] };
        self.probe(&Head { query: &|_| [16.0, 0.0], key: &key, value, scale: 1.0 }, kind)
    }

    /// The two positions have one half each.
    fn pair(&self, value: &dyn Fn(usize, u64) -> f32, kind: Kind) -> Result<Probe, CheckError> {
        let (a, b) = self.two();
        let key = |j: usize, _: u64| if j == a || j == b { [16.0, 0.0] } else { [-16.0, 0.0] };
        self.probe(&Head { query: &|_| [16.0, 0.0], key: &key, value, scale: 1.0 }, kind)
    }

    fn width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    fn probe(&self, head: &Head<'_>, kind: Kind) -> Result<Probe, CheckError> {
        let dim = self.head_dim;
        // Element i of a row of heads, of which the first two of each head count.
        let spread = |i: usize, pair: &dyn Fn(u64) -> [f32; 2]| {
            pair((i / dim) as u64).get(i % dim).copied().unwrap_or(0.0)
        };
        let queries = self.width() * self.group;
        let q = (0..self.rows.max(1) * queries).map(|i| spread(i, head.query)).collect();
        let keys: Vec<f32> = (0..self.kv)
            .flat_map(|j| (0..self.width()).map(move |i| spread(i, &|h| (head.key)(j, h))))
            .collect();
        let values =
            (0..self.kv).flat_map(|j| (0..self.width()).map(move |d| (head.value)(j, d as u64))).collect();
        let q_shape = if self.rows == 0 { vec![queries] } else { vec![self.rows, queries] };
        let row = [self.kv, self.width()];
        let kv = KvConfig {
            layers: 1,
            kv_heads: self.kv_heads,
            head_dim: dim,
            capacity: self.kv,
            theta: 10_000.0,
        };
        let spec = AttentionSpec { group: self.group, scale: head.scale, causal: true };
        let operands = vec![
            Operand::from_f32("q", &q_shape, q)?,
            Operand::from_f32("k_raw", &row, keys.clone())?,
            Operand::from_f32("k_rope", &row, keys)?,
            Operand::from_f32("v", &row, values)?,
        ];
        Ok(Probe::new(OpPlan { call: Call::Attention { kv, spec }, operands }, kind))
    }
}
