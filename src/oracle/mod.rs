//! The kit's float64 truth, with an error bound per element, and the ensemble for whole models.
//!
//! Ops answer a [`Bounded`]: what the op gives in float64, and how far an implementation that computes in its declared
//! [`NumericProfile`](modelbench_contract::NumericProfile) may be from it, in any order of summation, with or without
//! FMA. Each bound is derived in the documentation of its op. Nothing here is a tolerance: the unit roundoff comes from
//! the profile, and what functions such as `exp` may be off by comes from the suite, as an [`Allowance`].
//!
//! Where such a bound explodes, over a whole model, [`ensemble`] measures how far seeded random roundings of the
//! declared size move every logit and hidden state.
//!
//! The oracle shares no code with cpu-ref, and calls no function of the platform's mathematical library, so that it gives
//! the same bits on every machine. Products with operands below f32 round them to nearest; everything else is computed
//! in the declared accumulator precision (f32 at best).

mod argmax;
mod arith;
mod attention;
mod dense;
mod elementwise;
mod ensemble;
mod error;
mod exact;
mod forward;
mod heads;
mod layer;
mod matmul;
mod model;
mod noise;
mod norm;
mod rope;
mod value;

#[cfg(test)]
mod tests;

pub use argmax::argmax;
pub use attention::{AttentionInput, attention};
pub use elementwise::{add, add_bias, swiglu};
pub use ensemble::{Forward, Perturbation, Spread, ensemble, forward_f64};
pub use error::OracleError;
pub use exact::is_exact_matmul;
pub use layer::{LayerShape, LayerWeights, layer};
pub use matmul::{Weight, matmul};
pub use model::{ModelShape, ModelWeights, WeightError, WeightName};
pub use norm::rms_norm;
pub use rope::rope;
pub use value::{Allowance, Bounded};
