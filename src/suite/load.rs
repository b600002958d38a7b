//! From files to cases: parse, check, expand.

use std::collections::BTreeSet;
use std::sync::Arc;

use globset::{GlobSet, GlobSetBuilder};
use indexmap::IndexMap;
use modelbench_evidence::record::Rung;
use modelbench_evidence::results::ids_digest;

use super::{AxisValue, Case, Group, SetFile, SuiteError, SuiteFile, SuiteTree};

/// Most cases that one tree may expand to: a typing error in an axis must not fill the memory.
const MOST_CASES: usize = 200_000;

/// Every case of a tree, in file order within a rung, with the tree's digest and sets.
#[derive(Debug)]
pub struct Suites {
    /// All cases.
    pub cases: Vec<Case>,
    /// The `why` of each suite file, by path.
    pub purposes: IndexMap<String, String>,
    /// sha256 over the whole tree.
    pub digest: String,
    tree: SuiteTree,
}

/// The cases of one set.
#[derive(Debug)]
pub struct Set {
    /// Name of the set.
    pub name: String,
    /// The set's file.
    pub file: SetFile,
    /// Its cases.
    pub cases: Vec<Case>,
}

impl Suites {
    /// Parses and expands a tree; every check validates the parameters of its cases.
    ///
    /// # Errors
    /// [`SuiteError`] naming file and line of the first thing that is wrong; [`SuiteError::NotBuilt`] if it is not known
    /// what the cases can reject.
    pub fn load(tree: SuiteTree) -> Result<Suites, SuiteError> {
        let mut suites = Suites::load_unbuilt(tree)?;
        super::discrimination::attach(suites.tree.get(super::discrimination::PATH), &mut suites.cases)?;
        Ok(suites)
    }

    /// As [`Suites::load`], for the command that finds out what the cases can reject.
    ///
    /// # Errors
    /// [`SuiteError`] naming file and line of the first thing that is wrong.
    pub fn load_unbuilt(tree: SuiteTree) -> Result<Suites, SuiteError> {
        let digest = tree.digest();
        let mut cases = Vec::new();
        let mut purposes = IndexMap::new();
        for rung in Rung::ALL {
            for (path, bytes) in tree.below(rung.as_str()) {
                let (file, text) = parse::<SuiteFile>(path, bytes)?;
                require_schema(path, file.schema)?;
                let family = path[3..].trim_end_matches(".toml");
                for group in file.group {
                    let line = line_of(text, group.span().start);
                    let group = Arc::new(group.into_inner());
                    expand(rung, family, path, line, &group, &mut cases)?;
                }
                purposes.insert(path.to_owned(), file.why);
            }
        }
        let mut seen = BTreeSet::new();
        for case in &cases {
            if !seen.insert(case.id.as_str()) {
                return Err(case.invalid(format!("two cases are named {}", case.id)));
            }
            case.check_draws()?;
            crate::runner::validate(case)?;
        }
        Ok(Suites { cases, purposes, digest, tree })
    }

    /// True if the tree, with the goldens and models beside it, is the one compiled into the kit.
    pub fn is_kit(&self) -> bool {
        self.digest == SuiteTree::embedded().digest()
    }

    /// Names of the sets, sorted.
    pub fn set_names(&self) -> Vec<String> {
        self.tree
            .below("sets")
            .filter_map(|(path, _)| Some(path.strip_prefix("sets/")?.strip_suffix(".toml")?.to_owned()))
            .collect()
    }

    /// The cases of a set.
    ///
    /// # Errors
    /// [`SuiteError::UnknownSet`]; [`SuiteError::PinMismatch`] if the tree does not hold exactly what the set pins.
    pub fn set(&self, name: &str) -> Result<Set, SuiteError> {
        let path = format!("sets/{name}.toml");
        let Some(bytes) = self.tree.get(&path) else {
            return Err(SuiteError::UnknownSet { name: name.into(), known: self.set_names().join(", ") });
        };
        let (file, _) = parse::<SetFile>(&path, bytes)?;
        require_schema(&path, file.schema)?;
        let (include, exclude) = (globs(&file.include)?, globs(&file.exclude)?);
        let cases: Vec<Case> = self
            .cases
            .iter()
            .filter(|case| include.is_match(&case.id) && !exclude.is_match(&case.id))
            .cloned()
            .collect();
        let found = ids_digest(cases.iter().map(|case| case.id.as_str()));
        if cases.len() as u64 != file.cases || found != file.digest {
            return Err(SuiteError::PinMismatch {
                set: name.into(),
                pinned_cases: file.cases,
                pinned_digest: file.digest,
                found_cases: cases.len() as u64,
                found_digest: found,
            });
        }
        Ok(Set { name: name.into(), file, cases })
    }
}

/// A matcher for one glob over case ids; `*` stays within a segment, `**` crosses them.
///
/// # Errors
/// [`SuiteError::BadGlob`].
pub fn glob(pattern: &str) -> Result<GlobSet, SuiteError> {
    globs(std::slice::from_ref(&pattern.to_owned()))
}

fn globs(patterns: &[String]) -> Result<GlobSet, SuiteError> {
    let bad = |pattern: &str, error: globset::Error| SuiteError::BadGlob {
        pattern: pattern.into(),
        reason: error.kind().to_string(),
    };
    let mut builder = GlobSetBuilder::new();
    for pattern in patterns {
        let glob = globset::GlobBuilder::new(pattern).literal_separator(true).build();
        builder.add(glob.map_err(|e| bad(pattern, e))?);
    }
    builder.build().map_err(|e| bad(&patterns.join(" "), e))
}

pub(super) fn parse<'a, T: serde::de::DeserializeOwned>(
    path: &str,
    bytes: &'a [u8],
) -> Result<(T, &'a str), SuiteError> {
    let invalid = |line, reason| SuiteError::Invalid { file: path.into(), line, reason };
    let text = std::str::from_utf8(bytes).map_err(|e| invalid(1, format!("not UTF-8: {e}")))?;
    let value = toml::from_str(text)
        .map_err(|e| invalid(e.span().map_or(1, |span| line_of(text, span.start)), e.message().to_owned()))?;
    Ok((value, text))
}

pub(super) fn require_schema(path: &str, found: u32) -> Result<(), SuiteError> {
    if found == 1 {
        return Ok(());
    }
    Err(SuiteError::Invalid {
        file: path.into(),
        line: 1,
        reason: format!("schema = {found}: this kit reads 1"),
    })
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|&&b| b == b'\n').count() + 1
}

fn expand(
    rung: Rung,
    family: &str,
    path: &str,
    line: usize,
    group: &Arc<Group>,
    cases: &mut Vec<Case>,
) -> Result<(), SuiteError> {
    let invalid = |reason: String| SuiteError::Invalid {
        file: path.into(),
        line,
        reason: format!("group {:?}: {reason}", group.name),
    };
    if group.why.trim().is_empty() || group.tolerance.why().trim().is_empty() {
        return Err(invalid("`why` is empty; say why these cases and this tolerance exist".into()));
    }
    if group.limits.as_ref().is_some_and(|limits| limits.why.trim().is_empty()) {
        return Err(invalid("`why` of the limits is empty; say why these figures".into()));
    }
    let mut combinations: Vec<IndexMap<String, AxisValue>> =
        if group.points.is_empty() { vec![IndexMap::new()] } else { group.points.clone() };
    for (name, values) in &group.axes {
        if values.is_empty() {
            return Err(invalid(format!("axis {name:?} is empty, so the group has no case")));
        }
        if combinations.len().saturating_mul(values.len()) > MOST_CASES {
            return Err(invalid(format!("more than {MOST_CASES} cases")));
        }
        let mut next = Vec::with_capacity(combinations.len() * values.len());
        for combination in &combinations {
            for value in values {
                let mut extended = combination.clone();
                if extended.insert(name.clone(), value.clone()).is_some() {
                    return Err(invalid(format!("{name:?} is both an axis and part of a point")));
                }
                next.push(extended);
            }
        }
        combinations = next;
    }
    cases.extend(combinations.into_iter().map(|params| Case::new(rung, family, path, line, group, params)));
    Ok(())
}
