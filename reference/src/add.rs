//! Sums in place.

/// `dst[i] += src[i]`; the shorter slice ends the sum, callers have compared the lengths.
pub(crate) fn add_row(dst: &mut [f32], src: &[f32]) {
    for (d, s) in dst.iter_mut().zip(src) {
        *d += s;
    }
}
