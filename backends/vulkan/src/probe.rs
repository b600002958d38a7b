//! How the device computes, found out by computing when the backend starts.

use half::f16;

use crate::gpu::{Gpu, Result};
use crate::vk::Kernel;

/// What the device does where Vulkan leaves it a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arithmetic {
    /// True if any denormal operand or result became zero.
    pub(crate) flush_to_zero: bool,
    /// True if `a * b + c` was rounded once.
    pub(crate) contracts: bool,
    /// True if `fma` was rounded once.
    pub(crate) fused: bool,
    /// True if every binary16 number widens exactly.
    pub(crate) unpack_is_exact: bool,
}

impl Default for Arithmetic {
    /// What is assumed until it is probed: the least of it.
    fn default() -> Self {
        Arithmetic { flush_to_zero: true, contracts: true, fused: false, unpack_is_exact: false }
    }
}

impl std::fmt::Display for Arithmetic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let say = |yes, a, b| if yes { a } else { b };
        write!(
            f,
            "denormals {}, a*b+c {}, fma {}, f16 {}",
            say(self.flush_to_zero, "flushed", "kept"),
            say(self.contracts, "contracted", "rounded twice"),
            say(self.fused, "fused", "rounded twice"),
            say(self.unpack_is_exact, "widened by the device", "widened by its bits"),
        )
    }
}

/// Smallest normal number.
const NORMAL: f32 = f32::MIN_POSITIVE;
/// `1 + 2^-12`: its square needs 25 bits.
const LONG: f32 = 1.0 + 1.0 / 4096.0;
/// Its square, rounded to f32, with the sign changed.
const MINUS_SQUARE: f32 = -(1.0 + 1.0 / 2048.0);

/// Operands `a, b, c`, of which at most one op is looked at. Rows 0 and 1 ask sums, 2 and 3 products.
const ASKED: [[f32; 3]; 5] = [
    [1.5 * NORMAL, -NORMAL, 0.0],
    [0.5 * NORMAL, 0.0, 0.0],
    [1.0 / 1024.0, NORMAL, 0.0],
    [0.5 * NORMAL, 4096.0, 0.0],
    [LONG, LONG, MINUS_SQUARE],
];
/// All binary16 numbers, two in a word.
const WORDS: usize = 1 << 15;
/// Words that the kernel answers for each triple.
const ANSWERS: usize = 6;

/// Asks the device.
pub(crate) fn run(gpu: &mut Gpu) -> Result<Arithmetic> {
    let mut given = Vec::with_capacity(WORDS * 16);
    for word in 0..WORDS as u32 {
        let triple = ASKED.get(word as usize).copied().unwrap_or_default();
        triple.iter().for_each(|v| given.extend(v.to_le_bytes()));
        given.extend((2 * word).to_le_bytes().iter().take(2));
        given.extend((2 * word + 1).to_le_bytes().iter().take(2));
    }
    let given = gpu.filled("the probe", &given)?;
    let found = gpu.floats("the probe's answers", WORDS * ANSWERS)?;
    let lanes = 64;
    let groups = WORDS.div_ceil(lanes as usize) as u64;
    gpu.run(Kernel::Probe, lanes, &[&given, &found], &[WORDS as u32], groups)?;
    Ok(infer(&gpu.download_floats(&found.whole())?))
}

/// What the answers mean.
fn infer(found: &[f32]) -> Arithmetic {
    let answer = |row: usize, which: usize| found.get(row * ANSWERS + which).copied().unwrap_or(0.0);
    let kept = answer(0, 0) == 0.5 * NORMAL
        && answer(1, 0) == 0.5 * NORMAL
        && answer(2, 1) == NORMAL / 1024.0
        && answer(3, 1) == 2048.0 * NORMAL;
    let halves = (0..2 * WORDS).all(|bits| {
        let want = f16::from_bits(bits as u16).to_f32();
        let got = answer(bits / 2, 4 + bits % 2);
        got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan())
    });
    Arithmetic {
        flush_to_zero: !kept,
        contracts: answer(4, 2) != 0.0,
        fused: answer(4, 3) != 0.0,
        unpack_is_exact: halves,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers of a device that rounds everything once, with two lossy choices.
    fn answers(flush: bool, fused: bool) -> Vec<f32> {
        let keep = |v: f32| if flush && v.is_subnormal() { 0.0 } else { v };
        (0..WORDS)
            .flat_map(|word| {
                let [a, b, c] = ASKED.get(word).copied().unwrap_or_default().map(keep);
                let both = if fused { a.mul_add(b, c) } else { a * b + c };
                let half = |bits: usize| f16::from_bits(bits as u16).to_f32();
                [keep(a + b), keep(a * b), both, both, half(2 * word), half(2 * word + 1)]
            })
            .collect()
    }

    #[test]
    fn flushing_fusing_and_bad_halves_are_told_from_the_answers() {
        let exact =
            Arithmetic { flush_to_zero: false, contracts: false, fused: false, unpack_is_exact: true };
        assert_eq!(infer(&answers(false, false)), exact);
        assert_eq!(infer(&answers(true, false)), Arithmetic { flush_to_zero: true, ..exact });
        assert_eq!(infer(&answers(false, true)), Arithmetic { contracts: true, fused: true, ..exact });
        let mut bad = answers(false, false);
        bad[ANSWERS + 4] = 0.0;
        assert!(!infer(&bad).unpack_is_exact);
        assert!(infer(&[]).flush_to_zero);
    }
}
