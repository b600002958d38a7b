//! The truth of `swiglu`, `add_in_place` and `add_bias`.

use modelbench_contract::NumericProfile;

use super::arith::Arith;
use super::error::{check_len, check_rows};
use super::value::{Bounded, Val, working_precision};
use super::{Allowance, OracleError};

/// `gate / (1 + exp(-gate)) * up`, elementwise; all shapes are equal.
///
/// Running error: `t = exp(-gate)` within `exp_ulp`, `1 + t`, a division within `div_ulp`, one product more for those
/// who multiply by a rounded `1/(1 + t)`, and the product with `up`. Where `t` overflows in the working precision the
/// quotient may also become zero, so that it may be off by its whole (tiny) value.
///
/// # Errors
/// `Shape` if the lengths differ; `Range` if a result overflows.
pub fn swiglu(
    gate: &[f32],
    up: &[f32],
    profile: &NumericProfile,
    allowance: &Allowance,
) -> Result<Bounded, OracleError> {
    const OP: &str = "swiglu";
    check_len(OP, "up", up.len(), &[gate.len()])?;
    let arith = Arith::new(working_precision(profile), profile.flush_to_zero);
    arith.check_operands(OP, "gate", gate)?;
    arith.check_operands(OP, "up", up)?;
    let one = |(&gate, &up)| gated(arith.load(gate), arith.load(up), &arith, allowance);
    gate.iter().zip(up).map(one).collect()
}

/// `g / (1 + exp(-g)) * up` of values with errors.
pub(super) fn gated(g: Val, up: Val, arith: &Arith, allowance: &Allowance) -> Result<Val, OracleError> {
    let t = arith.exp(Val { v: -g.v, e: g.e }, allowance.exp_ulp);
    // Below -709.8 even float64 overflows, and an infinite exponential has no error to add.
    let mut silu = if t.v.is_infinite() || t.v + t.e > arith.max {
        // The value tends to g*exp(g), which float64 still holds where f32 has overflowed. An error of g moves it by at
        // most that error, since the slope of silu is then below 1.
        let v = g.v / (1.0 + t.v);
        Val { v, e: g.e + v.abs() * (1.0 + arith.relative(allowance.div_ulp)) + arith.eta }
    } else {
        arith.div(g, arith.add(Val::exact(1.0), t), allowance.div_ulp)
    };
    silu.e += arith.u * (silu.v.abs() + silu.e) + arith.eta * (1.0 + g.v.abs());
    let y = arith.mul(silu, up);
    arith.check_range("swiglu", "a result", y.v.abs())?;
    Ok(y)
}

/// `dst + src`, elementwise; shapes are equal. One rounding: `u*|want|`, and what is flushed.
///
/// # Errors
/// `Shape` if the lengths differ; `Range` if a sum of finite values overflows.
pub fn add(dst: &[f32], src: &[f32], profile: &NumericProfile) -> Result<Bounded, OracleError> {
    check_len("add_in_place", "src", src.len(), &[dst.len()])?;
    Ok(sums("add_in_place", dst, src, profile)?.into_iter().collect())
}

/// `dst[P, n] + bias[n]`, row by row; the result is `[P, n]`. One rounding, as [`add`].
///
/// # Errors
/// `Shape` if `dst` is not whole rows of the bias's length; `Range` if a sum of finite values overflows.
pub fn add_bias(dst: &[f32], bias: &[f32], profile: &NumericProfile) -> Result<Bounded, OracleError> {
    check_rows("add_bias", "dst", dst.len(), bias.len())?;
    let rows = dst.chunks(bias.len()).map(|row| sums("add_bias", row, bias, profile));
    Ok(rows.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

fn sums(op: &'static str, a: &[f32], b: &[f32], profile: &NumericProfile) -> Result<Vec<Val>, OracleError> {
    let arith = Arith::new(working_precision(profile), profile.flush_to_zero);
    arith.check_operands(op, "an operand", a)?;
    arith.check_operands(op, "an operand", b)?;
    let one = |(&a, &b)| {
        let y = arith.add(arith.load(a), arith.load(b));
        arith.check_range(op, "a result", y.v.abs())?;
        Ok(y)
    };
    a.iter().zip(b).map(one).collect()
}
