//! The shape of a suite file: what may stand in it, and nothing else.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use toml::Spanned;

/// A suite file, `suites/<rung>/<family>.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuiteFile {
    /// Format version; 1.
    pub schema: u32,
    /// What the file shows and why that matters.
    pub why: String,
    /// Groups of cases.
    #[serde(default)]
    pub group: Vec<Spanned<Group>>,
}

/// Cases that share a check, a recipe and a tolerance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Third segment of the case ids.
    pub name: String,
    /// Which check runs, by name.
    pub check: String,
    /// Why these cases exist.
    pub why: String,
    /// Values of each parameter; the cases are their product, in this order.
    #[serde(default)]
    pub axes: IndexMap<String, Vec<AxisValue>>,
    /// Listed combinations; the product of `axes` is repeated for each of them.
    #[serde(default)]
    pub points: Vec<IndexMap<String, AxisValue>>,
    /// Sizes that the run's seed draws, each as `[least, most]` or `[least, most, step]`; the axis `draw` numbers the
    /// draws. They are not part of the id.
    #[serde(default)]
    pub random: IndexMap<String, Vec<u64>>,
    /// How the operands are made.
    #[serde(default)]
    pub input: Recipe,
    /// What counts as right.
    pub tolerance: Tolerance,
    /// The cap that these cases prove; they run only if the backend advertises it.
    pub proves: Option<modelbench_contract::Cap>,
    /// Limits on what is measured beside the values.
    pub limits: Option<Limits>,
}

/// One value of an axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum AxisValue {
    /// A size or a position.
    Int(u64),
    /// A name.
    Text(String),
}

impl std::fmt::Display for AxisValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AxisValue::Int(n) => n.fmt(f),
            AxisValue::Text(s) => f.write_str(s),
        }
    }
}

/// How the operands of a case are made from the seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "recipe", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Recipe {
    /// The check makes its own data.
    #[default]
    None,
    /// Integers in `-max..=max`, times `2^exponent`: every order of summation gives the same bits.
    Integers {
        /// Largest magnitude.
        max: u32,
        /// Power of two on every value.
        #[serde(default)]
        exponent: i32,
    },
    /// Odd integers up to `max`, times `2^exponent`. Where a row of an activation has an even number of elements its
    /// first one is even, so that every sum of products is odd: no output is 0 by chance.
    Odd {
        /// Largest magnitude.
        max: u32,
        /// Power of two on every value.
        #[serde(default)]
        exponent: i32,
    },
    /// One operand of a product holds one power of two per row and zeros, so that it picks elements of the other one,
    /// which holds odd integers up to `max`.
    Select {
        /// Which elements are picked.
        pattern: Pattern,
        /// Largest magnitude of the other operand.
        max: u32,
        /// Least power of two of the picking elements.
        #[serde(default)]
        exponent: i32,
    },
    /// Reals with full significands in (-1, 1), times `2^exponent`.
    Reals {
        /// Power of two on every value.
        #[serde(default)]
        exponent: i32,
    },
    /// Reals whose magnitudes spread over `2^0..2^octaves` with random signs: sums cancel, so that the order of
    /// summation shows in the bits.
    Cancelling {
        /// Spread of the magnitudes.
        octaves: u32,
    },
}

/// Which elements a [`Recipe::Select`] picks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Row `o` of the weight picks element `o mod in`.
    Identity,
    /// The rows of the weight pick every element once, in a random order.
    Permutation,
    /// Each row of the activation picks one random column of the weight.
    OneHot,
}

/// What counts as right. There is no default: every group states one, with a reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Tolerance {
    /// Equal values (`-0` equals `0`).
    Exact {
        /// Why no error is allowed.
        why: String,
    },
    /// The error derived from the data and the declared arithmetic, per element.
    Bound {
        /// Factor on the derived bound.
        slack: f64,
        /// Error of `exp`, in units in the last place of f32.
        #[serde(default)]
        exp_ulp: f64,
        /// Error of `sin` and `cos`, in units of 2^-24.
        #[serde(default)]
        trig_ulp: f64,
        /// Error of the reciprocal square root, in units in the last place.
        #[serde(default)]
        rsqrt_ulp: f64,
        /// Error of a division, in units in the last place.
        #[serde(default)]
        div_ulp: f64,
        /// Why these figures.
        why: String,
    },
    /// A multiple of the spread of an ensemble of references with seeded random roundings.
    Ensemble {
        /// Number of perturbed references.
        runs: u32,
        /// Multiple of the largest deviation in the ensemble.
        multiple: f64,
        /// Least cosine between logits.
        cosine_floor: f64,
        /// Largest difference between cpu-ref and the golden logits, absolute: the kit's own check.
        reference_limit: f64,
        /// Largest difference between the kit's own float64 evaluation and the golden logits, absolute.
        oracle_limit: f64,
        /// Why these figures.
        why: String,
    },
}

impl Tolerance {
    /// The reason given.
    pub fn why(&self) -> &str {
        match self {
            Tolerance::Exact { why } | Tolerance::Bound { why, .. } | Tolerance::Ensemble { why, .. } => why,
        }
    }

    /// Name of the kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Tolerance::Exact { .. } => "exact",
            Tolerance::Bound { .. } => "bound",
            Tolerance::Ensemble { .. } => "ensemble",
        }
    }
}

/// Limits on what a check measures beside the values. A check names the ones it needs; there is no default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Most growth of the worker's memory, in MiB.
    pub growth_mib: Option<u64>,
    /// Most growth of the worker's memory, in percent of the bytes that were uploaded.
    pub growth_percent: Option<u64>,
    /// Most work items that the device may be given.
    pub dispatches: Option<u64>,
    /// Least share of the time that is spent in the fence, in percent.
    pub fence_percent: Option<u64>,
    /// Why these figures.
    pub why: String,
}

/// A set file, `suites/sets/<name>.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetFile {
    /// Format version; 1.
    pub schema: u32,
    /// What the set is for.
    pub why: String,
    /// Globs over case ids; a case is in the set if any matches.
    pub include: Vec<String>,
    /// Globs over case ids; a case that matches one is left out.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// Number of cases that the set must hold.
    pub cases: u64,
    /// sha256 over the sorted case ids, each followed by a newline.
    pub digest: String,
}
