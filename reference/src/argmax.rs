//! Index of the first maximum.

/// The first maximum: the value in front is replaced only by a strictly greater one, so NaN never replaces, a NaN in
/// front stays, and -0 equals 0. `None` for no values.
pub(crate) fn argmax(x: &[f32]) -> Option<usize> {
    let mut best = *x.first()?;
    let mut index = 0;
    for (i, &value) in x.iter().enumerate().skip(1) {
        if value > best {
            best = value;
            index = i;
        }
    }
    Some(index)
}

#[cfg(test)]
mod tests {
    use super::argmax;

    #[test]
    fn first_maximum_wins_and_nothing_has_none() {
        assert_eq!(argmax(&[1.0, 3.0, 3.0, 2.0]), Some(1));
        assert_eq!(argmax(&[]), None);
        assert_eq!(argmax(&[f32::NEG_INFINITY, -1.0, f32::INFINITY, f32::INFINITY]), Some(2));
    }

    #[test]
    fn nan_never_replaces_and_stays_in_front() {
        assert_eq!(argmax(&[1.0, f32::NAN, 2.0, f32::NAN]), Some(2));
        assert_eq!(argmax(&[f32::NAN, 5.0, f32::INFINITY]), Some(0));
    }

    #[test]
    fn zeros_of_both_signs_are_equal() {
        assert_eq!(argmax(&[-0.0, 0.0]), Some(0));
        assert_eq!(argmax(&[0.0, -0.0]), Some(0));
        assert_eq!(argmax(&[-1.0, -0.0, 0.0]), Some(1));
    }
}
