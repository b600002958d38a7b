//! Probes of the ops that treat each row alone: sums, `swiglu`, `rms_norm`, `rope`.
//!
//! Each is made such that f32 gives the value that is named, within the oracle's bound for the op.

use modelbench_contract::{Op, RopeSpec};

use super::super::CheckError;
use super::super::ops::{Call, OpPlan};
use super::probe::{Aspect, Kind, Probe, carrying, power};
use crate::inputs::{Operand, Stream};
use crate::suite::Case;

/// A gate so large that `silu(z) = z` in f32 and in anything narrower.
const OPEN_GATE: f32 = 64.0;
/// Terms whose sum needs 9 bits (more than bf16 has), 13 (more than tf32 and f16), 24 (all that f32 has), and one that is
/// beyond f16's range although the terms are not.
const SUMS: [(f32, f32, Kind); 4] = [
    (256.0, 1.0, Kind::Plain),
    (4096.0, 1.0, Kind::Plain),
    (32_768.0, 0.003_906_25, Kind::Plain),
    (49_152.0, 49_152.0, Kind::BeyondF16),
];

/// A row-wise op of one case.
pub(super) struct Rows<'a> {
    pub(super) case: &'a Case,
    pub(super) seed: u64,
    pub(super) op: Op,
    /// 0 for a vector.
    pub(super) rows: usize,
    /// Elements of a row; for `rope` heads times `head_dim`.
    pub(super) n: usize,
    pub(super) heads: usize,
}

impl Rows<'_> {
    /// The probes of an aspect.
    ///
    /// # Errors
    /// A suite error if the op is not row-wise or the shape is too small.
    pub(super) fn probes(&self, aspect: Aspect) -> Result<Vec<Probe>, CheckError> {
        if self.n < 2 || (self.op == Op::RmsNorm && self.n < 8) {
            let text = format!("rows of {}: probes need 2 elements, of rms_norm 8", self.n);
            return Err(self.case.invalid(text).into());
        }
        let made = match aspect {
            Aspect::Operand => self.operand(),
            Aspect::Accumulator => self.accumulator(),
            Aspect::Flush => self.flush(),
        };
        made.into_iter()
            .map(|(first, second, position, kind)| self.probe(first, second, position, kind))
            .collect()
    }

    /// `x + 0`, `64*x` (an open gate), `1*x` (a row of mean square 1, or position 0) give the operand as it was rounded,
    /// times a power of two. Both operands in turn.
    fn operand(&self) -> Vec<Data> {
        let stream = Stream::new(self.seed, &self.case.id, "carrying");
        let (first, second) = (self.count(), self.second());
        let carry = |n: usize, scale: f32| -> Vec<f32> {
            (0..n as u64).map(|i| carrying(&stream, i) * scale).collect()
        };
        let (large, small) = (1.5 * power(17), 1.5 * power(-30));
        let mut data: Vec<Data> = Vec::new();
        match self.op {
            Op::Swiglu => {
                let open = || vec![OPEN_GATE; first];
                // Only gates above 64 are open.
                let gates = carry(first, OPEN_GATE).iter().map(|gate| gate.abs()).collect();
                data.push((open(), carry(second, 1.0), 0, Kind::Plain));
                data.push((gates, vec![1.0; second], 0, Kind::Plain));
                data.extend([large, small].map(|v| (open(), vec![v; second], 0, Kind::BeyondF16)));
            }
            Op::RmsNorm => {
                let ones = || (0..first).map(|i| if i % 3 == 0 { -1.0 } else { 1.0 }).collect::<Vec<f32>>();
                data.push((ones(), carry(second, 1.0), 0, Kind::Plain));
                data.push((carry(first, 1.0), vec![1.0; second], 0, Kind::Plain));
                data.extend([large, small].map(|v| (ones(), vec![v; second], 0, Kind::BeyondF16)));
            }
            Op::Rope => {
                // With one half of each head zero, a result is the other half times a cosine or a sine.
                for (half, position) in [(0, 0), (1, 0), (0, 5), (1, 5)] {
                    data.push((self.half(&carry(first, 1.0), half), Vec::new(), position, Kind::Plain));
                }
                data.extend([large, small].map(|v| (vec![v; first], Vec::new(), 0, Kind::BeyondF16)));
            }
            _ => {
                data.push((carry(first, 1.0), vec![0.0; second], 0, Kind::Plain));
                data.push((vec![0.0; first], carry(second, 1.0), 0, Kind::Plain));
                data.extend([large, small].map(|v| (vec![v; first], vec![0.0; second], 0, Kind::BeyondF16)));
            }
        }
        data
    }

    /// Operands of at most 8 bits, results and intermediate results of more.
    fn accumulator(&self) -> Vec<Data> {
        let (first, second) = (self.count(), self.second());
        match self.op {
            Op::Swiglu => {
                // Gates in steps of 1/8 from -8 to 8: exponentials and quotients have all bits.
                let gates =
                    |skip: usize| (0..first).map(|i| ((i * 37 + skip) % 129) as f32 / 8.0 - 8.0).collect();
                [3, 58].map(|skip| (gates(skip), vec![1.0; second], 0, Kind::Plain)).to_vec()
            }
            Op::RmsNorm => {
                // The mean square of a row [2^(p/2), 1, 0, ...] needs the sum 2^p + 1, the one of [64, 1, 1, ...] a long
                // sum behind a large term.
                let pair = |p: i32| self.each_row(|i| [power(p / 2), 1.0].get(i).copied().unwrap_or(0.0));
                let mut data: Vec<Data> = [8, 12]
                    .map(|p| (pair(p), vec![1.0; second], 0, Kind::Plain))
                    .into_iter()
                    .chain([(pair(16), vec![1.0; second], 0, Kind::BeyondF16)])
                    .collect();
                let long = self.each_row(|i| if i == 0 { 64.0 } else { 1.0 });
                data.push((long, vec![1.0; second], 0, Kind::Amplified));
                data
            }
            Op::Rope => {
                let ones = |step: usize| (0..first).map(|i| [1.0, 3.0, -1.0, 5.0][(i * step) % 4]).collect();
                [(1, 3), (3, 17)]
                    .map(|(step, position)| (ones(step), Vec::new(), position, Kind::Plain))
                    .to_vec()
            }
            _ => SUMS.map(|(a, b, kind)| (vec![a; first], vec![b; second], 0, kind)).to_vec(),
        }
    }

    /// Denormal operands and results, and normal ones beside them.
    fn flush(&self) -> Vec<Data> {
        let (first, second) = (self.count(), self.second());
        let (normal, denormal, least) = (1.5 * power(-120), 1.5 * power(-130), 1.5 * power(-126));
        match self.op {
            Op::Swiglu => vec![
                (vec![OPEN_GATE; first], vec![normal; second], 0, Kind::Normal),
                (vec![OPEN_GATE; first], vec![denormal * power(-6); second], 0, Kind::Plain),
                // silu(2^-100) is 2^-101 but for its rounding.
                (vec![power(-100); first], vec![1.5 * power(-29); second], 0, Kind::Plain),
            ],
            Op::RmsNorm => {
                let ones = || (0..first).map(|i| if i % 3 == 0 { -1.0 } else { 1.0 }).collect::<Vec<f32>>();
                let tail = self.each_row(|i| if i == 0 { 1.0 } else { power(-12) });
                vec![
                    (ones(), vec![normal; second], 0, Kind::Normal),
                    (ones(), vec![denormal; second], 0, Kind::Plain),
                    (tail, vec![least; second], 0, Kind::Plain),
                ]
            }
            Op::Rope => vec![
                // Row p is at position p, and its smallest angle is 1e-4.
                (self.half(&vec![1.5 * power(-100); first], 0), Vec::new(), 0, Kind::Normal),
                (self.half(&vec![denormal; first], 0), Vec::new(), 0, Kind::Plain),
                (self.half(&vec![denormal; first], 1), Vec::new(), 0, Kind::Plain),
                (self.half(&vec![least; first], 0), Vec::new(), 1, Kind::Plain),
            ],
            _ => vec![
                (vec![normal; first], vec![0.0; second], 0, Kind::Normal),
                (vec![denormal; first], vec![0.0; second], 0, Kind::Plain),
                (vec![0.0; first], vec![denormal; second], 0, Kind::Plain),
                (vec![least; first], vec![-power(-126); second], 0, Kind::Plain),
            ],
        }
    }

    fn count(&self) -> usize {
        self.rows.max(1) * self.n
    }

    /// Elements of the second operand.
    fn second(&self) -> usize {
        match self.op {
            Op::RmsNorm | Op::AddBias => self.n,
            Op::Rope => 0,
            _ => self.count(),
        }
    }

    fn each_row(&self, value: impl Fn(usize) -> f32) -> Vec<f32> {
        (0..self.count()).map(|i| value(i % self.n)).collect()
    }

    /// The values with the other half of each head zero.
    fn half(&self, values: &[f32], keep: usize) -> Vec<f32> {
        let head_dim = self.n / self.heads.max(1);
        values
            .iter()
            .enumerate()
            .map(|(i, &v)| if (i % head_dim) / (head_dim / 2).max(1) == keep { v } else { 0.0 })
            .collect()
    }

    fn probe(
        &self,
        first: Vec<f32>,
        second: Vec<f32>,
        position: usize,
        kind: Kind,
    ) -> Result<Probe, CheckError> {
        let shape = if self.rows == 0 { vec![self.n] } else { vec![self.rows, self.n] };
        let (call, names, other) = match self.op {
            Op::Swiglu => (Call::Swiglu, ["gate", "up"], shape.clone()),
            Op::RmsNorm => (Call::RmsNorm { eps: 0.0 }, ["x", "weight"], vec![self.n]),
            Op::AddInPlace => (Call::AddInPlace, ["dst", "src"], shape.clone()),
            Op::AddBias => (Call::AddBias, ["dst", "bias"], vec![self.n]),
            Op::Rope => {
                let (n_heads, head_dim) = (self.heads, self.n / self.heads.max(1));
                let spec = RopeSpec { pos: position, n_heads, head_dim, theta: 10_000.0 };
                (Call::Rope(spec), ["x", ""], Vec::new())
            }
            other => return Err(self.case.invalid(format!("op {other}: not a row-wise op")).into()),
        };
        let mut operands = vec![Operand::from_f32(names[0], &shape, first)?];
        if !other.is_empty() {
            operands.push(Operand::from_f32(names[1], &other, second)?);
        }
        Ok(Probe::new(OpPlan { call, operands }, kind))
    }
}

/// First operand, second operand, position (of `rope`), kind.
type Data = (Vec<f32>, Vec<f32>, usize, Kind);
