//! How large the ones and the masks of a probe are, from the declared arithmetic.

use modelbench_contract::{NumericProfile, Precision};
use modelbench_evidence::tree::Product;

use super::ProbeError;
use crate::inputs::Stream;

/// Exponents of the numbers of a precision: the least whose power of two is a number, and the largest.
fn exponents(precision: Precision, flush_to_zero: bool) -> (i32, i32) {
    match precision {
        // binary16 has so few exponents that its denormals are needed.
        Precision::F16 if flush_to_zero => (-14, 15),
        Precision::F16 => (-24, 15),
        // Operands are f32 whatever is done with them, and wide enough without denormals.
        Precision::F64 | Precision::F32 | Precision::Tf32 | Precision::Bf16 => (-126, 127),
    }
}

/// Bits of the significand.
fn bits(precision: Precision) -> i32 {
    -libm::ilogb(precision.unit_roundoff())
}

/// `ceil(log2(n))`.
fn log2(n: usize) -> i32 {
    n.next_power_of_two().trailing_zeros() as i32
}

/// Most by which the exponents of scales and masks are moved at random.
const PLAY: i32 = 24;

/// The exponents that the probes of one product may have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Room {
    /// The least exponent of a one.
    lowest: i32,
    /// The largest exponent of a mask.
    highest: i32,
    /// The least ratio of mask to one that is drawn, as an exponent.
    gap: i32,
    /// Most by which the two operands of a product may be scaled against each other, as an exponent.
    pub(super) spread: i32,
}

/// Sizes of one probe.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scale {
    /// Exponent of a one.
    pub(super) unit: i32,
    /// Exponent of a mask.
    pub(super) mask: i32,
}

impl Room {
    /// The room that the declared arithmetic leaves.
    ///
    /// Next to M lie numbers at a distance of `2^(1-p) M` above and half of that below, for `p` bits. So `n` ones change
    /// neither M nor -M, in any order, if `M >= n * 2^(p+1)` ones. More is taken where there is room: an accumulator of
    /// f64 where f32 is declared then shows its order too.
    ///
    /// # Errors
    /// [`ProbeError::NoRoom`] if exponents do not reach that far, or the sums cannot count to `n`.
    pub(super) fn of(product: Product, n: usize, profile: &NumericProfile) -> Result<Room, ProbeError> {
        let (operand, sum) = (profile.operand, profile.accumulator);
        let (least_operand, most_operand) = exponents(operand, profile.flush_to_zero);
        let (least_sum, most_sum) = exponents(sum, profile.flush_to_zero);
        // Attention's terms are smaller than its values by the weight, 1/n.
        let shrink = if product == Product::AttentionSum { log2(n) } else { 0 };
        let lowest = least_operand.max(least_sum + shrink);
        // One power of two is kept for what is added to a mask.
        let highest = most_operand.min(most_sum) - 1;
        let needed = log2(n) + bits(sum) + 1;
        if log2(n) > bits(sum) {
            let text = format!("sums in {} do not count {n} ones exactly", sum.as_str());
            return Err(ProbeError::NoRoom(text));
        }
        if highest - lowest < needed {
            return Err(ProbeError::NoRoom(format!(
                "a mask that absorbs {n} ones in {} sums must be 2^{needed} of them; {} operands reach 2^{} at most",
                sum.as_str(),
                operand.as_str(),
                highest - lowest
            )));
        }
        let wanted = log2(n) + bits(Precision::F64) + 1;
        let gap = needed.max(wanted.min(highest - lowest));
        let roomy = highest - lowest - gap >= 4 * PLAY;
        Ok(Room { lowest, highest, gap, spread: if roomy { PLAY / 3 } else { 0 } })
    }

    /// The sizes of probe number `i`: ones around 1 where there is room, and a mask of its own.
    pub(super) fn draw(&self, stream: &Stream, i: u64) -> Scale {
        let below = |i: u64, n: i32| stream.below(i, n.max(1) as u64) as i32;
        let spare = self.highest - self.lowest - self.gap - 2 * self.spread;
        let gap = self.gap + below(2 * i, spare.min(PLAY) + 1);
        let (least, most) = (self.lowest + self.spread, self.highest - self.spread - gap);
        let from = least.max((-PLAY / 2).min(most));
        let unit = from + below(2 * i + 1, (most - from).min(PLAY) + 1);
        Scale { unit, mask: unit + gap }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(operand: Precision, accumulator: Precision, flush_to_zero: bool) -> NumericProfile {
        NumericProfile { operand, accumulator, flush_to_zero, ..NumericProfile::F32 }
    }

    #[test]
    fn masks_absorb_and_nothing_leaves_the_range() {
        use Precision::{Bf16, F16, F32, F64, Tf32};
        let stream = Stream::new(3, "room", "scale");
        for operand in [F32, Tf32, F16, Bf16] {
            for accumulator in [F64, F32, F16, Bf16] {
                for n in [8usize, 17, 100, 256] {
                    for product in Product::ALL {
                        let profile = profile(operand, accumulator, false);
                        let Ok(room) = Room::of(product, n, &profile) else { continue };
                        let (least, most) = exponents(operand, false);
                        for i in 0..200 {
                            let Scale { unit, mask } = room.draw(&stream, i);
                            assert!(unit - room.spread >= least && mask + room.spread < most);
                            assert!(mask - unit > bits(accumulator) + log2(n));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn what_has_no_room_is_said_with_both_values() {
        let error = |n, profile| match Room::of(Product::Matmul, n, &profile) {
            Err(error) => error.to_string(),
            Ok(room) => panic!("{room:?}"),
        };
        let narrow = profile(Precision::F16, Precision::F32, true);
        let text = error(256, narrow);
        assert!(text.contains("2^33") && text.contains("2^28") && text.contains("f16"), "{text}");
        assert!(Room::of(Product::Matmul, 8, &narrow).is_ok());
        assert!(Room::of(Product::Matmul, 256, &profile(Precision::F16, Precision::F32, false)).is_ok());
        assert!(Room::of(Product::Matmul, 256, &profile(Precision::Bf16, Precision::Bf16, true)).is_ok());
        let text = error(300, profile(Precision::Bf16, Precision::Bf16, true));
        assert!(text.contains("300 ones"), "{text}");
    }

    #[test]
    fn f32_leaves_room_for_f64_sums_and_for_play() {
        let room = Room::of(Product::Matmul, 256, &NumericProfile::F32).expect("room");
        assert!(room.gap >= 62 && room.spread > 0);
        let stream = Stream::new(3, "room", "scale");
        let drawn: std::collections::BTreeSet<(i32, i32)> =
            (0..500).map(|i| room.draw(&stream, i)).map(|scale| (scale.unit, scale.mask)).collect();
        assert!(drawn.len() > 200, "{}", drawn.len());
    }
}
