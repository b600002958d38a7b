//! The gated activation of the feed-forward block.

/// `silu(gate) * up` with `silu(z) = z / (1 + exp(-z))`; only the exponential is computed in f64.
pub(crate) fn swiglu(gate: f32, up: f32) -> f32 {
    let exp = libm::exp(f64::from(-gate)) as f32;
    (gate / (1.0 + exp)) * up
}

#[cfg(test)]
mod tests {
    use super::swiglu;

    #[test]
    fn saturates_without_overflowing() {
        assert_eq!(swiglu(0.0, 3.0).to_bits(), 0.0f32.to_bits());
        assert_eq!(swiglu(200.0, 2.0), 400.0);
        // exp(200) is infinite in f32, so the quotient is a negative zero.
        assert_eq!(swiglu(-200.0, 2.0).to_bits(), (-0.0f32).to_bits());
        assert!(swiglu(f32::NAN, 1.0).is_nan());
        assert_eq!(swiglu(f32::INFINITY, 1.0), f32::INFINITY);
    }
}
