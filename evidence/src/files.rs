//! Reading with a limit, and writing so that a name appears complete or not at all.

use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::path::Path;

/// Who may read a written file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Its owner alone (mode 0600).
    Owner,
    /// Everybody, as far as the umask allows (mode 0644).
    Everybody,
}

/// Reads a file of at most `limit` bytes.
///
/// # Errors
/// Those of the operating system, and `FileTooLarge` above the limit.
pub(crate) fn read_capped(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let reason = format!("the file has more than {limit} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    Ok(bytes)
}

/// Writes a new file: a temporary file in the same folder, synchronised, then renamed onto a free name.
///
/// # Errors
/// `AlreadyExists` if the name is taken (the file there stays as it is), else those of the operating system.
pub(crate) fn write_new(path: &Path, bytes: &[u8], access: Access) -> io::Result<()> {
    let folder = folder_of(path);
    let mut builder = tempfile::Builder::new();
    builder.prefix(".modelbench-");
    let mut file = match permissions(access) {
        Some(permissions) => builder.permissions(permissions).tempfile_in(folder)?,
        None => builder.tempfile_in(folder)?,
    };
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path).map_err(|error| error.error)?;
    sync_folder(folder)
}

/// The folder that holds a path.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(unix)]
fn permissions(access: Access) -> Option<Permissions> {
    use std::os::unix::fs::PermissionsExt;
    Some(Permissions::from_mode(match access {
        Access::Owner => 0o600,
        Access::Everybody => 0o644,
    }))
}

#[cfg(not(unix))]
fn permissions(_: Access) -> Option<Permissions> {
    None
}

/// Makes the rename itself survive a power cut.
#[cfg(unix)]
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
pub(crate) fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_name_is_never_overwritten_and_nothing_is_left_behind() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("row");
        write_new(&path, b"first", Access::Everybody).expect("a free name");
        let error = write_new(&path, b"second", Access::Everybody).expect_err("a taken name");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).expect("it is there"), b"first");
        assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 1);
    }

    #[test]
    fn the_limit_counts_bytes() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("file");
        std::fs::write(&path, b"12345").expect("written");
        assert_eq!(read_capped(&path, 5).expect("small enough"), b"12345");
        assert_eq!(read_capped(&path, 4).expect_err("too large").kind(), io::ErrorKind::FileTooLarge);
    }
}
