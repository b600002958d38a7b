//! Every code of the narrow floats, and rounding around every tie, bit for bit: cpu-ref through upload and read, and a
//! decoder of its own that follows the formats' definitions.

use half::{bf16, f16};
use modelbench_contract::{Backend, DType, HostTensor};
use modelbench_reference::CpuRef;
use safetensors::SafeTensors;

use crate::file::{self, Fields};

/// The narrow floats: exponent bits, mantissa bits, and whether the largest exponent holds infinity and NaN (if not,
/// only the code of all ones is NaN).
const KINDS: [(DType, u32, u32, bool); 4] = [
    (DType::F16, 5, 10, true),
    (DType::Bf16, 8, 7, true),
    (DType::Fp8E4m3, 4, 3, false),
    (DType::Fp8E5m2, 5, 2, true),
];

/// Equal bits, where every NaN is the same.
fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

fn require(kind: DType, what: &str, input: f64, got: f32, want: f32) {
    assert!(
        same(got, want),
        "defect of the kit: {kind} {what} of {input:e} is {got:e}, the golden says {want:e}"
    );
}

/// The codes as bytes of a tensor.
fn bytes(kind: DType, codes: impl Iterator<Item = u32>) -> Vec<u8> {
    let size = kind.block_bytes();
    codes.flat_map(|code| code.to_le_bytes().into_iter().take(size)).collect()
}

/// cpu-ref's values of codes.
fn decoded(kind: DType, codes: Vec<u32>) -> Vec<f32> {
    let mut cpu = CpuRef::new();
    let tensor = HostTensor::from_bytes(&[codes.len()], kind, bytes(kind, codes.into_iter())).unwrap();
    let tensor = cpu.upload(&tensor, kind).unwrap();
    cpu.read(&tensor).unwrap()
}

/// cpu-ref's values of f32 after narrowing.
fn narrowed(kind: DType, values: &[f32]) -> Vec<f32> {
    let mut cpu = CpuRef::new();
    let tensor = cpu.upload(&HostTensor::from_f32(&[values.len()], values).unwrap(), kind).unwrap();
    cpu.read(&tensor).unwrap()
}

/// Codes of a field, widened.
fn codes(fields: Fields<'_>, kind: DType, field: &str) -> Vec<u32> {
    if kind.block_bytes() == 2 {
        fields.u16s(field).into_iter().map(u32::from).collect()
    } else {
        fields.bytes(field).into_iter().map(u32::from).collect()
    }
}

/// The value of a code, by the definition of the formats.
fn defined(code: u32, exponent_bits: u32, mantissa_bits: u32, ieee: bool) -> f64 {
    let sign = if code >> (exponent_bits + mantissa_bits) == 1 { -1.0 } else { 1.0 };
    let (largest, bias) = ((1 << exponent_bits) - 1, (1 << (exponent_bits - 1)) - 1);
    let exponent = (code >> mantissa_bits) & largest;
    let mantissa = code & ((1 << mantissa_bits) - 1);
    let steps = f64::from(1u32 << mantissa_bits);
    let special = exponent == largest && if ieee { true } else { mantissa + 1 == 1 << mantissa_bits };
    sign * match (special, exponent) {
        (true, _) if ieee && mantissa == 0 => f64::INFINITY,
        (true, _) => f64::NAN,
        (_, 0) => f64::from(mantissa) / steps * 2f64.powi(1 - bias),
        _ => (1.0 + f64::from(mantissa) / steps) * 2f64.powi(exponent as i32 - bias),
    }
}

#[test]
fn every_code_has_the_value_of_the_golden() {
    let bytes = file::read("conversions.safetensors");
    let golden = SafeTensors::deserialize(&bytes).unwrap();
    for (kind, exponent, mantissa, ieee) in KINDS {
        let want = Fields { file: &golden, prefix: kind.as_str() }.f32s("f32");
        let all = 1u32 << (8 * kind.block_bytes());
        assert_eq!(want.len(), all as usize, "{kind}");
        let got = decoded(kind, (0..all).collect());
        for (code, (&got, &want)) in (0..all).zip(got.iter().zip(&want)) {
            require(kind, "value of code", f64::from(code), got, want);
            let defined = defined(code, exponent, mantissa, ieee) as f32;
            require(kind, "definition of code", f64::from(code), defined, want);
            // The kit makes its operands with the `half` crate.
            match kind {
                DType::F16 => {
                    require(
                        kind,
                        "operand of code",
                        f64::from(code),
                        f16::from_bits(code as u16).to_f32(),
                        want,
                    );
                }
                DType::Bf16 => {
                    require(
                        kind,
                        "operand of code",
                        f64::from(code),
                        bf16::from_bits(code as u16).to_f32(),
                        want,
                    );
                }
                _ => {}
            }
        }
    }
}

#[test]
fn every_value_tie_and_neighbour_rounds_to_the_code_of_the_golden() {
    let bytes = file::read("conversions.safetensors");
    let golden = SafeTensors::deserialize(&bytes).unwrap();
    for (kind, ..) in KINDS {
        let fields = Fields { file: &golden, prefix: kind.as_str() };
        let value = fields.f32s("f32");
        let sign = 1usize << (8 * kind.block_bytes() - 1);
        let (mut x, mut want) = (Vec::new(), Vec::new());
        // Each code's own value, NaN and infinities among them.
        x.extend(&value);
        want.extend(&value);
        let rounded = codes(fields, kind, "rounded");
        for (middle, rounded) in fields.f32s("middle").iter().zip(rounded.as_chunks::<3>().0) {
            for (x_of, code) in [middle.next_down(), *middle, middle.next_up()].iter().zip(rounded) {
                x.extend([*x_of, -x_of]);
                want.extend([value[*code as usize], value[*code as usize | sign]]);
            }
        }
        assert_eq!(rounded.len(), 3 * (value.iter().filter(|v| v.is_finite()).count() / 2), "{kind}");
        x.extend(fields.f32s("special_x"));
        want.extend(codes(fields, kind, "special_y").iter().map(|&code| value[code as usize]));
        assert_eq!(x.len(), want.len(), "{kind}");
        for (i, got) in narrowed(kind, &x).into_iter().enumerate() {
            require(kind, "rounding", f64::from(x[i]), got, want[i]);
            let of_half = match kind {
                DType::F16 => f16::from_f32(x[i]).to_f32(),
                DType::Bf16 => bf16::from_f32(x[i]).to_f32(),
                _ => continue,
            };
            require(kind, "rounding of an operand", f64::from(x[i]), of_half, want[i]);
        }
    }
}
