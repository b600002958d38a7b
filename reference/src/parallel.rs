//! Independent pieces of an output, on one thread or several.

use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::ParallelSliceMut;

/// Multiplications from which threads pay for themselves.
const WORTH_THREADS: usize = 1 << 16;
/// Pieces that a thread takes at least, so that short rows do not drown in scheduling.
const PIECES_PER_TASK: usize = 8;

/// Calls `fill(index, piece, scratch)` for each piece of `piece_len` elements of `out`.
///
/// `work` is the number of multiplications in all. Pieces must not depend on each other, then the bits cannot depend
/// on the number of threads. The scratch buffer arrives in any state.
pub(crate) fn for_each_piece(
    out: &mut [f32],
    piece_len: usize,
    work: usize,
    fill: impl Fn(usize, &mut [f32], &mut Vec<f32>) + Sync,
) {
    if piece_len == 0 {
        return;
    }
    if work < WORTH_THREADS {
        let mut scratch = Vec::new();
        for (index, piece) in out.chunks_exact_mut(piece_len).enumerate() {
            fill(index, piece, &mut scratch);
        }
        return;
    }
    out.par_chunks_exact_mut(piece_len)
        .enumerate()
        .with_min_len(PIECES_PER_TASK)
        .for_each_init(Vec::new, |scratch, (index, piece)| fill(index, piece, scratch));
}
