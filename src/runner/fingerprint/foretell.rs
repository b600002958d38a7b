//! Whether ordinary products are added up in the order that the probes show.
//!
//! Probes can be told from other products by their two huge terms. Whoever recognises them may add these alone in an
//! order of his own, and have everything else done by somebody else. So an ordinary product of the same shape is asked
//! too, with numbers that nobody can know beforehand, and every result must have the bits which the order gives.

use modelbench_contract::{Backend, BackendError, HostTensor, NumericProfile, Precision};
use modelbench_evidence::tree::{Foretold, Product, Tree};

use super::ask::{ROWS, product};
use crate::inputs::Stream;

/// How the terms of a sum are rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rounding {
    /// Each product, and each addition.
    Each,
    /// A product and the addition that takes it at once.
    Fused,
    /// Only the sum; everything before is f64.
    Last,
    /// As `Each`, but fused adders align their terms to the largest and cut off what lies so many bits below its last.
    Cut(i32),
}

/// Bits that fused adders keep below the 24 of their largest term.
const GUARD_BITS: [i32; 4] = [0, 1, 2, 3];

/// A tree in the order in which a stack of numbers meets it.
#[derive(Debug, Clone, Copy)]
enum Step {
    Term(usize),
    /// The last so many numbers become one.
    Join(usize),
}

#[derive(Debug, Clone, Copy)]
enum Number {
    Term(usize),
    Sum(f64),
}

fn steps(tree: &Tree, into: &mut Vec<Step>) {
    if tree.children().is_empty() {
        into.extend(tree.indices().into_iter().map(Step::Term));
    } else {
        tree.children().iter().for_each(|child| steps(child, into));
        into.push(Step::Join(tree.children().len()));
    }
}

/// The sum of the products of two rows.
fn sum(steps: &[Step], a: &[f32], b: &[f32], rounding: Rounding) -> f32 {
    // Products of two f32 are exact in f64.
    let exact = |k: usize| f64::from(a[k]) * f64::from(b[k]);
    let value = |number: &Number| match (*number, rounding) {
        (Number::Sum(sum), _) => sum,
        (Number::Term(k), Rounding::Last) => exact(k),
        (Number::Term(k), _) => f64::from(a[k] * b[k]),
    };
    let join = |numbers: &[Number]| match (numbers, rounding) {
        (_, Rounding::Last) => numbers.iter().map(value).sum(),
        ([Number::Term(k), Number::Sum(sum)] | [Number::Sum(sum), Number::Term(k)], Rounding::Fused) => {
            f64::from(a[*k].mul_add(b[*k], *sum as f32))
        }
        // Of two products the first starts the sum.
        ([first @ Number::Term(_), Number::Term(k)], Rounding::Fused) => {
            f64::from(a[*k].mul_add(b[*k], value(first) as f32))
        }
        ([one, other], _) => f64::from(value(one) as f32 + value(other) as f32),
        (many, Rounding::Cut(guard)) => f64::from(cut(&many.iter().map(value).collect::<Vec<_>>(), guard)),
        // A fused adder rounds once.
        (many, Rounding::Each) => f64::from(many.iter().map(value).sum::<f64>() as f32),
        (many, Rounding::Fused) => {
            let exactly = |number: &Number| match *number {
                Number::Term(k) => exact(k),
                Number::Sum(sum) => sum,
            };
            f64::from(many.iter().map(exactly).sum::<f64>() as f32)
        }
    };
    let mut stack: Vec<Number> = Vec::new();
    for step in steps {
        match *step {
            Step::Term(k) => stack.push(Number::Term(k)),
            Step::Join(count) => {
                let numbers = stack.split_off(stack.len().saturating_sub(count));
                stack.push(Number::Sum(join(&numbers)));
            }
        }
    }
    stack.last().map_or(f32::NAN, |number| value(number) as f32)
}

/// Several terms in one step, as tensor cores add them.
fn cut(terms: &[f64], guard: i32) -> f32 {
    let largest = terms.iter().fold(0.0f64, |largest, term| largest.max(term.abs()));
    if largest == 0.0 || !largest.is_finite() {
        return terms.iter().sum::<f64>() as f32;
    }
    let last = libm::ldexp(1.0, libm::ilogb(largest).max(f32::MIN_EXP - 1) - 23 - guard);
    // Each is below 2^27, so that the sum is exact.
    (terms.iter().map(|term| (term / last).trunc()).sum::<f64>() * last) as f32
}

/// The number in the declared precision of operands, so that narrowing does not change it.
fn narrowed(value: f32, precision: Precision) -> f32 {
    let dropped = match precision {
        Precision::F32 | Precision::F64 => 0,
        Precision::Tf32 | Precision::F16 => 13,
        Precision::Bf16 => 16,
    };
    f32::from_bits(value.to_bits() >> dropped << dropped)
}

/// Asks for an ordinary product over `k` terms, of the shape that the probes of `matmul` or `batched_matmul` have, and
/// counts the results that have the bits which the order gives them.
///
/// # Errors
/// What the backend says.
pub(super) fn foretell<B: Backend>(
    backend: &mut B,
    profile: &NumericProfile,
    asked: Product,
    tree: &Tree,
    seed: u64,
) -> Result<Foretold, BackendError> {
    let k = tree.leaves();
    let stream = Stream::new(seed, &format!("fingerprint/{}/k{k}", asked.as_str()), "ordinary");
    let number = |i: usize| narrowed(stream.real(i as u64), profile.operand);
    let rows: Vec<f32> = (0..ROWS * k).map(number).collect();
    let other: Vec<f32> = (ROWS * k..(ROWS + 1) * k).map(number).collect();
    let batched = asked == Product::BatchedMatmul;
    let shape = if batched { vec![1, k] } else { vec![k] };
    let (probes, single) = (HostTensor::from_f32(&[ROWS, k], &rows)?, HostTensor::from_f32(&shape, &other)?);
    let results = product(backend, &probes, &single, batched)?;
    let mut order = Vec::new();
    steps(tree, &mut order);
    let agree = |rounding| {
        let sums = rows.chunks_exact(k).map(|row| sum(&order, row, &other, rounding));
        sums.zip(&results).filter(|(sum, result)| sum.to_bits() == result.to_bits()).count() as u64
    };
    Ok(Foretold {
        results: results.len() as u64,
        rounded: agree(Rounding::Each),
        fused: agree(Rounding::Fused),
        wide: agree(Rounding::Last),
        cut: GUARD_BITS.into_iter().map(|guard| agree(Rounding::Cut(guard))).max().unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_rounded_where_they_are_said_to_be() {
        // (1 + u)^2 = 1 + 2u + u^2, of which a product keeps 1 + 2u.
        let long = 1.0 + f32::EPSILON;
        let (a, b) = ([long, -1.0, -2.0 * f32::EPSILON], [long, 1.0, 1.0]);
        let of = |text: &str, rounding| {
            let mut order = Vec::new();
            steps(&text.parse().unwrap(), &mut order);
            sum(&order, &a, &b, rounding)
        };
        let square = f32::EPSILON * f32::EPSILON;
        assert_eq!(of("((0 1) 2)", Rounding::Each), 0.0);
        // The first product starts the sum, and only the others are fused.
        assert_eq!(of("((0 1) 2)", Rounding::Fused), 0.0);
        assert_eq!(of("(0 (1 2))", Rounding::Fused), square);
        assert_eq!(of("(0 1 2)", Rounding::Fused), square);
        assert_eq!(of("(0 1 2)", Rounding::Each), 0.0);
        assert_eq!(of("((0 1) 2)", Rounding::Last), square);
        assert_eq!(cut(&[16_777_216.0, 0.25, -16_777_216.0], 3), 0.25);
        assert_eq!(cut(&[16_777_216.0, 0.25, -16_777_216.0], 2), 0.0);
    }

    #[test]
    fn narrowed_numbers_have_few_bits() {
        for (precision, bits) in [(Precision::F32, 24), (Precision::Tf32, 11), (Precision::Bf16, 8)] {
            let value = narrowed(1.0 / 3.0, precision);
            let scaled = value * f32::from_bits((127 + 1 + bits) << 23);
            assert_eq!(scaled.fract(), 0.0, "{precision:?}");
        }
    }
}
