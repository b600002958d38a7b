//! The op that a worker is busy with, in a file that outlives the worker.
//!
//! Requests are pipelined: when a worker dies, the last request that the host sent says little about the one that
//! killed it. So the worker notes each op before it begins, in one small write.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use modelbench_contract::Op;

/// Bytes of the note; longer than the longest op's name.
const NOTE_BYTES: usize = 24;

/// The worker's side.
#[derive(Debug)]
pub(super) struct Progress(File);

impl Progress {
    /// Opens the file for notes.
    ///
    /// # Errors
    /// What the operating system says.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Progress(File::options().write(true).create(true).truncate(false).open(path)?))
    }

    /// Notes that `op` begins. A note that cannot be written is lost: it must not disturb the work.
    pub(super) fn note(&self, op: Op) {
        let mut note = [b' '; NOTE_BYTES];
        let name = op.as_str().as_bytes();
        let n = name.len().min(NOTE_BYTES);
        note[..n].copy_from_slice(&name[..n]);
        let _ = self.0.write_at(&note, 0);
    }
}

/// The last op that was noted in the file at `path`, if any.
pub(super) fn last_noted(path: &Path) -> Option<Op> {
    let mut note = [0u8; NOTE_BYTES];
    let read = File::open(path).ok()?.read_at(&mut note, 0).ok()?;
    let name = std::str::from_utf8(&note[..read]).ok()?.trim_end();
    Op::ALL.iter().copied().find(|op| op.as_str() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_note_wins_and_every_op_fits() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("progress");
        assert_eq!(last_noted(&path), None);
        let progress = Progress::open(&path).expect("open");
        assert_eq!(last_noted(&path), None);
        for &op in Op::ALL {
            assert!(op.as_str().len() < NOTE_BYTES);
            progress.note(op);
            assert_eq!(last_noted(&path), Some(op));
        }
    }

    #[test]
    fn a_scribble_is_no_op() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("progress");
        std::fs::write(&path, [0xff; 99]).expect("write");
        assert_eq!(last_noted(&path), None);
    }
}
