//! Opens what the command line names.

use std::path::Path;

use anyhow::Result;

use crate::suite::{SuiteTree, Suites};

/// The embedded suites, or those of a folder.
pub(super) fn suites(dir: Option<&Path>) -> Result<Suites> {
    let tree = match dir {
        Some(dir) => SuiteTree::from_dir(dir)?,
        None => SuiteTree::embedded(),
    };
    Ok(Suites::load(tree)?)
}
