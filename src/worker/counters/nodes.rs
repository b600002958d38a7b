//! The DRM devices of this machine, for people who want to know what could be counted.

use std::fmt;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

/// A device node that a backend could open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrmNode {
    /// The file: `/dev/dri/renderD128`.
    pub path: PathBuf,
    /// The kernel's driver, if `/sys` tells.
    pub driver: Option<String>,
    /// Why this user cannot open it; `None` if it can be opened.
    pub closed: Option<String>,
}

impl fmt::Display for DrmNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let driver = self.driver.as_deref().unwrap_or("driver unknown");
        write!(f, "{} ({driver})", self.path.display())?;
        match &self.closed {
            Some(reason) => write!(f, ", cannot be opened: {reason}"),
            None => Ok(()),
        }
    }
}

/// Nodes of this machine through which a device can be given work, sorted by path. Empty without a device.
pub fn drm_nodes() -> Vec<DrmNode> {
    let mut nodes = find(Path::new("/dev/dri"), "renderD", Path::new("/sys/class/drm"));
    nodes.extend(find(Path::new("/dev/accel"), "accel", Path::new("/sys/class/accel")));
    nodes
}

fn find(folder: &Path, prefix: &str, class: &Path) -> Vec<DrmNode> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut nodes: Vec<DrmNode> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| {
            let driver = std::fs::read_link(class.join(entry.file_name()).join("device/driver")).ok();
            let driver = driver.and_then(|link| Some(link.file_name()?.to_string_lossy().into_owned()));
            let opened = OpenOptions::new().read(true).write(true).open(entry.path());
            DrmNode { path: entry.path(), driver, closed: opened.err().map(|error| error.to_string()) }
        })
        .collect();
    nodes.sort_by(|a, b| a.path.cmp(&b.path));
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn nodes_are_listed_with_their_driver_and_with_what_closes_them() {
        let machine = tempfile::tempdir().expect("folder");
        let (dri, class) = (machine.path().join("dri"), machine.path().join("class"));
        std::fs::create_dir_all(&dri).expect("dri");
        std::fs::create_dir_all(class.join("renderD128/device")).expect("class");
        std::os::unix::fs::symlink("/sys/bus/pci/drivers/amdgpu", class.join("renderD128/device/driver"))
            .expect("driver");
        for name in ["renderD128", "card0"] {
            std::fs::write(dri.join(name), "").expect("node");
        }
        std::fs::create_dir(dri.join("renderD129")).expect("a node that cannot be opened");
        let nodes = find(&dri, "renderD", &class);
        let texts: Vec<String> = nodes.iter().map(DrmNode::to_string).collect();
        assert_eq!(texts.len(), 2, "{texts:?}");
        assert!(texts[0].ends_with("renderD128 (amdgpu)"), "{texts:?}");
        assert!(texts[1].contains("renderD129 (driver unknown), cannot be opened: "), "{texts:?}");
        assert_eq!(find(&machine.path().join("absent"), "renderD", &class), []);
    }
}
