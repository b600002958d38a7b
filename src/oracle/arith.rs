//! The standard model of floating-point arithmetic, with underflow, for one precision.
//!
//! A correctly rounded operation gives `fl(a op b) = (a op b)(1 + d) + h` with `|d| <= u` and `|h| <= eta`, where at
//! most one of the two is not zero: `u = 2^-p`, and `eta` is half the smallest denormal, or the smallest normal
//! number where denormals are flushed. Sums of denormals are exact unless flushed.

use modelbench_contract::Precision;

use super::OracleError;
use super::value::Val;

/// One declared precision.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arith {
    /// Unit roundoff.
    pub(super) u: f64,
    /// Absolute error of a product or quotient that underflows.
    pub(super) eta: f64,
    /// Absolute error of a sum that underflows: 0 unless denormals are flushed.
    pub(super) eta_sum: f64,
    /// Largest finite number.
    pub(super) max: f64,
    /// Unit roundoff of float64, in which the truth itself is computed.
    pub(super) own: f64,
    bits: i32,
    min_exponent: i32,
    flush: bool,
}

impl Arith {
    /// The arithmetic of a precision, with or without denormals.
    pub(super) fn new(precision: Precision, flush: bool) -> Arith {
        let u = precision.unit_roundoff();
        let bits = -exponent(u);
        let (min_exponent, max_exponent) = match precision {
            Precision::F64 => (-1022, 1023),
            Precision::F32 | Precision::Tf32 | Precision::Bf16 => (-126, 127),
            Precision::F16 => (-14, 15),
        };
        let min_normal = power_of_two(min_exponent);
        Arith {
            u,
            eta: if flush { min_normal } else { min_normal * u },
            eta_sum: if flush { min_normal } else { 0.0 },
            max: power_of_two(max_exponent) * (1.0 + (1.0 - 2.0 * u)),
            own: Precision::F64.unit_roundoff(),
            bits,
            min_exponent,
            flush,
        }
    }

    /// Relative growth of an error over `n` roundings: `(1 + u)^n - 1`.
    ///
    /// It is at most the textbook `n*u/(1 - n*u)`, equal to it to first order, and holds for every `n`.
    pub(super) fn growth(&self, n: f64) -> f64 {
        libm::expm1(n * libm::log1p(self.u))
    }

    /// Relative error of a function that is good to `ulp`, never better than correct rounding.
    pub(super) fn relative(&self, ulp: f64) -> f64 {
        self.u * (2.0 * ulp).max(1.0)
    }

    /// An f32 operand rounded to nearest in this precision; exact if it is representable and not flushed.
    pub(super) fn load(&self, x: f32) -> Val {
        let v = f64::from(x);
        Val { v, e: self.load_error(v) }
    }

    fn load_error(&self, v: f64) -> f64 {
        if v == 0.0 || !v.is_finite() {
            return 0.0;
        }
        let exponent = exponent(v).max(self.min_exponent);
        if self.flush && v.abs() < power_of_two(self.min_exponent) {
            return v.abs();
        }
        // Every f32 is a multiple of the spacing of f32 and of anything finer.
        let spacing = power_of_two((exponent - (self.bits - 1)).max(-1022));
        if (v / spacing).fract() == 0.0 { 0.0 } else { spacing / 2.0 }
    }

    /// `a + b`, rounded.
    pub(super) fn add(&self, a: Val, b: Val) -> Val {
        let v = a.v + b.v;
        self.rounded(v, a.e + b.e, self.u, self.eta_sum)
    }

    /// `a * b`, rounded.
    pub(super) fn mul(&self, a: Val, b: Val) -> Val {
        let e = a.v.abs() * b.e + b.v.abs() * a.e + a.e * b.e;
        self.rounded(a.v * b.v, e, self.u, self.eta)
    }

    /// `a / b`, good to `ulp`. The error is infinite if `b` may be zero.
    pub(super) fn div(&self, a: Val, b: Val, ulp: f64) -> Val {
        let v = a.v / b.v;
        let least = b.v.abs() - b.e;
        let e = if least > 0.0 { (a.e + v.abs() * b.e) / least } else { f64::INFINITY };
        self.rounded(v, e, self.relative(ulp), self.eta)
    }

    /// `exp(a)`, good to `ulp`; the error of the argument is amplified by `exp(e) - 1`.
    pub(super) fn exp(&self, a: Val, ulp: f64) -> Val {
        let v = libm::exp(a.v);
        self.rounded(v, v * libm::expm1(a.e), self.relative(ulp) + self.own, self.eta)
    }

    /// A value with error `e`, after one more rounding of relative size `u` and absolute size `eta`. The last term is
    /// the rounding of the float64 value itself.
    pub(super) fn rounded(&self, v: f64, e: f64, u: f64, eta: f64) -> Val {
        Val { v, e: e + u * (v.abs() + e) + eta + self.own * v.abs() }
    }

    /// Refuses finite data whose intermediate results overflow in this precision.
    pub(super) fn check_range(
        &self,
        op: &'static str,
        what: &'static str,
        value: f64,
    ) -> Result<(), OracleError> {
        if value.is_finite() && value > self.max {
            return Err(OracleError::Range { op, what, value, limit: self.max });
        }
        Ok(())
    }

    /// Refuses finite operands that this precision cannot hold.
    pub(super) fn check_operands(
        &self,
        op: &'static str,
        what: &'static str,
        x: &[f32],
    ) -> Result<(), OracleError> {
        let largest = x.iter().filter(|v| v.is_finite()).fold(0.0f64, |m, &v| m.max(f64::from(v).abs()));
        self.check_range(op, what, largest)
    }
}

/// `2^e` for `-1022 <= e <= 1023`; the ends stand for what lies beyond.
pub(super) fn power_of_two(e: i32) -> f64 {
    f64::from_bits(((e.clamp(-1022, 1023) + 1023) as u64) << 52)
}

/// Exponent of a normal float64: `2^e <= |v| < 2^(e+1)`.
pub(super) fn exponent(v: f64) -> i32 {
    ((v.to_bits() >> 52) & 0x7FF) as i32 - 1023
}
