//! Which device files a process holds, so that work which no counter shows is not mistaken for idleness.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Files below `/dev` that do no work. Whatever is not listed counts as a device, known or not.
const HARMLESS: [&str; 10] =
    ["null", "zero", "full", "random", "urandom", "tty", "ptmx", "console", "log", "udmabuf"];
/// Folders below `/dev` that hold no devices that compute.
const HARMLESS_FOLDERS: [&str; 5] = ["pts/", "shm/", "hugepages/", "mqueue/", "dma_heap/"];

/// Device files that a process has open or mapped, without those that cannot compute: `/dev/kfd`, `/dev/nvidia0`,
/// `/dev/dri/renderD128`. A process that has ended holds none.
///
/// # Errors
/// A sentence if this cannot be known.
pub(super) fn held(proc: &Path, pid: i32) -> Result<BTreeSet<String>, String> {
    let folder = proc.join(pid.to_string());
    let unknown =
        |what: &str, error: std::io::Error| format!("process {pid}: its {what} cannot be read: {error}");
    let mut found = BTreeSet::new();
    match fs::read_dir(folder.join("fd")) {
        Ok(entries) => {
            let targets = entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
            found.extend(targets.filter_map(|target| device(&target.to_string_lossy())));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(unknown("open files", error)),
    }
    // A device stays usable through its mappings when its file has been closed.
    match fs::read(folder.join("maps")) {
        Ok(bytes) => found.extend(String::from_utf8_lossy(&bytes).lines().filter_map(mapped)),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(unknown("mappings", error)),
    }
    Ok(found)
}

/// The path of a mapping is its sixth field; the ones before it hold no slash.
fn mapped(line: &str) -> Option<String> {
    device(line.get(line.find('/')?..)?)
}

fn device(path: &str) -> Option<String> {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let name = path.strip_prefix("/dev/")?;
    let harmless = HARMLESS.contains(&name) || HARMLESS_FOLDERS.iter().any(|folder| name.starts_with(folder));
    (!harmless).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_told_from_files_and_from_what_cannot_compute() {
        for path in ["/dev/kfd", "/dev/nvidia0", "/dev/dri/renderD128", "/dev/never-heard-of", "/dev/nullx"] {
            assert_eq!(device(path).as_deref(), Some(path));
        }
        assert_eq!(device("/dev/kfd (deleted)").as_deref(), Some("/dev/kfd"));
        for path in
            ["/dev/null", "/dev/pts/3", "/dev/shm/x", "/home/dev/kfd", "socket:[7]", "pipe:[1]", "/dev"]
        {
            assert_eq!(device(path), None, "{path}");
        }
    }

    #[test]
    fn mappings_are_read_by_their_path() {
        let line =
            "7f0000000000-7f0000001000 rw-s 100000000 00:05 412                        /dev/dri/renderD128";
        assert_eq!(mapped(line).as_deref(), Some("/dev/dri/renderD128"));
        assert_eq!(mapped("7f00-7f01 r-xp 0 08:01 99    /usr/lib/libc.so.6"), None);
        assert_eq!(mapped("7ffc-7ffd rw-p 0 00:00 0     [stack]"), None);
    }

    #[cfg(unix)]
    #[test]
    fn open_and_mapped_devices_of_a_process_are_found() {
        let proc = tempfile::tempdir().expect("folder");
        let (fd, maps) = (proc.path().join("42/fd"), proc.path().join("42/maps"));
        fs::create_dir_all(&fd).expect("fd");
        for (number, target) in [("0", "/dev/null"), ("3", "/dev/kfd"), ("4", "/tmp/x"), ("5", "/dev/kfd")] {
            std::os::unix::fs::symlink(target, fd.join(number)).expect("link");
        }
        fs::write(&maps, "1-2 rw-s 0 00:05 4 /dev/nvidia0\n1-2 rw-p 0 00:00 0 [heap]\n").expect("maps");
        let want = ["/dev/kfd", "/dev/nvidia0"].map(str::to_owned);
        assert_eq!(held(proc.path(), 42), Ok(BTreeSet::from(want)));
        assert_eq!(held(proc.path(), 43), Ok(BTreeSet::new()));
    }

    #[cfg(unix)]
    #[test]
    fn what_cannot_be_read_is_said() {
        let proc = tempfile::tempdir().expect("folder");
        fs::create_dir_all(proc.path().join("42/maps")).expect("a folder in place of a file");
        let error = held(proc.path(), 42).expect_err("no mappings");
        assert!(error.contains("process 42") && error.contains("mappings"), "{error}");
    }
}
