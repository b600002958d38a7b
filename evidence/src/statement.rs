//! The in-toto Statement v1 that carries a row.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::json;
use crate::results::Results;
use crate::row::{DigestRow, PREDICATE_TYPE, Predicate};
use crate::time::TimeError;

/// `_type` of every statement.
pub const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/v1";

/// Why a payload is not a statement of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StatementError {
    /// Not the JSON of a statement.
    #[error("the signed payload is not an in-toto statement v1 with a support row: {0}")]
    Malformed(String),
    /// A constant differs.
    #[error("the signed payload has {field} {found:?}, expected {expected:?}")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        found: String,
        /// The constant.
        expected: &'static str,
    },
    /// It speaks about nothing.
    #[error("the signed payload names no subject: expected the backend's files and the modelbench binary")]
    NoSubject,
}

/// A file that the statement speaks about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subject {
    /// Plain file name.
    pub name: String,
    /// Its digest.
    pub digest: SubjectDigest,
}

/// The digest of a subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubjectDigest {
    /// sha256, lower-case hex.
    pub sha256: String,
}

/// A statement: subjects and the row about them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    /// [`STATEMENT_TYPE`].
    #[serde(rename = "_type")]
    pub kind: String,
    /// The backend's files, then the modelbench binary; a file that is both is listed once.
    pub subject: Vec<Subject>,
    /// [`PREDICATE_TYPE`].
    #[serde(rename = "predicateType")]
    pub predicate_type: String,
    /// The row.
    pub predicate: Predicate,
}

impl Statement {
    /// The statement that follows from a record.
    ///
    /// # Errors
    /// As [`Predicate::of`].
    pub fn of(results: &Results) -> Result<Statement, TimeError> {
        let mut subject: Vec<Subject> = Vec::new();
        for file in results.header.backend_files.iter().chain([&results.header.kit]) {
            let digest = SubjectDigest { sha256: file.sha256.clone() };
            let next = Subject { name: file.name.clone(), digest };
            if !subject.contains(&next) {
                subject.push(next);
            }
        }
        Ok(Statement {
            kind: STATEMENT_TYPE.to_owned(),
            subject,
            predicate_type: PREDICATE_TYPE.to_owned(),
            predicate: Predicate::of(results)?,
        })
    }

    /// The bytes to be signed.
    ///
    /// # Errors
    /// [`StatementError::Malformed`] if it cannot be written as JSON.
    pub fn to_bytes(&self) -> Result<Vec<u8>, StatementError> {
        serde_json::to_vec(self).map_err(|error| StatementError::Malformed(error.to_string()))
    }

    /// Reads signed bytes strictly: no unknown and no repeated key anywhere.
    ///
    /// # Errors
    /// [`StatementError`].
    pub fn parse(bytes: &[u8]) -> Result<Statement, StatementError> {
        let malformed = |error: String| StatementError::Malformed(error);
        let text = std::str::from_utf8(bytes).map_err(|error| malformed(error.to_string()))?;
        let value = json::strict(text).map_err(malformed)?;
        // The constants come first: a row of another version is then named as such, not by its first unknown field.
        constant(&value, "_type", STATEMENT_TYPE)?;
        constant(&value, "predicateType", PREDICATE_TYPE)?;
        let statement: Statement =
            serde_json::from_value(value).map_err(|error| malformed(error.to_string()))?;
        if statement.subject.is_empty() {
            return Err(StatementError::NoSubject);
        }
        Ok(statement)
    }

    /// The digest that the row gives for `results.jsonl`, if it lists that file.
    pub fn results_digest(&self) -> Option<&str> {
        let listed = self.predicate.evidence.iter().find(|file| file.name == crate::results::RESULTS_FILE);
        listed.map(|file| &file.digest).map(|DigestRow { sha256 }| sha256.as_str())
    }
}

fn constant(value: &Value, field: &'static str, expected: &'static str) -> Result<(), StatementError> {
    match value.get(field).and_then(Value::as_str) {
        Some(found) if found == expected => Ok(()),
        found => Err(StatementError::Field { field, found: found.unwrap_or("absent").to_owned(), expected }),
    }
}
