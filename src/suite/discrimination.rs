//! What each case cannot tell from a right answer: `discrimination.toml` of a suite tree.
//!
//! The file is made by `modelbench build-suites` and is part of the tree's digest. A tree without it, or whose cases are
//! not the ones that were tried, with the same data and tolerances, is refused: nobody may run cases whose power is unknown.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::{Case, SuiteError};
use crate::compare::GARBAGE;

/// Path of the file within a tree.
pub const PATH: &str = "discrimination.toml";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: u32,
    #[serde(rename = "why")]
    _why: String,
    seed: String,
    cases: u64,
    digest: String,
    #[serde(default)]
    group: Vec<Accepting>,
}

/// Cases that accept the same wrong answers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Accepting {
    accepts: Vec<String>,
    cases: Vec<String>,
}

/// Puts what the file says onto the cases.
///
/// # Errors
/// [`SuiteError::NotBuilt`] if the file is missing or speaks of other cases; [`SuiteError::Invalid`] if it names an
/// unknown answer, or a case that accepts every wrong answer.
pub(super) fn attach(bytes: Option<&[u8]>, cases: &mut [Case]) -> Result<(), SuiteError> {
    let not_built = |reason: String| SuiteError::NotBuilt { reason };
    let bytes = bytes.ok_or_else(|| not_built(format!("{PATH} is missing")))?;
    let (file, _) = super::load::parse::<File>(PATH, bytes)?;
    let invalid = |reason: String| SuiteError::Invalid { file: PATH.into(), line: 1, reason };
    super::load::require_schema(PATH, file.schema)?;
    let tried: Vec<&Case> = cases.iter().filter(|case| crate::runner::asks(case)).collect();
    let (count, digest) = (tried.len() as u64, power_digest(&tried)?);
    if (file.cases, &file.digest) != (count, &digest) {
        return Err(not_built(format!(
            "{PATH} was made for {} cases with digest {}, the tree has {count} with digest {digest}",
            file.cases, file.digest
        )));
    }
    let mut by_id = BTreeMap::new();
    for group in &file.group {
        if let Some(unknown) = group.accepts.iter().find(|name| !GARBAGE.contains(&name.as_str())) {
            return Err(invalid(format!("accepts {unknown:?}: expected some of {}", GARBAGE.join(", "))));
        }
        for id in &group.cases {
            if group.accepts.len() >= GARBAGE.len() {
                return Err(invalid(format!(
                    "{id} accepts every wrong answer (seed {}): it shows nothing",
                    file.seed
                )));
            }
            if by_id.insert(id.as_str(), &group.accepts).is_some() {
                return Err(invalid(format!("{id} is listed twice")));
            }
        }
    }
    for case in cases.iter_mut().filter(|case| crate::runner::asks(case)) {
        case.accepts = Some(by_id.remove(case.id.as_str()).cloned().unwrap_or_default());
    }
    match by_id.keys().next() {
        Some(id) => Err(invalid(format!("no case {id:?}"))),
        None => Ok(()),
    }
}

/// sha256 over what decides the power of the cases, sorted by id: check, data and tolerance of each. Text that explains
/// has no part in it.
///
/// # Errors
/// [`SuiteError::Invalid`] if a case cannot be written as JSON.
pub fn power_digest(cases: &[&Case]) -> Result<String, SuiteError> {
    let mut lines = Vec::with_capacity(cases.len());
    for case in cases {
        let group = &case.group;
        let power = (&group.check, &group.input, &group.random, &group.tolerance);
        let json = serde_json::to_string(&power).map_err(|e| case.invalid(e.to_string()))?;
        lines.push(format!("{}\0{json}\n", case.id));
    }
    lines.sort_unstable();
    Ok(hex::encode(Sha256::digest(lines.concat())))
}

/// The text of the file: `found` holds every case that was tried, with the wrong answers that it accepts, and `digest` is
/// their [`power_digest`].
pub fn render(seed: u64, digest: &str, found: &BTreeMap<String, Vec<&'static str>>) -> String {
    let mut groups: BTreeMap<&[&'static str], Vec<&str>> = BTreeMap::new();
    for (id, accepts) in found.iter().filter(|(_, accepts)| !accepts.is_empty()) {
        groups.entry(accepts).or_default().push(id);
    }
    let mut text = format!(
        "# Made by: modelbench build-suites DIR\nschema = 1\nwhy = \"Wrong answers that a case cannot tell from right ones, \
         tried when the suites are built: zeros, the mean of all elements, half of each, each times 1+2^-6, a shuffle, a \
         last tile of zeros, two rows exchanged, positions off by one. A case that is not listed rejects all of them.\"\n\
         seed = \"{seed:#x}\"\ncases = {}\ndigest = \"{digest}\"\n",
        found.len()
    );
    for (accepts, cases) in groups {
        let _ = write!(text, "\n[[group]]\naccepts = {accepts:?}\ncases = [\n");
        for id in cases {
            let _ = writeln!(text, "  {id:?},");
        }
        text.push_str("]\n");
    }
    text
}
