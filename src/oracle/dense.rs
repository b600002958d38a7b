//! One weight matrix times many rows in float64.

use rayon::prelude::*;

/// Rows of the input that are multiplied together: two vector registers' worth of sums for each output.
const PANEL: usize = 8;
/// Outputs that share one pass over a panel.
const TILE: usize = 2;
/// Outputs for one task.
const CHUNK: usize = 32;

/// Rows `x[rows, k]`, packed so that the elements of [`PANEL`] rows at one index lie together.
pub(super) struct Packed {
    panels: Vec<[f64; PANEL]>,
    rows: usize,
    k: usize,
}

impl Packed {
    /// Packs row-major rows of `k` elements; `magnitudes` packs absolute values.
    pub(super) fn new(x: &[f64], k: usize, magnitudes: bool) -> Packed {
        let rows = x.len() / k;
        let mut panels = vec![[0.0; PANEL]; rows.div_ceil(PANEL) * k];
        for (panel, rows) in panels.chunks_mut(k).zip(x.chunks(PANEL * k)) {
            for (lane, row) in rows.chunks(k).enumerate() {
                for (slot, &v) in panel.iter_mut().zip(row) {
                    slot[lane] = if magnitudes { v.abs() } else { v };
                }
            }
        }
        Packed { panels, rows, k }
    }

    /// Number of rows.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// `w[out, k]` (its magnitudes if asked) times the rows: `[rows, out]` row-major. Every sum is taken in order of k,
    /// so that the bits do not depend on blocks or threads.
    pub(super) fn product(&self, w: &[f32], magnitudes: bool) -> Vec<f64> {
        let out = w.len() / self.k;
        let width = self.panels.len() / self.k * PANEL;
        let mut columns = vec![0.0; out * width];
        columns.par_chunks_mut(CHUNK * width).zip(w.par_chunks(CHUNK * self.k)).for_each(|(columns, w)| {
            let mut wide = Vec::with_capacity(TILE * self.k);
            for (columns, w) in columns.chunks_mut(TILE * width).zip(w.chunks(TILE * self.k)) {
                wide.clear();
                wide.extend(w.iter().map(|&v| f64::from(if magnitudes { v.abs() } else { v })));
                match wide.split_at_checked(self.k) {
                    Some((first, second)) if second.len() == self.k => {
                        self.tile([first, second], columns, width);
                    }
                    _ => self.tile([&wide], columns, width),
                }
            }
        });
        let mut y = vec![0.0; self.rows * out];
        y.par_chunks_mut(out).enumerate().for_each(|(row, y)| {
            y.iter_mut().zip(columns.chunks(width)).for_each(|(y, column)| *y = column[row]);
        });
        y
    }

    /// `N` outputs for all panels.
    fn tile<const N: usize>(&self, w: [&[f64]; N], columns: &mut [f64], width: usize) {
        for (index, panel) in self.panels.chunks(self.k).enumerate() {
            let mut sums = [[0.0f64; PANEL]; N];
            for (i, x) in panel.iter().enumerate() {
                for (sums, w) in sums.iter_mut().zip(w) {
                    let w = w[i];
                    for (sum, x) in sums.iter_mut().zip(x) {
                        *sum += w * x;
                    }
                }
            }
            for (n, sums) in sums.iter().enumerate() {
                columns[n * width + index * PANEL..][..PANEL].copy_from_slice(sums);
            }
        }
    }
}
