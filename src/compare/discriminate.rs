//! Whether a judgement tells right from wrong: wrong answers that every case is tried on.

use super::judge::{Want, judge};
use super::trust::mistrust;

/// Wrong answers, by name, in the order in which they are listed.
pub const GARBAGE: [&str; 8] =
    ["zeros", "mean", "half", "nudged", "shuffled", "dropped-tile", "swapped-rows", "off-by-one"];

/// Elements of the tile that is dropped at most.
const TILE: usize = 32;

/// A question of the kit to itself: what is wanted, and what it must not be taken for.
#[derive(Debug)]
pub struct Question {
    /// What the case wants.
    pub want: Want,
    /// Elements of a row of the result.
    pub row: usize,
    /// The suite's factor on the bound.
    pub slack: f64,
    /// The result of the op one position further, where the op has positions.
    pub next_position: Option<Vec<f32>>,
    /// True if answers with too little information are no pass.
    pub needs_information: bool,
}

impl Question {
    /// The names of the wrong answers that this case would accept. An answer that happens to equal the right one, such
    /// as the mean of a single element, is accepted.
    pub fn accepts(&self) -> Vec<&'static str> {
        GARBAGE.into_iter().filter(|name| self.accepts_one(name)).collect()
    }

    fn accepts_one(&self, name: &str) -> bool {
        let answer = self.wrong(name, self.want.values());
        let poor = self.needs_information && mistrust(&answer).is_some();
        judge(&self.want, &answer, self.slack).wrong.is_none() && !poor
    }

    fn wrong(&self, name: &str, mut values: Vec<f32>) -> Vec<f32> {
        let (n, row) = (values.len(), self.row.clamp(1, values.len().max(1)));
        match name {
            "zeros" => values.fill(0.0),
            "mean" => {
                let finite: Vec<f64> =
                    values.iter().filter(|v| v.is_finite()).map(|&v| f64::from(v)).collect();
                let mean = finite.iter().sum::<f64>() / finite.len().max(1) as f64;
                values.fill(mean as f32);
            }
            "half" => values.iter_mut().for_each(|v| *v *= 0.5),
            "nudged" => values.iter_mut().for_each(|v| *v *= 1.0 + 1.0 / 64.0),
            // A fixed shuffle: reversed, then turned by a third.
            "shuffled" => {
                values.reverse();
                values.rotate_left(n / 3);
            }
            "dropped-tile" => {
                let tile = TILE.min(row.div_ceil(4));
                values[n - tile.min(n)..].fill(0.0);
            }
            "swapped-rows" if n >= 2 * row => {
                let (first, last) = values.split_at_mut(n - row);
                first[..row].swap_with_slice(last);
            }
            "swapped-rows" => values.swap(0, n.saturating_sub(1)),
            _ => match &self.next_position {
                Some(next) => values.clone_from(next),
                None if n == 1 => values[0] += 1.0,
                None => values.rotate_right(1),
            },
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::Bounded;

    fn question(want: Want, row: usize) -> Question {
        Question { want, row, slack: 1.0, next_position: None, needs_information: false }
    }

    #[test]
    fn tight_bounds_reject_everything_and_wide_ones_are_found_out() {
        let want: Vec<f64> = (1..=12).map(f64::from).collect();
        let bounded =
            |bound| question(Want::Bounded(Bounded { want: want.clone(), bound: vec![bound; 12] }), 4);
        assert!(bounded(1e-3).accepts().is_empty());
        assert_eq!(bounded(0.5).accepts(), ["nudged"]);
        assert_eq!(bounded(1e9).accepts(), GARBAGE);
    }

    #[test]
    fn a_single_element_cannot_be_shuffled() {
        let accepts = question(Want::Exact(vec![3.0]), 1).accepts();
        assert_eq!(accepts, ["mean", "shuffled", "swapped-rows"]);
    }
}
