//! q8_0 blocks: what `gguf` and `libgguf` quantise, cpu-ref must quantise to the same codes; and blocks of bytes, q4_k
//! among them, must decode to the same values.

use half::f16;
use modelbench_contract::{Backend, DType, HostTensor};
use modelbench_reference::{CpuRef, ops};
use safetensors::SafeTensors;

use crate::file::{self, Fields};

/// Rows of each kind in the golden.
const ROWS: [(&str, usize); 11] = [
    ("above", 24),
    ("below", 24),
    ("denormal", 16),
    ("equal", 8),
    ("even", 32),
    ("huge", 8),
    ("one", 4),
    ("spread", 64),
    ("ties", 24),
    ("tiny", 8),
    ("zeros", 3),
];

/// The code of an element by the definition: `x/d` rounded to nearest, ties away from zero. The contract multiplies by
/// an inverse rounded to f32, so this decides only where the quotient is not within its error of a tie.
fn defined(x: f32, scale: f32) -> Option<i8> {
    if scale == 0.0 {
        return Some(0);
    }
    let y = f64::from(x) / f64::from(scale);
    let to_tie = (y.abs().fract() - 0.5).abs();
    // Three f32 roundings: of the scale, its inverse, and the product.
    (to_tie > 3.0 * y.abs() * f64::from(f32::EPSILON)).then(|| y.round().clamp(-127.0, 127.0) as i8)
}

#[test]
fn f32_rows_become_the_blocks_of_the_golden() {
    let bytes = file::read("q8_0_quantise.safetensors");
    let golden = SafeTensors::deserialize(&bytes).unwrap();
    let (mut counts, mut decided, mut all) = (Vec::new(), 0, 0);
    for (kind, _) in ROWS {
        let fields = Fields { file: &golden, prefix: kind };
        let (x, raw, scale) = (fields.f32s("x"), fields.bytes("raw"), fields.f32s("scale"));
        let q8 = ops::quantise_q8_0(&x).unwrap();
        let mut cpu = CpuRef::new();
        let rows = HostTensor::from_f32(&[x.len() / 32, 32], &x).unwrap();
        let narrowed = cpu.upload(&rows, DType::Q8_0).unwrap();
        let narrowed = cpu.read(&narrowed).unwrap();
        for (row, block) in raw.as_chunks::<34>().0.iter().enumerate() {
            let who = format!("defect of the kit: q8_0 quantise {kind}[{row}]");
            assert_eq!(q8.scales[row].to_bits(), scale[row].to_bits(), "{who}: scale");
            assert_eq!(f16::from_f32(q8.scales[row]).to_le_bytes(), block[..2], "{who}: scale in binary16");
            for k in 0..32 {
                let (i, want) = (row * 32 + k, block[2 + k] as i8);
                assert_eq!(q8.codes[i], want, "{who}: code {k} of {:e}", x[i]);
                // -0 where a code is 0 under a scale of either sign does not occur: scales are not negative.
                let value = f32::from(want) * scale[row];
                assert_eq!(narrowed[i].to_bits(), value.to_bits(), "{who}: value {k} of {:e}", x[i]);
                all += 1;
                if let Some(code) = defined(x[i], scale[row]) {
                    assert_eq!(code, want, "{who}: code {k} of {:e} by the definition", x[i]);
                    decided += 1;
                }
            }
        }
        counts.push((kind, scale.len()));
    }
    assert_eq!(counts, ROWS, "every row was compared");
    assert_eq!(golden.names().len(), 3 * ROWS.len());
    assert!(decided * 2 > all, "the definition decides {decided} of {all}");
}

#[test]
fn stored_blocks_decode_to_the_values_of_the_golden() {
    let bytes = file::read("gguf_blocks.safetensors");
    let golden = SafeTensors::deserialize(&bytes).unwrap();
    for (name, kind) in
        [("F16", DType::F16), ("BF16", DType::Bf16), ("Q8_0", DType::Q8_0), ("Q4_K", DType::Q4K)]
    {
        let fields = Fields { file: &golden, prefix: name };
        let (raw, want) = (fields.bytes("raw"), fields.f32s("f32"));
        let mut cpu = CpuRef::new();
        let stored = cpu.upload(&HostTensor::from_bytes(&[4, 512], kind, raw).unwrap(), kind).unwrap();
        let got = cpu.read(&stored).unwrap();
        assert_eq!(got.len(), want.len());
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            let who = "defect of the kit: cpu-ref decodes";
            assert_eq!(
                got.to_bits(),
                want.to_bits(),
                "{who} {name}[{i}] to {got:e}, the golden says {want:e}"
            );
        }
    }
}
