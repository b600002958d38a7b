//! A buffered cursor over a source that knows what it is reading when the file ends.

use super::GgufError;
use crate::model::source::Source;

/// Longest key or tensor name, as in the format's description.
const MAX_NAME: u64 = 65_535;
const WINDOW: usize = 1 << 16;

pub(super) struct Reader<'a> {
    source: &'a Source,
    position: u64,
    window: Vec<u8>,
    window_at: u64,
}

impl<'a> Reader<'a> {
    pub(super) fn new(source: &'a Source) -> Self {
        Reader { source, position: 0, window: Vec::new(), window_at: 0 }
    }

    /// Offset of the next byte.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Bytes left in the file.
    pub(super) fn rest(&self) -> u64 {
        self.source.total() - self.position
    }

    pub(super) fn error(&self, at: u64, what: &str, expected: &str, found: String) -> GgufError {
        GgufError::Structure {
            file: self.source.name().into(),
            at,
            what: what.into(),
            expected: expected.into(),
            found,
        }
    }

    fn need(&self, what: &str, len: u64) -> Result<(), GgufError> {
        if len <= self.rest() {
            return Ok(());
        }
        let found = format!("the end of the file after {} of them (truncated?)", self.rest());
        Err(self.error(self.position, what, &format!("{len} bytes"), found))
    }

    /// The next `len` bytes.
    pub(super) fn bytes(&mut self, what: &str, len: u64) -> Result<Vec<u8>, GgufError> {
        self.need(what, len)?;
        let inside = self
            .position
            .checked_sub(self.window_at)
            .is_some_and(|skip| (self.window.len() as u64).checked_sub(skip).is_some_and(|left| len <= left));
        if !inside {
            if len > WINDOW as u64 {
                let bytes = self.source.read_at(self.position, len)?;
                self.position += len;
                return Ok(bytes);
            }
            self.window_at = self.position;
            self.window = self.source.read_at(self.position, self.rest().min(WINDOW as u64))?;
        }
        // Both fit: the window holds the bytes, and it is at most 64 KiB long.
        let from = (self.position - self.window_at) as usize;
        self.position += len;
        Ok(self.window[from..from + len as usize].to_vec())
    }

    /// Moves on without looking.
    pub(super) fn skip(&mut self, what: &str, len: u64) -> Result<(), GgufError> {
        self.need(what, len)?;
        self.position += len;
        Ok(())
    }

    pub(super) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], GgufError> {
        let bytes = self.bytes(what, N as u64)?;
        let mut out = [0; N];
        out.copy_from_slice(&bytes);
        Ok(out)
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// A number of entries, each at least `smallest` bytes, that can still be in the file.
    pub(super) fn count(&mut self, what: &str, smallest: u64) -> Result<u64, GgufError> {
        let at = self.position;
        let count = self.u64(what)?;
        let most = self.rest() / smallest;
        if count > most {
            let expected = format!("at most {most}, as many as the rest of the file can hold");
            return Err(self.error(at, what, &expected, count.to_string()));
        }
        Ok(count)
    }

    /// A string with its length in front.
    pub(super) fn string(&mut self, what: &str, limit: u64) -> Result<String, GgufError> {
        let at = self.position;
        let len = self.u64(what)?;
        let most = self.rest().min(limit);
        if len > most {
            return Err(self.error(at, what, &format!("a length of at most {most}"), len.to_string()));
        }
        let bytes = self.bytes(what, len)?;
        String::from_utf8(bytes).map_err(|e| self.error(at + 8, what, "UTF-8", e.utf8_error().to_string()))
    }

    /// A key or a tensor name.
    pub(super) fn name(&mut self, what: &str) -> Result<String, GgufError> {
        self.string(what, MAX_NAME)
    }
}
