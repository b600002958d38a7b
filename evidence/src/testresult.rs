//! The run as an in-toto test result v0.1, for consumers that know no support rows. A pure function of the record.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::gaps::{GapKind, group_of};
use crate::intoto::{InToto, PredicateOf, ResourceDescriptor, sha256, tested};
use crate::label::Label;
use crate::outcome::Verdict;
use crate::results::Results;
use crate::row::Predicate;

/// File name of the envelope, beside the row.
pub const FILE: &str = "test-result.dsse.json";

/// The result as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum TestOutcome {
    /// The whole mandatory list ran, and all of it supports the label.
    Passed,
    /// No case failed, but the label is `PARTIAL` (a smaller set, say), or a case is excused.
    Warned,
    /// A case failed, cases are missing, or nothing is proven.
    Failed,
}

/// The predicate, with the names of the specification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TestResult {
    /// The result as a whole.
    pub result: TestOutcome,
    /// What the run was configured with: suites and model.
    pub configuration: Vec<ResourceDescriptor>,
    /// Groups, `rung/family/group`, in which every applicable case is ok. Their cases are in `results.jsonl`.
    pub passed_tests: Vec<String>,
    /// Cases that failed as listed or were waived.
    pub warned_tests: Vec<String>,
    /// Every other case that is not ok.
    pub failed_tests: Vec<String>,
}

impl PredicateOf for TestResult {
    const WHAT: &'static str = "a test result";
    const TYPE: &'static str = "https://in-toto.io/attestation/test-result/v0.1";
}

/// The statement that follows from a record and the row that was derived from it.
pub fn of(results: &Results, row: &Predicate) -> InToto<TestResult> {
    let header = &results.header;
    let (mut warned_tests, mut failed_tests) = (Vec::new(), Vec::new());
    let mut groups = BTreeMap::<&str, bool>::new();
    for case in &results.cases {
        let ok = match case.verdict {
            Verdict::NotApplicable => continue,
            Verdict::Ok => true,
            Verdict::ExpectedFailure | Verdict::Waived => {
                warned_tests.push(case.id.clone());
                false
            }
            Verdict::Regression | Verdict::UnexpectedPass => {
                failed_tests.push(case.id.clone());
                false
            }
        };
        *groups.entry(group_of(&case.id)).or_insert(true) &= ok;
    }
    let incomplete = row.gaps.iter().any(|gap| gap.kind == GapKind::Incomplete);
    let result = match row.label {
        _ if incomplete || !failed_tests.is_empty() => TestOutcome::Failed,
        Label::NotYet => TestOutcome::Failed,
        Label::Partial => TestOutcome::Warned,
        Label::Reference | Label::Approx | Label::Fenced if !warned_tests.is_empty() => TestOutcome::Warned,
        Label::Reference | Label::Approx | Label::Fenced => TestOutcome::Passed,
    };
    let passed_tests = groups.into_iter().filter(|(_, ok)| *ok).map(|(group, _)| group.to_owned()).collect();
    let predicate = TestResult {
        result,
        configuration: configuration(results),
        passed_tests,
        warned_tests,
        failed_tests,
    };
    InToto::new(tested(header), predicate)
}

fn configuration(results: &Results) -> Vec<ResourceDescriptor> {
    let (suite, model) = (&results.header.suite, &results.header.model);
    let texts = |pairs: &[(&str, String)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    };
    vec![
        ResourceDescriptor {
            name: format!("suites, set {}", suite.set),
            uri: Some(suite_uri(&suite.set)),
            digest: sha256(&suite.digest),
            annotations: texts(&[
                ("cases", suite.cases.to_string()),
                ("casesDigest", suite.cases_digest.clone()),
                ("mode", results.header.mode.as_str().to_owned()),
                ("seed", results.header.seed.clone()),
            ]),
        },
        ResourceDescriptor {
            name: format!("model {}", model.name),
            uri: None,
            digest: sha256(&model.sha256),
            annotations: texts(&[("family", model.family.clone())]),
        },
    ]
}

/// How statements name a set of suites.
pub(crate) fn suite_uri(set: &str) -> String {
    format!("urn:modelbench:suite:{set}")
}
