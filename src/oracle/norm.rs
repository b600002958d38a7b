//! The truth of `rms_norm`.

use modelbench_contract::NumericProfile;

use super::arith::Arith;
use super::error::{check_len, check_rows};
use super::value::{Bounded, Val, working_precision};
use super::{Allowance, OracleError};

/// Roundings of the mean beyond the sum: a division by n or a product with a rounded 1/n, and the sum with eps.
const MEAN_ROUNDINGS: f64 = 3.0;

/// `x / sqrt(mean(x^2) + eps) * weight` for each row of `x[P, n]`; `weight` is `[n]`, the result `[P, n]`.
///
/// All terms of `m = mean(x^2) + eps` are positive, so that `n + 3` roundings (square, sums, mean, eps), in any order,
/// keep it between `m(1-u)^(n+3)` and `m(1+u)^(n+3)`; squares that underflow add `eta` each to the sum. The root
/// halves the exponent: `1/sqrt(m)` is off by a factor between `(1+u)^(-(n+3)/2)` and `(1-u)^(-(n+3)/2)`, then by the
/// suite's `rsqrt_ulp` (at least a rounded root and a rounded division). The two products follow as running error.
///
/// # Errors
/// `Shape` if `x` is not whole rows of the weight's length; `Range` if the sum of squares overflows.
pub fn rms_norm(
    x: &[f32],
    weight: &[f32],
    eps: f32,
    profile: &NumericProfile,
    allowance: &Allowance,
) -> Result<Bounded, OracleError> {
    const OP: &str = "rms_norm";
    let n = weight.len();
    check_rows(OP, "x", x.len(), n)?;
    check_len(OP, "weight", n, &[n])?;
    let arith = Arith::new(working_precision(profile), profile.flush_to_zero);
    arith.check_operands(OP, "x", x)?;
    arith.check_operands(OP, "weight", weight)?;
    let x: Vec<Val> = x.iter().map(|&v| arith.load(v)).collect();
    Ok(normalised(&x, weight, eps, &arith, allowance)?.into_iter().collect())
}

/// Rows of values with errors, normalised.
pub(super) fn normalised(
    x: &[Val],
    weight: &[f32],
    eps: f32,
    arith: &Arith,
    allowance: &Allowance,
) -> Result<Vec<Val>, OracleError> {
    let mut all = Vec::with_capacity(x.len());
    for row in x.chunks(weight.len().max(1)) {
        let inv = inverse_root(row, eps, arith, allowance)?;
        for (&x, &w) in row.iter().zip(weight) {
            let w = arith.load(w);
            let mut y = arith.mul(arith.mul(x, inv), w);
            // An implementation may multiply by inv*weight instead; its product may be the one that underflows.
            y.e += arith.eta * x.v.abs();
            all.push(y);
        }
    }
    Ok(all)
}

fn inverse_root(row: &[Val], eps: f32, arith: &Arith, allowance: &Allowance) -> Result<Val, OracleError> {
    let n = row.len() as f64;
    let sum: f64 = row.iter().map(|x| x.v * x.v).sum();
    arith.check_range("rms_norm", "sum of squares", sum)?;
    let m = sum / n + f64::from(eps);
    let operands: f64 = row.iter().map(|x| x.e * (2.0 * x.v.abs() + x.e)).sum::<f64>() / n;
    let roundings = (n + MEAN_ROUNDINGS) * (arith.own - libm::log1p(-arith.u));
    let absolute = operands + 2.0 * arith.eta + 2.0 * arith.eta_sum + arith.load(eps).e;
    // The mean may be as low as least*(1-u)^(n+3); the absolute errors may have grown as much as the rest shrank.
    let least = m - absolute * libm::exp(2.0 * roundings);
    let v = 1.0 / m.sqrt();
    if least.is_nan() || least <= 0.0 {
        return Ok(Val { v, e: f64::INFINITY });
    }
    let low = (libm::log(m / least) + roundings) / 2.0;
    let function = arith.u * (2.0 * allowance.rsqrt_ulp).max(2.0) + 2.0 * arith.own;
    Ok(Val { v, e: v * libm::expm1(low + libm::log1p(function)) + arith.eta })
}
