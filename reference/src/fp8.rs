//! The two 8-bit floats of the OCP specification.
//!
//! Narrowing rounds to nearest even and does not saturate: what rounds beyond the largest finite value becomes NaN in
//! `e4m3`, which has no infinities, and infinity in `e5m2`.

/// Mantissa bits after the leading one, exponent bias, and the codes of overflow and NaN without their sign.
struct Format {
    mantissa: u32,
    bias: u32,
    overflow: u8,
    nan: u8,
}

const E4M3: Format = Format { mantissa: 3, bias: 7, overflow: 0x7f, nan: 0x7f };
const E5M2: Format = Format { mantissa: 2, bias: 15, overflow: 0x7c, nan: 0x7e };

/// Value of an `e4m3` code.
pub(crate) fn e4m3_to_f32(code: u8) -> f32 {
    let sign = u32::from(code & 0x80) << 24;
    let (exponent, mantissa) = (u32::from(code >> 3) & 15, u32::from(code & 7));
    let magnitude = match (exponent, mantissa) {
        (15, 7) => f32::NAN,
        // Subnormals are multiples of 2^-9.
        (0, m) => m as f32 * (1.0 / 512.0),
        (e, m) => f32::from_bits(((e + 127 - E4M3.bias) << 23) | (m << 20)),
    };
    f32::from_bits(magnitude.to_bits() | sign)
}

/// Value of an `e5m2` code, which is the upper half of a binary16.
pub(crate) fn e5m2_to_f32(code: u8) -> f32 {
    half::f16::from_bits(u16::from(code) << 8).to_f32()
}

/// Nearest `e4m3` code, ties to even; NaN beyond the finite range.
pub(crate) fn f32_to_e4m3(value: f32) -> u8 {
    encode(value, &E4M3)
}

/// Nearest `e5m2` code, ties to even; infinity beyond the finite range.
pub(crate) fn f32_to_e5m2(value: f32) -> u8 {
    encode(value, &E5M2)
}

fn encode(value: f32, format: &Format) -> u8 {
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    if value.is_nan() {
        return sign | format.nan;
    }
    let bits = value.abs().to_bits();
    let smallest_normal = (127 + 1 - format.bias) << 23;
    let code = if bits < smallest_normal {
        // Scaling by a power of two is exact, so this counts steps of the subnormal grid; rounding up to the
        // smallest normal gives its code.
        let steps_per_unit = f32::from_bits((127 + format.bias - 1 + format.mantissa) << 23);
        (value.abs() * steps_per_unit).round_ties_even() as u32
    } else {
        // Adding just under half a step, plus the last kept bit, rounds to nearest even; a carry moves into the
        // exponent as it should.
        let drop = 23 - format.mantissa;
        let last_kept = (bits >> drop) & 1;
        let rounded = (bits + (1 << (drop - 1)) - 1 + last_kept) >> drop;
        rounded - ((127 - format.bias) << format.mantissa)
    };
    sign | u8::try_from(code).map_or(format.overflow, |code| code.min(format.overflow))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, encode: fn(f32) -> u8, decode: fn(u8) -> f32, finite: u8, beyond: u8) {
        for code in 0..=finite {
            let value = decode(code);
            for (v, sign) in [(value, 0u8), (-value, 0x80)] {
                assert_eq!(encode(v), code | sign, "{name} {v}");
                assert_eq!(decode(code | sign).to_bits(), v.to_bits(), "{name} code {code:#x}");
            }
            if code == finite {
                continue;
            }
            let next = decode(code + 1);
            let middle = value + (next - value) / 2.0;
            let even = if code % 2 == 0 { code } else { code + 1 };
            assert_eq!(encode(middle), even, "{name}: {middle} is a tie");
            assert_eq!(encode(middle.next_down()), code, "{name} below a tie");
            assert_eq!(encode(middle.next_up()), code + 1, "{name} above a tie");
        }
        let step = decode(finite) - decode(finite - 1);
        let tie = decode(finite) + step / 2.0;
        assert_eq!(encode(tie.next_down()), finite, "{name}");
        assert_eq!(encode(tie.next_up()), beyond, "{name}");
        assert_eq!(encode(f32::MAX), beyond, "{name}");
        assert_eq!(encode(f32::INFINITY), beyond, "{name}");
        assert!(decode(encode(f32::NAN)).is_nan(), "{name}");
    }

    #[test]
    fn every_code_and_every_tie() {
        check("e4m3", f32_to_e4m3, e4m3_to_f32, 0x7e, 0x7f);
        check("e5m2", f32_to_e5m2, e5m2_to_f32, 0x7b, 0x7c);
        assert_eq!(e4m3_to_f32(0x7e), 448.0);
        assert_eq!(f32_to_e4m3(464.0), 0x7e, "the tie beyond 448 goes to the even code");
        assert_eq!(e5m2_to_f32(0x7b), 57344.0);
        assert_eq!(f32_to_e5m2(61440.0), 0x7c, "the tie beyond the largest goes to the even code, infinity");
    }
}
