//! The files of a suite tree, embedded or in a folder, and their digest.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::SuiteError;

/// Files by path within the tree, such as `r1/matmul.toml`.
#[derive(Debug, Clone, Default)]
pub struct SuiteTree {
    files: BTreeMap<String, Cow<'static, [u8]>>,
}

impl SuiteTree {
    /// The tree compiled into the binary.
    pub fn embedded() -> SuiteTree {
        SuiteTree { files: crate::kit::suite_files().collect() }
    }

    /// A tree in a folder. Only `*.toml` files count; everything else is ignored.
    ///
    /// # Errors
    /// [`SuiteError::Unreadable`] if the folder or a file in it cannot be read.
    pub fn from_dir(dir: &Path) -> Result<SuiteTree, SuiteError> {
        let mut files = BTreeMap::new();
        collect(dir, dir, &mut files)?;
        if files.is_empty() {
            return Err(SuiteError::Unreadable {
                path: dir.display().to_string(),
                reason: "it holds no .toml file".into(),
            });
        }
        Ok(SuiteTree { files })
    }

    /// Files below a folder of the tree, in path order.
    pub fn below<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        self.files
            .iter()
            .filter(move |(path, _)| path.starts_with(folder) && path[folder.len()..].starts_with('/'))
            .map(|(path, bytes)| (path.as_str(), bytes.as_ref()))
    }

    /// The content of a file.
    pub fn get(&self, path: &str) -> Option<&[u8]> {
        self.files.get(path).map(AsRef::as_ref)
    }

    /// sha256 over every path and file of the tree and over the goldens and models that come with the kit.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        let mut add = |area: &str, path: &str, bytes: &[u8]| {
            hash.update(format!("{area}/{path}\0{}\0", bytes.len()).as_bytes());
            hash.update(Sha256::digest(bytes));
        };
        for (path, bytes) in &self.files {
            add("suites", path, bytes);
        }
        for (path, bytes) in crate::kit::golden_files() {
            add("golden", &path, &bytes);
        }
        for (path, bytes) in crate::kit::model_files() {
            add("models", &path, &bytes);
        }
        hex::encode(hash.finalize())
    }
}

fn collect(
    root: &Path,
    dir: &Path,
    files: &mut BTreeMap<String, Cow<'static, [u8]>>,
) -> Result<(), SuiteError> {
    let unreadable = |path: &Path, error: std::io::Error| SuiteError::Unreadable {
        path: path.display().to_string(),
        reason: error.to_string(),
    };
    for entry in std::fs::read_dir(dir).map_err(|e| unreadable(dir, e))? {
        let path = entry.map_err(|e| unreadable(dir, e))?.path();
        if path.is_dir() {
            collect(root, &path, files)?;
        } else if path.extension().is_some_and(|e| e == "toml") {
            let bytes = std::fs::read(&path).map_err(|e| unreadable(&path, e))?;
            let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
            files.insert(name, Cow::Owned(bytes));
        }
    }
    Ok(())
}
