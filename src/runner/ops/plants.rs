//! Special values, planted into operands that are otherwise ordinary.

use super::super::CheckError;
use crate::inputs::Operand;
use crate::suite::Case;

/// Values that are planted into one element, at the index of the axis `at` of the first row.
const SINGLE: [(&str, f32); 9] = [
    ("nan", f32::NAN),
    ("infinity", f32::INFINITY),
    ("minus-infinity", f32::NEG_INFINITY),
    ("minus-zero", -0.0),
    // Halves, so that one rounded product or sum with a number below 1 stays finite.
    ("largest", f32::MAX / 2.0),
    ("minus-largest", -f32::MAX / 2.0),
    ("smallest-normal", f32::MIN_POSITIVE),
    ("largest-denormal", f32::from_bits(0x007f_ffff)),
    ("smallest-denormal", f32::from_bits(1)),
];

/// Values that fill the first row.
const WHOLE: [(&str, f32); 7] = [
    ("row-of-zeros", 0.0),
    ("row-of-minus-zeros", -0.0),
    ("row-of-equals", 0.75),
    ("row-of-nan", f32::NAN),
    ("row-of-infinity", f32::INFINITY),
    ("row-of-minus-infinity", f32::NEG_INFINITY),
    ("row-of-denormals", f32::from_bits(0x0040_0001)),
];

/// The names that the axis `plant` takes, beside those of attention.
pub fn names() -> Vec<&'static str> {
    let names = SINGLE.iter().chain(&WHOLE).map(|(name, _)| *name);
    names.chain(super::attention::PLANTS).collect()
}

/// Plants what the case asks for into its operand: the one that the axis `into` names, or else `usual`.
///
/// # Errors
/// A suite error if the operand does not exist or is not f32.
pub fn plant(case: &Case, usual: &str, operands: &mut [Operand]) -> Result<(), CheckError> {
    if !case.params().contains_key("plant") {
        return Ok(());
    }
    let what = case.text("plant")?;
    let into = if case.params().contains_key("into") { case.text("into")? } else { usual };
    let names: Vec<&str> = operands.iter().map(|operand| operand.name).collect();
    let Some(operand) = operands.iter_mut().find(|operand| operand.name == into) else {
        return Err(case.invalid(format!("into = {into:?}: expected one of {}", names.join(", "))).into());
    };
    if operand.tensor.dtype() != modelbench_contract::DType::F32 {
        let text = format!("into = {into:?}: values are planted into f32 operands only");
        return Err(case.invalid(text).into());
    }
    let row = operand.tensor.desc().row_len();
    let mut values = operand.values.clone();
    if let Some((_, value)) = SINGLE.iter().find(|(name, _)| *name == what) {
        // Counted from the front, or around from the back: `at = 4096` of a row of 4097 is its last element.
        values[case.size("at")? % row] = *value;
    } else if let Some((_, value)) = WHOLE.iter().find(|(name, _)| *name == what) {
        values[..row].fill(*value);
    } else {
        return Err(case
            .invalid(format!("plant = {what:?} is for attention with a \"select\" recipe"))
            .into());
    }
    *operand = Operand::from_f32(operand.name, &operand.tensor.desc().shape.clone(), values)?;
    Ok(())
}
