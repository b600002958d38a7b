//! Files that put code into every process of the machine.

use std::path::Path;

/// The libraries that the dynamic loader puts into every process, if the system's list names any.
///
/// # Errors
/// What the operating system says if the list is there and cannot be read.
pub(in crate::worker) fn preload_list(file: &Path) -> std::io::Result<Option<String>> {
    let text = match std::fs::read(file) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let named: Vec<&str> =
        text.lines().filter_map(|line| line.split('#').next()).flat_map(str::split_whitespace).collect();
    Ok((!named.is_empty()).then(|| named.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_list_that_names_a_library_counts() {
        let folder = tempfile::tempdir().expect("folder");
        let file = folder.path().join("ld.so.preload");
        assert!(matches!(preload_list(&file), Ok(None)));
        for (text, want) in [
            ("", None),
            ("# nothing\n \n", None),
            ("/lib/a.so /lib/b.so # why\n/lib/c.so\n", Some("/lib/a.so /lib/b.so /lib/c.so")),
        ] {
            std::fs::write(&file, text).expect("list");
            assert_eq!(preload_list(&file).expect("readable").as_deref(), want, "{text:?}");
        }
        assert!(preload_list(folder.path()).is_err(), "a folder is no list");
    }
}
