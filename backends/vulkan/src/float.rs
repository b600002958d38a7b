//! 8-bit floats as binary16, which holds every value of both formats exactly.

use half::f16;

/// The binary16 number with the value of an OCP e4m3 byte. It has no infinities; `0x7f` and `0xff` are NaN.
pub(crate) fn e4m3(byte: u8) -> f16 {
    let (magnitude, sign) = (byte & 0x7f, f32::from(1 - 2 * (byte >> 7) as i8));
    if magnitude == 0x7f {
        return f16::NAN;
    }
    let (exponent, fraction) = (i32::from(magnitude >> 3), f32::from(magnitude & 7) / 8.0);
    // Exact in f32 and in binary16: at most four bits, from 2^-9 to 448.
    let (significand, power) = if exponent == 0 { (fraction, -6) } else { (1.0 + fraction, exponent - 7) };
    f16::from_f32(sign * significand * (power as f32).exp2())
}

/// The binary16 number with the value of an OCP e5m2 byte, which is its upper half.
pub(crate) fn e5m2(byte: u8) -> f16 {
    f16::from_bits(u16::from(byte) << 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_bytes_have_their_values() {
        let known =
            [(0x00, 0.0), (0x01, 0.001_953_125), (0x08, 0.015_625), (0x38, 1.0), (0xb8, -1.0), (0x7e, 448.0)];
        for (byte, value) in known {
            assert_eq!(e4m3(byte).to_f32(), value, "{byte:#x}");
        }
        assert_eq!(e4m3(0x80).to_bits(), 0x8000);
        assert!(e4m3(0x7f).is_nan() && e4m3(0xff).is_nan());
        assert_eq!(e5m2(0x3c).to_f32(), 1.0);
        assert_eq!(e5m2(0x01).to_f32(), 1.0 / 65_536.0);
        assert_eq!(e5m2(0xfc).to_f32(), f32::NEG_INFINITY);
    }
}
