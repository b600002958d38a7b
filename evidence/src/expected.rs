//! Known failures: what a baseline lists, and what a list makes of an outcome.

use globset::GlobMatcher;
use modelbench_contract::Caps;
use serde::{Deserialize, Serialize};

use crate::outcome::{NotRun, Outcome, Verdict};
use crate::record::Header;
use crate::waiver::Waiver;

/// A failure that a baseline lists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// Ids of the cases: `*` stays within a segment, `**` crosses them.
    pub cases: String,
    /// How they fail: the name of an outcome other than `pass`.
    pub outcome: String,
    /// Why, in a sentence.
    pub reason: String,
    /// Where it is tracked: an `https` address.
    pub issue: String,
}

/// Why a list of known failures cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {found:?}, expected {expected}")]
pub struct ExpectationError {
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub found: String,
    /// What would be right.
    pub expected: String,
}

impl Expectation {
    /// Checks the fields.
    ///
    /// # Errors
    /// [`ExpectationError`] for the first that cannot be.
    pub fn check(&self) -> Result<(), ExpectationError> {
        let wrong = |field, found: &str, expected: String| {
            Err(ExpectationError { field, found: found.to_owned(), expected })
        };
        if let Err(reason) = case_glob(&self.cases) {
            return wrong("cases", &self.cases, format!("a pattern of case ids: {reason}"));
        }
        let failing = &Outcome::NAMES[1..];
        if !failing.contains(&self.outcome.as_str()) {
            return wrong("outcome", &self.outcome, format!("one of {}", failing.join(", ")));
        }
        if self.reason.trim().is_empty() {
            return wrong("reason", &self.reason, "a sentence that says why it fails".to_owned());
        }
        if !is_address(&self.issue) {
            return wrong("issue", &self.issue, "an address that starts with https://".to_owned());
        }
        Ok(())
    }
}

/// True for the address of a public issue: `https`, with a host, in one piece.
pub(crate) fn is_address(text: &str) -> bool {
    let host = text.strip_prefix("https://").is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'));
    host && !text.contains(|c: char| c.is_whitespace() || c.is_control())
}

/// A pattern of case ids, or why it is none.
///
/// # Errors
/// The pattern's fault, in words.
pub fn case_glob(pattern: &str) -> Result<GlobMatcher, String> {
    glob(pattern, true)
}

/// A pattern whose `*` stays within a segment, if there are segments.
pub(crate) fn glob(pattern: &str, segments: bool) -> Result<GlobMatcher, String> {
    let glob = globset::GlobBuilder::new(pattern).literal_separator(segments).build();
    glob.map(|glob| glob.compile_matcher()).map_err(|error| error.kind().to_string())
}

/// What turns the outcomes of a run into verdicts.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    caps: Caps,
    expected: Vec<(GlobMatcher, String)>,
    waived: Vec<GlobMatcher>,
}

impl Rules {
    /// The rules of a run with these advertised caps, listed failures and patterns of waived cases.
    ///
    /// # Errors
    /// [`ExpectationError`] for a list that cannot be used.
    pub fn new<'a>(
        caps: &Caps,
        expected: &[Expectation],
        waived: impl IntoIterator<Item = &'a str>,
    ) -> Result<Rules, ExpectationError> {
        let mut rules = Rules { caps: caps.clone(), ..Rules::default() };
        for entry in expected {
            entry.check()?;
            rules.expected.push((matcher(&entry.cases)?, entry.outcome.clone()));
        }
        for pattern in waived {
            rules.waived.push(matcher(pattern)?);
        }
        Ok(rules)
    }

    /// The rules that the header of a run gives. Who signed its waivers is not asked here.
    ///
    /// # Errors
    /// [`ExpectationError`] for a list or a waiver that cannot be used.
    pub fn of(header: &Header) -> Result<Rules, ExpectationError> {
        let mut waived = Vec::new();
        for envelope in &header.waivers {
            let waiver = Waiver::unverified(envelope.as_bytes()).map_err(|e| ExpectationError {
                field: "waivers",
                found: "an envelope that does not hold".to_owned(),
                expected: e.to_string(),
            })?;
            waived.push(waiver.terms.cases);
        }
        Rules::new(&header.backend.caps, &header.expected, waived.iter().map(String::as_str))
    }

    /// The verdict on a case.
    ///
    /// Everything but a pass is a regression, so that a new outcome can never become green by omission. A case is not
    /// applicable only if the cap it names is really absent. A listed failure is expected only if it fails as listed,
    /// and one that passes makes the list stale. A case that did not run because of the kit is excused by nothing.
    pub fn verdict(&self, case: &str, outcome: &Outcome) -> Verdict {
        let listed = || self.expected.iter().filter(|(cases, _)| cases.is_match(case));
        match outcome {
            Outcome::NotRun { why: NotRun::CapNotAdvertised { cap } } if !self.caps.contains(cap) => {
                Verdict::NotApplicable
            }
            Outcome::NotRun { .. } => Verdict::Regression,
            Outcome::Pass if listed().next().is_some() => Verdict::UnexpectedPass,
            Outcome::Pass => Verdict::Ok,
            _ if self.waived.iter().any(|cases| cases.is_match(case)) => Verdict::Waived,
            _ if listed().any(|(_, name)| name == outcome.as_str()) => Verdict::ExpectedFailure,
            _ => Verdict::Regression,
        }
    }
}

fn matcher(pattern: &str) -> Result<GlobMatcher, ExpectationError> {
    case_glob(pattern).map_err(|reason| ExpectationError {
        field: "cases",
        found: pattern.to_owned(),
        expected: format!("a pattern of case ids: {reason}"),
    })
}
