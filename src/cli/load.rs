//! Opens what the command line names.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use modelbench_evidence::verify::{CasePin, KitPins};

use crate::runner;
use crate::suite::{Case, SuiteTree, Suites};

/// The embedded suites, or those of a folder.
pub(super) fn suites(dir: Option<&Path>) -> Result<Suites> {
    let tree = match dir {
        Some(dir) => SuiteTree::from_dir(dir)?,
        None => SuiteTree::embedded(),
    };
    Ok(Suites::load(tree)?)
}

/// What a tree pins, for the verification of rows.
pub(super) fn pins(suites: &Suites) -> Result<KitPins> {
    let mut sets = BTreeMap::new();
    for name in suites.set_names() {
        let file = suites.set(&name)?.file;
        sets.insert(name, (file.cases, file.digest));
    }
    let pin = |case: &Case| CasePin { subject: runner::subject(case), proves: case.group.proves };
    let cases = suites.cases.iter().map(|case| (case.id.clone(), pin(case))).collect();
    Ok(KitPins { suite_digest: suites.digest.clone(), sets, cases })
}
