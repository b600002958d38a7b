//! The truth of `matmul` and `batched_matmul`.

use modelbench_contract::{Activation, DType, NumericProfile};
use rayon::prelude::*;

use super::arith::Arith;
use super::error::{check_len, check_rows};
use super::value::{Bounded, Val, working_precision};
use super::{Allowance, OracleError};

/// Elements that share one scale when a backend quantises its activations.
const Q8_BLOCK: usize = 32;
/// Largest code of such a block.
const Q8_MAX: f64 = 127.0;

/// A weight matrix `[out, in]`.
#[derive(Debug, Clone, Copy)]
pub struct Weight<'a> {
    /// The exact values that the stored bytes stand for, row-major.
    pub values: &'a [f32],
    /// How the weight is stored.
    pub dtype: DType,
    /// For formats whose value is a difference (`q4_k`: `scale*code - min`), the sum of the magnitudes of both parts,
    /// same shape. A backend may sum the parts apart, and its error follows these. `None` where a value is one product.
    pub magnitudes: Option<&'a [f32]>,
}

impl<'a> Weight<'a> {
    /// A weight of a plain float type.
    pub fn plain(values: &'a [f32], dtype: DType) -> Weight<'a> {
        Weight { values, dtype, magnitudes: None }
    }
}

/// `w[out, in]` times each row of `x[P, in]`: `[P, out]`. `matmul` is the case `P = 1`.
///
/// With `K = in`, each term `w*x` meets at most one rounding as a product and `K - 1` as part of sums, whatever the
/// order, so that the sum is within `((1+u)^K - 1) * sum|w||x|` of the truth (u of the accumulator; Higham,
/// *Accuracy and Stability*, 3.1). To this come
/// - operands that the declared operand precision cannot hold: `|w|*ex + |x|*ew + ew*ex` per term, with half a
///   spacing as `ew`, `ex`, or the whole value where it is a flushed denormal;
/// - dequantisation: the roundings of a scale and of a difference, on the magnitudes of the parts;
/// - activations quantised to int8 against `q8_0` (if declared): `ex = d/2` with `d = amax/127` of the block of 32,
///   enlarged by the roundings of `d`, of its inverse and of the product;
/// - underflow of each product (and of each sum where denormals are flushed): one absolute `eta` each;
/// - `u_out*|want|` for the f32 result, and the rounding of the float64 sum itself.
///
/// # Errors
/// `Shape` if an operand is not whole rows of `k`; `Range` if finite operands do not fit the declared operand precision
/// or their products' sum leaves the range of the accumulator.
pub fn matmul(
    w: &Weight<'_>,
    x: &[f32],
    k: usize,
    profile: &NumericProfile,
    allowance: &Allowance,
) -> Result<Bounded, OracleError> {
    const OP: &str = "matmul";
    let out = check_rows(OP, "w", w.values.len(), k)?;
    check_rows(OP, "x", x.len(), k)?;
    if let Some(magnitudes) = w.magnitudes {
        check_len(OP, "the magnitudes of w", magnitudes.len(), &[out, k])?;
    }
    let flush = profile.flush_to_zero;
    let last = Arith::new(working_precision(profile), flush);
    let operand = Arith::new(profile.operand, flush);
    let int8 = profile.q8_activation == Activation::Int8 && w.dtype == DType::Q8_0;
    operand.check_operands(OP, "x", x)?;
    operand.check_operands(OP, "w", w.values)?;

    let xs: Vec<Val> = if int8 {
        let scale =
            Arith::new(if operand.u > last.u { profile.operand } else { working_precision(profile) }, flush);
        x.chunks(k)
            .flat_map(|row| row.chunks(Q8_BLOCK))
            .flat_map(|b| quantised(b, &last, &scale, allowance))
            .collect()
    } else {
        x.iter().map(|&v| operand.load(v)).collect()
    };
    Ok(product(w, &xs, k, profile)?.into_iter().collect())
}

/// The products with rows of activations that have errors of their own; sizes are checked by the caller.
pub(super) fn product(
    w: &Weight<'_>,
    xs: &[Val],
    k: usize,
    profile: &NumericProfile,
) -> Result<Vec<Val>, OracleError> {
    const OP: &str = "matmul";
    let (out, rows) = (w.values.len() / k, xs.len() / k);
    let flush = profile.flush_to_zero;
    let acc = Arith::new(profile.accumulator, flush);
    let last = Arith::new(working_precision(profile), flush);
    let operand = Arith::new(profile.operand, flush);
    let int8 = profile.q8_activation == Activation::Int8 && w.dtype == DType::Q8_0;
    let extra = dequantisation_roundings(w.dtype, k);
    let growth = acc.growth(k as f64 + extra);
    let underflow = k as f64 * (acc.eta + acc.eta_sum) * (1.0 + growth);
    let own = Arith::new(modelbench_contract::Precision::F64, false).growth(k as f64);

    // One column of the result per row of the weight, so that each weight is loaded once.
    let columns: Vec<Vec<Val>> = (0..out)
        .into_par_iter()
        .map(|o| {
            let values = &w.values[o * k..(o + 1) * k];
            let ws: Vec<Val> = values
                .iter()
                .map(|&v| if int8 { Val::exact(f64::from(v)) } else { operand.load(v) })
                .collect();
            let magnitudes = w.magnitudes.map_or(values, |m| &m[o * k..(o + 1) * k]);
            xs.chunks(k)
                .map(|xs| {
                    let (mut v, mut size, mut e) = (0.0, 0.0, 0.0);
                    for ((w, x), &m) in ws.iter().zip(xs).zip(magnitudes) {
                        v += w.v * x.v;
                        size += f64::from(m).abs() * (x.v.abs() + x.e);
                        e += w.v.abs() * x.e + x.v.abs() * w.e + w.e * x.e;
                    }
                    acc.check_range(OP, "sum of |w||x|", size)?;
                    let e = e + growth * (size + e) + underflow + own * size;
                    Ok(last.rounded(v, e, last.u, last.eta))
                })
                .collect::<Result<Vec<Val>, OracleError>>()
        })
        .collect::<Result<_, _>>()?;
    Ok((0..rows).flat_map(|row| columns.iter().map(move |column| column[row])).collect())
}

/// Roundings that a term meets beyond those of a plain dot product: a scale, its product with the activation's scale,
/// a code, a minimum; and for `q4_k` the sums over the minima, one for every 32 elements.
fn dequantisation_roundings(dtype: DType, k: usize) -> f64 {
    match dtype {
        DType::F32 | DType::F16 | DType::Bf16 | DType::Fp8E4m3 | DType::Fp8E5m2 => 0.0,
        DType::Q8_0 => 2.0,
        DType::I8 | DType::I4 => 3.0,
        DType::Q4K => 4.0 + k.div_ceil(32) as f64,
    }
}

/// A block of activations after a round trip through 8-bit codes.
///
/// `d = amax/127`, `y = x*(1/d)`, code within 1/2 of `y`, value `code*d`: the difference from `x` is at most
/// `d/2` for the code, `|x|` times the roundings of `d`, `1/d` and the product, and `127*d` times the rounding of the
/// stored `d` (in the operand precision if that is the coarser one).
fn quantised(block: &[f32], arith: &Arith, scale: &Arith, allowance: &Allowance) -> Vec<Val> {
    let amax = block.iter().fold(0.0f64, |m, &v| m.max(f64::from(v).abs()));
    let division = arith.relative(allowance.div_ulp);
    let largest = amax * (1.0 + division);
    let roundings = libm::expm1(2.0 * libm::log1p(division) + libm::log1p(arith.u));
    let common = if amax == 0.0 {
        0.0
    } else {
        largest / (2.0 * Q8_MAX) + largest * scale.u + Q8_MAX * (arith.eta + scale.eta)
    };
    let value = |&x: &f32| Val { v: f64::from(x), e: common + f64::from(x).abs() * roundings };
    block.iter().map(value).collect()
}
