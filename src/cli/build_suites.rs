//! `modelbench build-suites DIR`: tries every case on wrong answers, and writes what the tree's files must say.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use rayon::prelude::*;

use super::exit;
use super::failure::Failure;
use crate::compare::GARBAGE;
use crate::runner;
use crate::suite::{Case, SuiteError, SuiteTree, Suites, discrimination};

/// Defects that are listed before the command gives up.
const LISTED: usize = 40;

pub(super) fn run(dir: &Path, seed: u64, out: &mut impl Write) -> Result<u8, Failure> {
    let suites = Suites::load_unbuilt(SuiteTree::from_dir(dir)?)?;
    let asked: Vec<&Case> = suites.cases.iter().filter(|case| runner::asks(case)).collect();
    let answers: Vec<_> = asked
        .par_iter()
        .map(|case| (case.id.clone(), runner::question(case, seed).map(|question| question.accepts())))
        .collect();
    let (mut found, mut defects) = (BTreeMap::new(), Vec::new());
    for (id, answer) in answers {
        match answer {
            Ok(accepts) if accepts.len() == GARBAGE.len() => {
                defects.push(format!(
                    "{id}: accepts every wrong answer; take other data or a tighter tolerance"
                ));
            }
            Ok(accepts) => {
                found.insert(id, accepts);
            }
            Err(error) => defects.push(format!("{id}: {error}")),
        }
    }
    if !defects.is_empty() {
        let more = defects.len().saturating_sub(LISTED);
        defects.truncate(LISTED);
        let more = if more > 0 { format!("\n... and {more} more") } else { String::new() };
        return Err(Failure::message(exit::USAGE, format!("{}{more}", defects.join("\n"))));
    }
    let digest = discrimination::power_digest(&asked)?;
    write(dir, discrimination::PATH, &discrimination::render(seed, &digest, &found))?;
    let full = found.values().filter(|accepts| accepts.is_empty()).count();
    writeln!(
        out,
        "{} cases tried on {} wrong answers: {full} reject all of them",
        found.len(),
        GARBAGE.len()
    )?;
    let yes_or_no = suites.cases.len() - asked.len();
    writeln!(out, "{yes_or_no} cases answer yes or no and are tried on the zoo (modelbench selftest)")?;
    for name in suites.set_names() {
        pin(dir, &suites, &name, out)?;
    }
    // What was written must be what a run will read.
    let built = Suites::load(SuiteTree::from_dir(dir)?)?;
    built.set_names().iter().try_for_each(|name| built.set(name).map(drop))?;
    Ok(exit::OK)
}

/// Writes the number of cases and their digest into a set's file.
fn pin(dir: &Path, suites: &Suites, name: &str, out: &mut impl Write) -> Result<(), Failure> {
    let (cases, digest) = match suites.set(name) {
        Ok(set) => (set.file.cases, set.file.digest),
        Err(SuiteError::PinMismatch { found_cases, found_digest, .. }) => (found_cases, found_digest),
        Err(error) => return Err(error.into()),
    };
    let path = format!("sets/{name}.toml");
    let text = std::fs::read_to_string(dir.join(&path))?;
    let line = |line: &str| {
        if line.starts_with("cases = ") {
            format!("cases = {cases}\n")
        } else if line.starts_with("digest = ") {
            format!("digest = \"{digest}\"\n")
        } else {
            format!("{line}\n")
        }
    };
    write(dir, &path, &text.lines().map(line).collect::<String>())?;
    writeln!(out, "set {name}: {cases} cases, digest {digest}")?;
    Ok(())
}

fn write(dir: &Path, path: &str, text: &str) -> Result<(), Failure> {
    let path = dir.join(path);
    std::fs::write(&path, text)
        .map_err(|e| Failure::message(exit::USAGE, format!("{} cannot be written: {e}", path.display())))
}
