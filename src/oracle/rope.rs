//! The truth of `rope`.

use modelbench_contract::{NumericProfile, Precision, RopeSpec};

use super::arith::Arith;
use super::error::check_rows;
use super::value::{Bounded, Val, working_precision};
use super::{Allowance, OracleError};

/// Float64 roundings of an angle, counted for both sides: exponent, power, inverse and product, and the arguments of
/// sine and cosine.
const ANGLE_ROUNDINGS: f64 = 16.0;

/// Rotates the pairs `(j, j + head_dim/2)` of each head of each row of `x[P, n_heads*head_dim]` by
/// `(pos + p) * theta^(-2j/head_dim)`; the result has the shape of `x`.
///
/// The angle is taken in float64. Sine and cosine may be off by `trig_ulp*u` (at least by their own rounding) and by the
/// error of the angle: a few float64 roundings of it, or, where the suite says `angle_f32`, the roundings of frequency
/// and angle in the working precision, `angle*u*(3*|ln theta|*2j/head_dim + 2)` plus that of the power. Two products
/// and a sum follow as running error.
///
/// # Errors
/// `Size` if `head_dim` is odd or zero or there are no heads; `Shape` if `x` is not whole rows.
pub fn rope(
    x: &[f32],
    spec: RopeSpec,
    profile: &NumericProfile,
    allowance: &Allowance,
) -> Result<Bounded, OracleError> {
    const OP: &str = "rope";
    let dim = spec.head_dim;
    let width = spec.n_heads.checked_mul(dim).unwrap_or(0);
    if dim == 0 || !dim.is_multiple_of(2) || width == 0 {
        let why = format!(
            "{} heads of {dim} elements: expected at least one head and an even number of elements",
            spec.n_heads
        );
        return Err(OracleError::Size { op: OP, why });
    }
    check_rows(OP, "x", x.len(), width)?;
    let arith = Arith::new(working_precision(profile), profile.flush_to_zero);
    arith.check_operands(OP, "x", x)?;
    let x: Vec<Val> = x.iter().map(|&v| arith.load(v)).collect();
    Ok(rotated(&x, spec, &arith, allowance).into_iter().collect())
}

/// Rows of values with errors, rotated.
pub(super) fn rotated(x: &[Val], spec: RopeSpec, arith: &Arith, allowance: &Allowance) -> Vec<Val> {
    let (width, half) = (spec.n_heads * spec.head_dim, spec.head_dim / 2);
    let mut out = vec![Val::exact(0.0); x.len()];
    for row in 0..x.len() / width {
        for j in 0..half {
            let (cos, sin) = rotation(spec.pos + row, j, spec, arith, allowance);
            for head in 0..spec.n_heads {
                let first = row * width + head * spec.head_dim + j;
                let (a, b) = (x[first], x[first + half]);
                let minus = Val { v: -b.v, e: b.e };
                out[first] = arith.add(arith.mul(a, cos), arith.mul(minus, sin));
                out[first + half] = arith.add(arith.mul(b, cos), arith.mul(a, sin));
            }
        }
    }
    out
}

fn rotation(pos: usize, j: usize, spec: RopeSpec, arith: &Arith, allowance: &Allowance) -> (Val, Val) {
    let exponent = 2.0 * j as f64 / spec.head_dim as f64;
    let theta = f64::from(spec.theta);
    let angle = pos as f64 * (1.0 / libm::pow(theta, exponent));
    let slope = (libm::log(theta) * exponent).abs();
    let mut angle_error = angle * Precision::F64.unit_roundoff() * (ANGLE_ROUNDINGS + slope);
    if allowance.angle_f32 {
        angle_error += angle * (arith.u * (3.0 * slope + 2.0) + arith.relative(allowance.exp_ulp));
    }
    let function = |v: f64| Val {
        v,
        // Neither function leaves [-1, 1], so no error exceeds 2 but for its own rounding.
        e: angle_error.min(2.0) + (arith.u * v.abs()).max(allowance.trig_ulp * arith.u) + arith.eta,
    };
    (function(libm::cos(angle)), function(libm::sin(angle)))
}
