//! A tensor as it lies in a file: what both file formats are reduced to.

use std::sync::Arc;

use super::Encoding;
use super::source::{Source, SourceError};

/// Raw bytes read at once while decoding.
const PIECE: usize = 1 << 20;

/// Where a tensor lies and how it is encoded. The reader that made it has checked that it lies inside the file.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) source: Arc<Source>,
    pub(super) offset: u64,
    pub(super) encoding: Encoding,
    /// Outermost dimension first, one or two dimensions for every weight of a model.
    pub(super) shape: Vec<usize>,
}

impl Stored {
    /// Elements of a row.
    pub(super) fn row_len(&self) -> usize {
        self.shape.last().copied().unwrap_or(0)
    }

    /// Decodes `rows` rows from `first`, calling `put(row, values)` for each.
    pub(super) fn rows(
        &self,
        first: usize,
        rows: usize,
        mut put: impl FnMut(usize, &[f32]),
    ) -> Result<(), SourceError> {
        let len = self.row_len();
        // The reader checked the product of all extents, so a row cannot overflow; 0 only guards the type.
        let bytes = self.encoding.row_bytes(len).unwrap_or(0);
        if bytes == 0 {
            return Ok(());
        }
        let at_once = (PIECE / bytes).clamp(1, rows.max(1));
        let mut raw = vec![0; at_once * bytes];
        let mut values = vec![0.0; len];
        let mut row = first;
        while row < first + rows {
            let take = at_once.min(first + rows - row);
            let piece = &mut raw[..take * bytes];
            self.source.read_exact_at(piece, self.offset + (row * bytes) as u64)?;
            for encoded in piece.chunks_exact(bytes) {
                self.encoding.decode(encoded, &mut values);
                put(row, &values);
                row += 1;
            }
        }
        Ok(())
    }
}
