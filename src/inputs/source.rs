//! Element by element, what a recipe gives.

use super::Stream;
use crate::suite::{Pattern, Recipe};

/// Powers of two by which the picking elements of a weight differ: small, so that sums over thousands stay exact.
const PICK_OCTAVES: u64 = 3;

/// The values of one operand: a recipe, its stream, and the place of the operand in a product.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    recipe: Recipe,
    stream: &'a Stream,
    row: usize,
    weight: bool,
}

impl<'a> Source<'a> {
    /// An operand whose rows have `row` elements. Only the operand called `w` is a weight, and only structured recipes
    /// tell it from others.
    pub fn new(recipe: Recipe, name: &str, row: usize, stream: &'a Stream) -> Source<'a> {
        Source { recipe, stream, row: row.max(1), weight: name == "w" }
    }

    /// Element `i`, row-major.
    pub fn value(&self, i: u64) -> f32 {
        match self.recipe {
            Recipe::None => 0.0,
            Recipe::Integers { exponent, .. } | Recipe::Odd { exponent, .. } => {
                self.integer(i) as f32 * power_of_two(exponent)
            }
            Recipe::Select { exponent, .. } => {
                let integer = self.integer(i) as f32;
                let picks = self.picks();
                integer * if picks { power_of_two(exponent + self.octave(i)) } else { 1.0 }
            }
            Recipe::Reals { exponent } => self.stream.real(i) * power_of_two(exponent),
            Recipe::Cancelling { octaves } => {
                let octave = self.stream.below(i ^ (1 << 63), u64::from(octaves) + 1) as i32;
                self.stream.real(i) * power_of_two(octave)
            }
        }
    }

    /// The integer of element `i` before any scale: for the recipes of the exact tier, else 0.
    pub fn integer(&self, i: u64) -> i64 {
        match self.recipe {
            Recipe::Integers { max, .. } => {
                self.stream.below(i, 2 * u64::from(max) + 1) as i64 - i64::from(max)
            }
            // With odd numbers on both sides, and one even number in front of rows of even length, every sum of
            // products is odd: no output is ever 0 by chance, so that an output that was never written shows.
            Recipe::Odd { max, .. } => {
                let front = !self.weight && self.row.is_multiple_of(2) && i.is_multiple_of(self.row as u64);
                if front {
                    self.signed(i, 2 * (1 + self.stream.below(i, u64::from(max / 2).max(1))))
                } else {
                    self.odd(i, max)
                }
            }
            Recipe::Select { max, .. } if !self.picks() => self.odd(i, max),
            Recipe::Select { pattern, .. } => {
                let (row, column) = (i / self.row as u64, i % self.row as u64);
                i64::from(column == self.picked(pattern, row))
            }
            _ => 0,
        }
    }

    /// Exponent of the scale that quantised formats put on the integers of the exact tier; `None` for reals.
    pub fn scale_exponent(&self) -> Option<i32> {
        match self.recipe {
            Recipe::Integers { exponent, .. } | Recipe::Odd { exponent, .. } => Some(exponent),
            Recipe::Select { exponent, .. } => Some(if self.picks() { exponent } else { 0 }),
            Recipe::None => Some(0),
            Recipe::Reals { .. } | Recipe::Cancelling { .. } => None,
        }
    }

    /// Largest integer of the recipe, beside the ones that pick.
    pub fn largest(&self) -> u32 {
        match self.recipe {
            Recipe::Integers { max, .. } | Recipe::Odd { max, .. } | Recipe::Select { max, .. } => max,
            Recipe::None | Recipe::Reals { .. } | Recipe::Cancelling { .. } => 0,
        }
    }

    /// True if each row holds one element that picks, and zeros.
    pub fn picks(&self) -> bool {
        match self.recipe {
            Recipe::Select { pattern: Pattern::OneHot, .. } => !self.weight,
            Recipe::Select { .. } => self.weight,
            _ => false,
        }
    }

    /// Random numbers of the operand.
    pub fn stream(&self) -> &Stream {
        self.stream
    }

    /// Elements of a row.
    pub fn row(&self) -> usize {
        self.row
    }

    fn octave(&self, i: u64) -> i32 {
        self.stream.below((i / self.row as u64) | 1 << 61, PICK_OCTAVES) as i32
    }

    fn odd(&self, i: u64, max: u32) -> i64 {
        self.signed(i, 2 * self.stream.below(i, u64::from(max.div_ceil(2)).max(1)) + 1)
    }

    fn signed(&self, i: u64, magnitude: u64) -> i64 {
        // The low bit is not among those that choose the magnitude of a small range.
        if self.stream.bits(i) & 1 == 0 { magnitude as i64 } else { -(magnitude as i64) }
    }

    /// The column that a row picks.
    fn picked(&self, pattern: Pattern, row: u64) -> u64 {
        let n = self.row as u64;
        match pattern {
            Pattern::Identity => row % n,
            Pattern::OneHot => self.stream.below(row | 1 << 62, n),
            // A step without a common factor visits every column once.
            Pattern::Permutation => {
                let start = self.stream.below(1 << 60, n);
                let mut step = 1 + self.stream.below((1 << 60) + 1, n);
                while common_factor(step, n) != 1 {
                    step += 1;
                }
                (start + row % n * step) % n
            }
        }
    }
}

/// Element `i` of a recipe for data that has no rows.
pub fn value(recipe: Recipe, stream: &Stream, i: u64) -> f32 {
    Source::new(recipe, "", 1, stream).value(i)
}

fn common_factor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_factor(b, a % b) }
}

pub(super) fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127).clamp(1, 254) as u32) << 23)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_odd_numbers_are_odd() {
        let stream = Stream::new(1, "case", "x");
        for row in [1usize, 2, 7, 8, 33] {
            let recipe = Recipe::Odd { max: 7, exponent: 0 };
            let (w, x) = (Source::new(recipe, "w", row, &stream), Source::new(recipe, "x", row, &stream));
            for r in 0..9u64 {
                let at = |k: usize| r * row as u64 + k as u64;
                let sum: i64 = (0..row).map(|k| w.integer(at(k)) * x.integer(at(k))).sum();
                assert_eq!(sum.rem_euclid(2), 1, "rows of {row}");
                assert!((0..row).all(|k| w.integer(at(k)).abs() <= 7 && x.integer(at(k)) != 0));
            }
        }
    }

    #[test]
    fn a_permutation_picks_every_column_once() {
        let stream = Stream::new(1, "case", "w");
        for n in [1usize, 2, 12, 97] {
            let recipe = Recipe::Select { pattern: Pattern::Permutation, max: 7, exponent: 0 };
            let source = Source::new(recipe, "w", n, &stream);
            let mut seen = vec![0; n];
            for i in 0..(n * n) as u64 {
                seen[i as usize % n] += source.integer(i);
            }
            assert_eq!(seen, vec![1; n]);
        }
    }
}
