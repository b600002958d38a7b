//! A call whose result tells in which arithmetic it was made, and the numbers that such calls are made of.

use modelbench_contract::{Activation, NumericProfile, Precision};

use super::super::CheckError;
use super::super::ops::{Call, OpPlan, ask};
use crate::inputs::Stream;
use crate::oracle::{self, Allowance, Bounded, OracleError, Weight};
use crate::suite::Case;

/// Part of the arithmetic that a case asks about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aspect {
    /// To what operands are rounded.
    Operand,
    /// To what sums, and everything between operands and result, are rounded.
    Accumulator,
    /// Whether denormals survive.
    Flush,
}

/// What a probe's data are like beyond its aspect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing special.
    Plain,
    /// Operands or sums leave the range of binary16, so that it loses them, saturates, or answers infinity or NaN.
    BeyondF16,
    /// A rounding moves the result by more than its own spacing: sums that cancel or are long, scores behind an `exp`.
    /// Only the oracle's bound says by how much.
    Amplified,
    /// The same for sums of two huge terms that cancel and a small one: alone they tell f64 from f32.
    Cancelling,
    /// Flush only: the data are small but normal, so that nothing may be lost.
    Normal,
    /// Operand only: activations that 8-bit quantisation changes.
    Activations,
}

impl Kind {
    /// The kind in a few words.
    pub(super) fn about(self) -> &'static str {
        match self {
            Kind::Plain => "plain",
            Kind::BeyondF16 => "beyond the range of f16",
            Kind::Amplified => "errors grow",
            Kind::Cancelling => "huge terms cancel",
            Kind::Normal => "small normal numbers",
            Kind::Activations => "activations with all bits",
        }
    }
}

/// One call of one op.
#[derive(Debug, Clone)]
pub(super) struct Probe {
    pub(super) plan: OpPlan,
    pub(super) kind: Kind,
}

impl Probe {
    pub(super) fn new(plan: OpPlan, kind: Kind) -> Probe {
        Probe { plan, kind }
    }

    /// The truth with the bound of an arithmetic; `None` if that arithmetic cannot hold the data, so that anything may
    /// come back.
    ///
    /// Rows of a product hold few weights that are not zero. A product with zero is zero and adds nothing in any order,
    /// so that the bound is the one of the other terms alone. Where the activations keep their value under 8-bit
    /// quantisation, that is as if there were none.
    ///
    /// # Errors
    /// A defect of the kit if the oracle cannot answer for another reason.
    pub(super) fn truth(
        &self,
        case: &Case,
        profile: &NumericProfile,
        allowance: &Allowance,
    ) -> Result<Option<Bounded>, CheckError> {
        let product = matches!(self.plan.call, Call::Matmul | Call::BatchedMatmul);
        let asked = if product
            && !(self.kind == Kind::Activations && profile.q8_activation == Activation::Int8)
        {
            sparse(&self.plan, &NumericProfile { q8_activation: Activation::Float, ..*profile }, allowance)
        } else {
            ask(&self.plan, profile, allowance)
        };
        match asked {
            Ok(bounded) => Ok(Some(bounded)),
            Err(OracleError::Range { .. }) => Ok(None),
            Err(error) => Err(CheckError::Kit(format!("{}: {error}", case.id))),
        }
    }
}

/// The truth of a product whose rows are mostly zero, from the other terms alone.
fn sparse(plan: &OpPlan, profile: &NumericProfile, allowance: &Allowance) -> Result<Bounded, OracleError> {
    let [w, x] = plan.operands.as_slice() else { return ask(plan, profile, allowance) };
    let k = w.tensor.desc().row_len();
    let (out, rows) = (w.values.len() / k, x.values.len() / k);
    let mut all = Bounded { want: vec![0.0; rows * out], bound: vec![0.0; rows * out] };
    for (o, weights) in w.values.chunks_exact(k).enumerate() {
        let columns: Vec<usize> = (0..k).filter(|&j| weights[j] != 0.0).collect();
        if columns.is_empty() {
            continue;
        }
        let some: Vec<f32> = columns.iter().map(|&j| weights[j]).collect();
        let xs: Vec<f32> =
            x.values.chunks_exact(k).flat_map(|row| columns.iter().map(move |&j| row[j])).collect();
        let weight = Weight::plain(&some, w.tensor.dtype());
        let bounded = oracle::matmul(&weight, &xs, columns.len(), profile, allowance)?;
        for row in 0..rows {
            all.want[row * out + o] = bounded.want[row];
            all.bound[row * out + o] = bounded.bound[row];
        }
    }
    Ok(all)
}

/// The arithmetic that computes in f32 except for one aspect.
pub(super) fn candidate(aspect: Aspect, precision: Precision) -> NumericProfile {
    match aspect {
        Aspect::Operand => NumericProfile { operand: precision, ..NumericProfile::F32 },
        Aspect::Accumulator => NumericProfile { accumulator: precision, ..NumericProfile::F32 },
        Aspect::Flush => NumericProfile::F32,
    }
}

/// `2^e`, for `-149 <= e <= 127`.
pub(super) fn power(e: i32) -> f32 {
    libm::ldexpf(1.0, e)
}

/// A number in ±(1, 2) with all 24 bits in use, so that the rounding it met can be told from the result.
///
/// The three bits after the 8th and the three after the 11th are 100 or 011: what bf16 drops is 0.42 to 0.57 of its
/// spacing, what tf32 and f16 drop 0.37 to 0.57 of theirs. Rounded to 8 bits, to nearest or in any direction, the number
/// moves by at least 0.42 spacings of bf16, which are more than three spacings of tf32; rounded to 11 bits it moves by at
/// least 0.37 spacings of tf32. So the three outcomes are apart.
pub(super) fn carrying(stream: &Stream, i: u64) -> f32 {
    let bits = stream.bits(i);
    let middle = |bit: u64| if (bits >> bit) & 1 == 0 { 0b100u32 } else { 0b011 };
    let (head, tail) = ((bits >> 40) as u32 & 0x7f, (bits >> 50) as u32 & 0x3ff);
    let significand = (head << 16) | (middle(0) << 13) | (middle(1) << 10) | tail | 1;
    let sign = ((bits >> 2) as u32 & 1) << 31;
    f32::from_bits(sign | 0x3f80_0000 | significand)
}

/// The same with the 11 bits of binary16 only: what bf16 drops is 3/8 or 1/2 of its spacing.
pub(super) fn carrying_f16(stream: &Stream, i: u64) -> f32 {
    f32::from_bits(carrying(stream, i).to_bits() & 0xffff_e000)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds toward zero to `bits` bits.
    fn cut(value: f32, bits: u32) -> f32 {
        f32::from_bits(value.to_bits() & (u32::MAX << (24 - bits)))
    }

    #[test]
    fn carrying_numbers_tell_the_roundings_apart() {
        let stream = Stream::new(1, "case", "x");
        for i in 0..10_000 {
            let v = carrying(&stream, i);
            assert!((1.0..2.0).contains(&v.abs()) && v.to_bits() & 1 == 1);
            let spacing = |bits: i32| (1 - bits) as f32;
            for (bits, least) in [(8u32, 0.42f32), (11, 0.37)] {
                let unit = spacing(bits as i32).exp2();
                let below = cut(v, bits);
                let dropped = (v - below).abs() / unit;
                assert!((least..=1.0 - least).contains(&dropped), "{v:e} drops {dropped} of {bits} bits");
            }
            assert_eq!(half::f16::from_f32(carrying_f16(&stream, i)).to_f32(), carrying_f16(&stream, i));
        }
    }
}
