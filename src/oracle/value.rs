//! What the oracle answers, and what a suite allows.

use modelbench_contract::{NumericProfile, Precision};

/// The float64 truth of a case with the error that a correct implementation may make.
///
/// For every element `i`, an implementation that computes in the declared [`NumericProfile`], in any order of
/// summation, with or without FMA, answers within `bound[i]` of `want[i]`. An infinite bound means that the data
/// determine nothing there (a suite whose cases must discriminate rejects such data).
#[derive(Debug, Clone, PartialEq)]
pub struct Bounded {
    /// Value of each element, row-major.
    pub want: Vec<f64>,
    /// Absolute error bound of each element.
    pub bound: Vec<f64>,
}

impl FromIterator<Val> for Bounded {
    fn from_iter<I: IntoIterator<Item = Val>>(values: I) -> Bounded {
        let (want, bound) = values.into_iter().map(|value| (value.v, value.e)).unzip();
        Bounded { want, bound }
    }
}

/// What a suite allows beyond correct rounding, per function. Read from the suite file, with its reason there.
///
/// An `ulp` is twice the unit roundoff of the working precision, relative to the result. No figure makes a function
/// better than correctly rounded: 0 and 0.5 mean the same.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Allowance {
    /// Error of `exp`, in ulp.
    pub exp_ulp: f64,
    /// Error of `sin` and `cos`, absolute, in unit roundoffs.
    pub trig_ulp: f64,
    /// Error of the reciprocal square root, in ulp; 1 is a correctly rounded root and division.
    pub rsqrt_ulp: f64,
    /// Error of a division, in ulp.
    pub div_ulp: f64,
    /// True if RoPE angles may be computed in the working precision instead of float64.
    pub angle_f32: bool,
}

/// A value with the absolute error that an implementation may have made so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Val {
    /// The float64 value.
    pub(super) v: f64,
    /// Largest difference of an implementation's value from it.
    pub(super) e: f64,
}

impl Val {
    /// A value that every implementation holds exactly.
    pub(super) fn exact(v: f64) -> Val {
        Val { v, e: 0.0 }
    }
}

/// The precision in which everything but products of operands is computed: the accumulator, but f32 at best, since
/// results are f32 and a backend with wide accumulators still may compute the rest in f32.
pub(super) fn working_precision(profile: &NumericProfile) -> Precision {
    match profile.accumulator {
        Precision::F64 => Precision::F32,
        other => other,
    }
}
