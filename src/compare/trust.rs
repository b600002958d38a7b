//! Answers that carry too little information to trust.

use std::collections::BTreeSet;

/// Fewest elements for which the rules below say anything.
const FEWEST: usize = 16;

/// Why an answer to real-valued data is too poor to count, if it is: constant, few distinct values, many zeros.
pub fn mistrust(got: &[f32]) -> Option<String> {
    if got.len() < FEWEST {
        return None;
    }
    let zeros = got.iter().filter(|v| **v == 0.0).count();
    if zeros * 10 > got.len() * 3 {
        return Some(format!("{zeros} of {} elements are zero", got.len()));
    }
    let mut distinct = BTreeSet::new();
    for value in got {
        distinct.insert(value.to_bits());
        if distinct.len() >= 8 {
            return None;
        }
    }
    Some(format!("only {} distinct values in {} elements", distinct.len(), got.len()))
}

#[cfg(test)]
mod tests {
    use super::mistrust;

    #[test]
    fn poor_answers_are_named() {
        let rich: Vec<f32> = (0..64).map(|i| i as f32 + 0.5).collect();
        assert_eq!(mistrust(&rich), None);
        assert!(mistrust(&[1.5; 64]).is_some_and(|why| why.contains("1 distinct")));
        let mut zeros = rich.clone();
        zeros[..20].fill(0.0);
        assert!(mistrust(&zeros).is_some_and(|why| why.contains("20 of 64")));
        assert_eq!(mistrust(&[0.0; 4]), None);
    }
}
