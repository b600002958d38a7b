//! Comparison of bit patterns.

/// Number of elements whose bits differ; a NaN equals any NaN, since its payload carries no meaning in the contract.
pub fn bits_differ(a: &[f32], b: &[f32]) -> u64 {
    let pairs = a.iter().zip(b).filter(|(a, b)| !same(**a, **b)).count();
    (pairs + a.len().abs_diff(b.len())) as u64
}

/// Index of the first element whose bits differ.
pub fn first_difference(a: &[f32], b: &[f32]) -> Option<usize> {
    let found = a.iter().zip(b).position(|(a, b)| !same(*a, *b));
    found.or_else(|| (a.len() != b.len()).then(|| a.len().min(b.len())))
}

fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}
