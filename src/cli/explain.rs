//! `modelbench explain CASE-ID`: why a case exists, what it allows, and how to run it alone.

use std::io::Write;
use std::path::Path;

use super::failure::Failure;
use super::{exit, load};
use crate::runner;

pub(super) fn run(id: &str, seed: u64, suites: Option<&Path>, out: &mut impl Write) -> Result<u8, Failure> {
    let suites = load::suites(suites)?;
    let Some(case) = suites.cases.iter().find(|case| case.id == id) else {
        let mut near: Vec<(usize, &str)> =
            suites.cases.iter().map(|c| (strsim::damerau_levenshtein(id, &c.id), c.id.as_str())).collect();
        near.sort_unstable();
        let near: Vec<&str> = near.into_iter().take(3).map(|(_, id)| id).collect();
        return Err(Failure::message(exit::USAGE, format!("no case {id:?}; near it: {}", near.join(", "))));
    };
    let group = &case.group;
    writeln!(out, "case       {}", case.id)?;
    writeln!(out, "from       suites/{}:{}", case.file, case.line)?;
    if let Some(purpose) = suites.purposes.get(&case.file) {
        writeln!(out, "suite      {purpose}")?;
    }
    writeln!(out, "why        {}", group.why)?;
    for (name, value) in case.params() {
        writeln!(out, "           {name} = {value}")?;
    }
    if let Some(cap) = group.proves {
        writeln!(out, "proves     the cap {}; runs only if the backend advertises it", cap.as_str())?;
    }
    writeln!(out, "input      {}", serde_json::to_string(&group.input)?)?;
    writeln!(out, "tolerance  {}: {}", group.tolerance.kind(), group.tolerance.why())?;
    for line in runner::explain(case, seed)? {
        writeln!(out, "{line}")?;
    }
    writeln!(out, "again      modelbench -backend NAME -filter '{}' -seed {seed:#x}", case.id)?;
    Ok(exit::OK)
}
