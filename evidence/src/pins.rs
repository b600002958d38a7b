//! What a kit pins about its suites, and whether a record used exactly those.

use std::collections::BTreeMap;

use modelbench_contract::Cap;

use crate::record::CaseRecord;
use crate::results::Results;

/// What a kit pins: the digest of its suites, for each set the number of cases and the digest of their ids, and what each
/// case is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KitPins {
    /// sha256 over suites, goldens and fixtures.
    pub suite_digest: String,
    /// By set: number of cases, and [`ids_digest`](crate::results::ids_digest) of their ids.
    pub sets: BTreeMap<String, (u64, String)>,
    /// By id.
    pub cases: BTreeMap<String, CasePin>,
}

/// What a suite says about a case before it runs. None of it is the runner's to choose: a proof of a cap that proves
/// something easier would change the label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CasePin {
    /// What the case is about.
    pub subject: String,
    /// The cap that it proves, if it proves one.
    pub proves: Option<Cap>,
}

/// What is known about the suites of the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuiteCheck {
    /// They are this kit's, and the set's cases are the ones it pins.
    Pinned,
    /// The row says that they are a kit's own, but of another version than this kit, which cannot check them.
    OtherKit,
    /// The row itself says that they are not a kit's own.
    Foreign,
    /// The caller gave no pins.
    NotAsked,
}

/// The row claims this kit's suites, with something else in them.
#[derive(Debug, thiserror::Error)]
#[error("the row says {field} = {found}, this kit pins {pinned}: the run did not use these suites")]
pub struct PinsError {
    /// The field.
    pub field: String,
    /// Value in the row.
    pub found: String,
    /// Value of the kit.
    pub pinned: String,
}

/// Compares a record with the pins of a kit.
///
/// # Errors
/// [`PinsError`] for the first difference, if the record says that it used the kit's suites.
pub(crate) fn check(results: &Results, kit: Option<&KitPins>) -> Result<SuiteCheck, PinsError> {
    let suite = &results.header.suite;
    let Some(kit) = kit else { return Ok(SuiteCheck::NotAsked) };
    if suite.digest != kit.suite_digest {
        return Ok(if suite.is_kit { SuiteCheck::OtherKit } else { SuiteCheck::Foreign });
    }
    let pins = kit.sets.get(&suite.set);
    let full = kit.sets.get("full");
    compare("suite.isKit", suite.is_kit.to_string(), Some(true.to_string()), "")?;
    compare("suite.set", suite.set.clone(), pins.map(|_| suite.set.clone()), "no such set")?;
    compare("suite.cases", suite.cases.to_string(), pins.map(|(cases, _)| cases.to_string()), "no such set")?;
    compare(
        "suite.casesDigest",
        suite.cases_digest.clone(),
        pins.map(|(_, digest)| digest.clone()),
        "no such set",
    )?;
    compare(
        "suite.fullCases",
        suite.full_cases.to_string(),
        full.map(|(cases, _)| cases.to_string()),
        "no set \"full\"",
    )?;
    results.cases.iter().try_for_each(|case| check_case(case, kit.cases.get(&case.id)))?;
    Ok(SuiteCheck::Pinned)
}

fn check_case(case: &CaseRecord, pin: Option<&CasePin>) -> Result<(), PinsError> {
    let field = |name: &str| format!("{name} of case {}", case.id);
    let cap = |cap: Option<Cap>| cap.map_or("no cap", Cap::as_str).to_owned();
    let none = "no such case";
    compare(field("subject"), case.subject.clone(), pin.map(|pin| pin.subject.clone()), none)?;
    compare(field("proves"), cap(case.proves), pin.map(|pin| cap(pin.proves)), none)
}

fn compare(
    field: impl Into<String>,
    found: String,
    pinned: Option<String>,
    absent: &str,
) -> Result<(), PinsError> {
    match pinned {
        Some(pinned) if pinned == found => Ok(()),
        pinned => {
            Err(PinsError { field: field.into(), found, pinned: pinned.unwrap_or_else(|| absent.to_owned()) })
        }
    }
}
