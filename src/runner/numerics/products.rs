//! Probes of `matmul` and `batched_matmul`.
//!
//! Every row of the weight holds one, two or three values that are not zero (but for one dense probe), at places that
//! the seed chooses, so that no tiling and no order of summation can hide a rounding in all of them.

use half::{bf16, f16};
use modelbench_contract::{Activation, DType, HostTensor, NumericProfile};

use super::super::CheckError;
use super::super::ops::{Call, OpPlan};
use super::probe::{Aspect, Kind, Probe, carrying, carrying_f16, power};
use crate::inputs::{Operand, Stream};
use crate::suite::Case;

/// Elements of a `q8_0` block.
const BLOCK: usize = 32;
/// Largest code of a block; an activation block with one element of 127 times a power of two has that power as scale.
const LARGEST_CODE: f32 = 127.0;
/// Fewest rows of weights over which triples are placed, in as many calls as that needs.
const TRIPLES: usize = 24;

/// A product of one case.
pub(super) struct Product<'a> {
    pub(super) case: &'a Case,
    pub(super) seed: u64,
    pub(super) dtype: DType,
    pub(super) out: usize,
    pub(super) inner: usize,
    /// 0 for `matmul`.
    pub(super) rows: usize,
}

/// A weight that is not zero.
#[derive(Debug, Clone, Copy)]
struct Entry {
    row: usize,
    column: usize,
    /// Its value as a multiple of the scale; in a `q8_0` block, the code.
    multiple: f32,
    /// Scale of its block; a block holds entries of one scale.
    scale: f32,
}

impl Entry {
    fn new(row: usize, column: usize, multiple: f32) -> Entry {
        Entry { row, column, multiple, scale: 1.0 }
    }

    fn scaled(self, scale: f32) -> Entry {
        Entry { scale, ..self }
    }
}

/// How `2^p` and 1 are made: each a weight (as a multiple of the scale) and an activation.
struct Terms {
    scale: f32,
    big: (f32, f32),
    small: (f32, f32),
}

impl Product<'_> {
    /// The probes of an aspect.
    ///
    /// # Errors
    /// A suite error if the shape or the dtype is not one that the probes can be made for.
    pub(super) fn probes(&self, aspect: Aspect, profile: &NumericProfile) -> Result<Vec<Probe>, CheckError> {
        let quantised = self.dtype == DType::Q8_0;
        if self.out == 0 || self.inner < if quantised { 2 * BLOCK } else { 8 } {
            let text = format!(
                "out{}-in{}: probes need out >= 1 and in >= 8, for q8_0 in >= 64",
                self.out, self.inner
            );
            return Err(self.case.invalid(text).into());
        }
        match aspect {
            Aspect::Operand => self.operand(),
            Aspect::Accumulator => self.accumulator(),
            Aspect::Flush => self.flush(quantised && profile.q8_activation == Activation::Int8),
        }
    }

    fn stream(&self, name: &str) -> Stream {
        Stream::new(self.seed, &self.case.id, name)
    }

    /// Rows with one 1 each pick activations out: `1*x` and `x + 0` are exact, so that the result is the activation as it
    /// was rounded. Activations of one pick the weights out in the same way. Values of 2^17 and 2^-30 are out of
    /// binary16's range; tf32 and bf16 keep them, since they need two bits.
    fn operand(&self) -> Result<Vec<Probe>, CheckError> {
        let x = self.stream("x");
        let activations = (0..self.activations() as u64).map(|i| carrying(&x, i)).collect();
        let mut probes = vec![self.probe(&self.picks(1.0), activations, Kind::Activations)?];
        // Equal elements of 127 times a power of two are their own 8-bit quantisation.
        let (unit, large, small) = if self.dtype == DType::Q8_0 {
            (LARGEST_CODE, LARGEST_CODE * power(11), LARGEST_CODE * power(-40))
        } else {
            (1.0, 1.5 * power(17), 1.5 * power(-30))
        };
        for value in [large, small] {
            probes.push(self.probe(&self.picks(1.0), self.all(value), Kind::BeyondF16)?);
        }
        let w = self.stream("w");
        let carry = |carrying: fn(&Stream, u64) -> f32| -> Vec<Entry> {
            let one = |entry: Entry| Entry { multiple: carrying(&w, entry.row as u64), ..entry };
            self.picks(1.0).into_iter().map(one).collect()
        };
        let weights = match self.dtype {
            DType::F32 => carry(carrying),
            DType::F16 => carry(carrying_f16),
            // An odd code under a scale of 11 bits needs 18 bits.
            DType::Q8_0 => {
                let scale = |entry: Entry| entry.scaled(carrying_f16(&w, entry.row as u64).abs());
                self.picks(101.0).into_iter().map(scale).collect()
            }
            _ => Vec::new(),
        };
        if !weights.is_empty() {
            probes.push(self.probe(&weights, self.all(unit), Kind::Plain)?);
        }
        if matches!(self.dtype, DType::F32 | DType::Bf16) {
            for value in [large, small] {
                probes.push(self.probe(&self.picks(value), self.all(unit), Kind::BeyondF16)?);
            }
        }
        Ok(probes)
    }

    /// Two terms, `2^p` and 1, whose sum needs `p + 1` bits, neighbours or far apart. All other terms are zero, so that
    /// any order with at least `p + 1` bits gives the sum and any with fewer does not: `p` of 8 for bf16, 12 for tf32 and
    /// f16, 16 also beyond f16's range, 23 the last that f32 holds. At last ones behind a large first term: in order,
    /// narrow sums lose all of them. The operands need 7 bits and lie within f16's range.
    fn accumulator(&self) -> Result<Vec<Probe>, CheckError> {
        let mut probes = Vec::new();
        for p in [8, 12, 16, 23] {
            let place = self.stream(&format!("pair{p}"));
            let terms = self.terms(p);
            let pair = |o: usize| {
                let (big, small) = self.pair(&place, p, o);
                [Entry::new(o, big, terms.big.0), Entry::new(o, small, terms.small.0)]
            };
            let entries: Vec<Entry> =
                (0..self.out).flat_map(pair).map(|entry| entry.scaled(terms.scale)).collect();
            let kind = if p < 16 { Kind::Plain } else { Kind::BeyondF16 };
            probes.push(self.probe(&entries, self.steps(p, &terms), kind)?);
        }
        probes.extend(self.triples()?);
        let ones: Vec<Entry> =
            (0..self.out).flat_map(|o| (0..self.inner).map(move |j| Entry::new(o, j, 1.0))).collect();
        let row = |j: usize| match (self.dtype, j) {
            (DType::Q8_0, j) if j.is_multiple_of(BLOCK) => LARGEST_CODE,
            (DType::Q8_0, _) => 1.0,
            (_, 0) => power(11),
            _ => 1.0,
        };
        probes.push(self.probe(&ones, self.each(row), Kind::Amplified)?);
        Ok(probes)
    }

    /// Sums `a + b - a` with `b` 28 binary digits below `a`, in any order of the three. f64 gives `b` whatever the order;
    /// f32 loses it unless the large terms meet first. All activations are equal, and the places include neighbours and
    /// strides of 2 to 16, so that lanes do not keep the terms apart. Terms of `q8_0` lie in blocks of their own; with fewer
    /// than three blocks nothing is asked.
    fn triples(&self) -> Result<Vec<Probe>, CheckError> {
        let quantised = self.dtype == DType::Q8_0;
        let blocks = self.inner / BLOCK;
        if quantised && blocks < 3 {
            return Ok(Vec::new());
        }
        let x = if quantised { LARGEST_CODE * power(8) } else { power(15) };
        // Weights of 2^15 and 2^-13 or 2^-14, as code and scale.
        let (big, small) = if quantised {
            ((power(6), power(9)), (1.0, power(-13)))
        } else {
            ((power(15), 1.0), (power(-14), 1.0))
        };
        (0..TRIPLES.div_ceil(self.out))
            .map(|call| {
                let place = self.stream(&format!("triple{call}"));
                let entries: Vec<Entry> = (0..self.out)
                    .flat_map(|o| {
                        let columns = if quantised {
                            let column = |block: usize| {
                                block * BLOCK + place.below(o as u64 ^ 1 << 50, BLOCK as u64) as usize
                            };
                            three(&place, o, blocks).map(column)
                        } else {
                            three(&place, o, self.inner)
                        };
                        let terms = [(big, 1.0), (small, 1.0), (big, -1.0)];
                        std::array::from_fn::<Entry, 3, _>(|i| {
                            let ((multiple, scale), sign) = terms[i];
                            Entry::new(o, columns[i], sign * multiple).scaled(scale)
                        })
                    })
                    .collect();
                self.probe(&entries, self.all(x), Kind::Cancelling)
            })
            .collect()
    }

    /// Denormal activations, results and weights that one f32 holds exactly, and normal ones beside them.
    fn flush(&self, int8: bool) -> Result<Vec<Probe>, CheckError> {
        let ones = self.picks(1.0);
        let (normal, denormal) = (1.5 * power(-120), 1.5 * power(-130));
        let ask = |entries: &[Entry], x: f32, kind: Kind| self.probe(entries, self.all(x), kind);
        if self.dtype == DType::Q8_0 {
            // Below the smallest normal number, 2^-126, after a scale of 2^-14.
            let small = LARGEST_CODE * power(-119);
            let scaled: Vec<Entry> = ones.iter().map(|entry| entry.scaled(power(-14))).collect();
            let mut probes = vec![ask(&ones, small, Kind::Normal)?, ask(&scaled, small, Kind::Plain)?];
            if !int8 {
                // 8-bit quantisation of denormals has no scale to work with.
                probes.push(ask(&ones, denormal, Kind::Plain)?);
            }
            return Ok(probes);
        }
        let weight = if self.dtype == DType::F16 { 1.5 * power(-20) } else { denormal };
        Ok(vec![
            ask(&ones, normal, Kind::Normal)?,
            ask(&ones, denormal, Kind::Plain)?,
            ask(&self.picks(power(-10)), normal, Kind::Plain)?,
            ask(&self.picks(weight), 1.0, Kind::Plain)?,
        ])
    }

    /// Codes of a `q8_0` block end at 127, and with an element of 127 times the others in each block, activations end at
    /// 2^8 if f16 is to hold them; so the scale is large.
    fn terms(&self, p: i32) -> Terms {
        if self.dtype != DType::Q8_0 {
            return Terms { scale: 1.0, big: (power(p - p / 2), power(p / 2)), small: (1.0, 1.0) };
        }
        let scale = if self.across(p) { 9 } else { 0 };
        Terms { scale: power(scale), big: (power(6), power(p - 6 - scale)), small: (1.0, power(-scale)) }
    }

    /// True if the two terms of a `q8_0` pair must lie in different blocks: their activations share no 8-bit scale.
    fn across(&self, p: i32) -> bool {
        self.dtype == DType::Q8_0 && p > 12
    }

    /// Columns of the large and of the small term of row `o`: neighbours for even rows.
    fn pair(&self, place: &Stream, p: i32, o: usize) -> (usize, usize) {
        let at = |salt: u64, n: usize| place.below(o as u64 | salt << 40, n as u64) as usize;
        if self.dtype != DType::Q8_0 {
            let big = 2 * at(0, self.inner / 2) + 1;
            let small = if o.is_multiple_of(2) { big - 1 } else { 2 * at(1, self.inner.div_ceil(2)) };
            return (big, small);
        }
        let blocks = self.inner / BLOCK;
        if self.across(p) {
            let big = 2 * at(0, blocks.div_ceil(2)) * BLOCK + 1 + at(1, BLOCK - 1);
            let small = (2 * at(2, blocks / 2) + 1) * BLOCK + 1 + at(3, BLOCK - 1);
            return (big, small);
        }
        let big = at(0, blocks);
        let small = if o.is_multiple_of(2) { big } else { at(2, blocks) };
        let (odd, even) = (2 * at(1, BLOCK / 2) + 1, 2 * at(3, BLOCK / 2 - 1) + 2);
        (big * BLOCK + odd, small * BLOCK + even)
    }

    /// Activations of large terms where [`Product::pair`] puts them, and of small ones elsewhere; in `q8_0` blocks the
    /// first element sets the scale.
    fn steps(&self, p: i32, terms: &Terms) -> Vec<f32> {
        let across = self.across(p);
        self.each(|j| {
            let large = if across { (j / BLOCK).is_multiple_of(2) } else { j % 2 == 1 };
            let value = if large { terms.big.1 } else { terms.small.1 };
            let head = self.dtype == DType::Q8_0 && j.is_multiple_of(BLOCK);
            if head { LARGEST_CODE * if across { value } else { 1.0 } } else { value }
        })
    }

    /// One value in each row, at a random column.
    fn picks(&self, value: f32) -> Vec<Entry> {
        let column = self.stream("column");
        (0..self.out)
            .map(|o| Entry::new(o, column.below(o as u64, self.inner as u64) as usize, value))
            .collect()
    }

    fn activations(&self) -> usize {
        self.rows.max(1) * self.inner
    }

    fn all(&self, value: f32) -> Vec<f32> {
        vec![value; self.activations()]
    }

    fn each(&self, row: impl Fn(usize) -> f32) -> Vec<f32> {
        (0..self.activations()).map(|i| row(i % self.inner)).collect()
    }

    fn probe(&self, entries: &[Entry], x: Vec<f32>, kind: Kind) -> Result<Probe, CheckError> {
        let (call, shape) = if self.rows == 0 {
            (Call::Matmul, vec![self.inner])
        } else {
            (Call::BatchedMatmul, vec![self.rows, self.inner])
        };
        let operands = vec![self.weight(entries)?, Operand::from_f32("x", &shape, x)?];
        // Only 8-bit blocks quantise activations.
        let kind = if kind == Kind::Activations && self.dtype != DType::Q8_0 { Kind::Plain } else { kind };
        Ok(Probe::new(OpPlan { call, operands }, kind))
    }

    /// The weight with these entries and zero elsewhere.
    fn weight(&self, entries: &[Entry]) -> Result<Operand, CheckError> {
        let mut values = vec![0.0f32; self.out * self.inner];
        let mut codes = vec![0i8; if self.dtype == DType::Q8_0 { values.len() } else { 0 }];
        let mut scales = vec![f16::ONE; codes.len() / BLOCK];
        for &Entry { row, column, multiple, scale } in entries {
            let at = row * self.inner + column;
            values[at] = multiple * scale;
            if self.dtype == DType::Q8_0 {
                codes[at] = multiple as i8;
                scales[at / BLOCK] = f16::from_f32(scale);
            }
        }
        let bytes: Vec<u8> = match self.dtype {
            DType::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            DType::F16 => values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect(),
            DType::Bf16 => values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect(),
            DType::Q8_0 => codes
                .chunks_exact(BLOCK)
                .zip(&scales)
                .flat_map(|(codes, d)| {
                    d.to_le_bytes().into_iter().chain(codes.iter().map(|&code| code as u8))
                })
                .collect(),
            other => {
                let text = format!("dtype {other}: the probes know f32, f16, bf16 and q8_0");
                return Err(self.case.invalid(text).into());
            }
        };
        let tensor = HostTensor::from_bytes(&[self.out, self.inner], self.dtype, bytes)?;
        Ok(Operand { name: "w", tensor, values, magnitudes: None })
    }
}

/// Three different places below `n`, which is at least 3, in any order: for even rows at a stride of 1 to 16 where `n` has
/// room for it, else anywhere.
fn three(place: &Stream, row: usize, n: usize) -> [usize; 3] {
    let at = |salt: u64, n: usize| place.below(row as u64 | salt << 40, n as u64) as usize;
    let stride = 1 << at(0, 5);
    let [a, b, c] = if row.is_multiple_of(2) && n > 2 * stride {
        let first = at(1, n - 2 * stride);
        [first, first + stride, first + 2 * stride]
    } else {
        let (first, step) = (at(1, n), 1 + at(2, n - 1));
        let second = (first + step) % n;
        let third = (0..n).map(|i| (at(3, n) + i) % n).find(|&j| j != first && j != second);
        [first, second, third.unwrap_or(first)]
    };
    // The term in the middle of the array is the small one.
    [[a, b, c], [a, c, b], [b, a, c], [b, c, a], [c, a, b], [c, b, a]][at(4, 6)]
}
