//! In-toto Statements v1 beside the row: subjects, and a predicate of somebody else's or of our own.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::document::{self, Document, DocumentError};
use crate::dsse;
use crate::json::{self, Difference};
use crate::keys::PublicKey;
use crate::record::Header;
use crate::statement::{STATEMENT_TYPE, Subject, SubjectDigest};

/// What a statement says about its subjects.
pub trait PredicateOf: Serialize + DeserializeOwned {
    /// What errors call the statement, with its article.
    const WHAT: &'static str;
    /// Identifies the predicate.
    const TYPE: &'static str;
}

/// A statement: subjects and what is said about them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InToto<P> {
    /// [`STATEMENT_TYPE`].
    #[serde(rename = "_type")]
    kind: String,
    /// The files that it speaks about.
    pub subject: Vec<Subject>,
    /// [`PredicateOf::TYPE`].
    #[serde(rename = "predicateType")]
    predicate_type: String,
    /// What it says.
    pub predicate: P,
}

impl<P: PredicateOf> Document for InToto<P> {
    const WHAT: &'static str = P::WHAT;
    const PAYLOAD_TYPE: &'static str = dsse::PAYLOAD_TYPE;
    const CONSTANTS: &'static [(&'static str, &'static str)] =
        &[("_type", STATEMENT_TYPE), ("predicateType", P::TYPE)];
}

impl<P: PredicateOf> InToto<P> {
    /// A statement about subjects.
    pub fn new(subject: Vec<Subject>, predicate: P) -> InToto<P> {
        InToto { kind: STATEMENT_TYPE.to_owned(), subject, predicate_type: P::TYPE.to_owned(), predicate }
    }

    /// Checks that an envelope holds this very statement, signed by the holder of `key`.
    ///
    /// # Errors
    /// [`AttestationError`].
    pub fn check(&self, envelope: &[u8], key: &PublicKey) -> Result<(), AttestationError> {
        self.compare(&document::open(envelope, key)?)
    }

    /// Compares a signed statement with this one, which was derived anew.
    ///
    /// # Errors
    /// [`AttestationError::Differs`], [`AttestationError::Document`].
    pub fn compare(&self, signed: &InToto<P>) -> Result<(), AttestationError> {
        let value = |statement: &InToto<P>| {
            serde_json::to_value(statement)
                .map_err(|error| DocumentError::Malformed { what: P::WHAT, reason: error.to_string() })
        };
        match json::difference("statement", &value(signed)?, &value(self)?) {
            None => Ok(()),
            Some(Difference { path, first: signed, second: derived }) => {
                Err(AttestationError::Differs { what: P::WHAT, path, signed, derived })
            }
        }
    }
}

/// Why a statement beside a row is refused.
#[derive(Debug, thiserror::Error)]
pub enum AttestationError {
    /// The envelope, its signature or its form.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// It says something that does not follow from the record.
    #[error("{what} says {path} = {signed}, but the row and its record give {derived}: do not trust it")]
    Differs {
        /// [`PredicateOf::WHAT`].
        what: &'static str,
        /// Path within the statement.
        path: String,
        /// Value that was signed.
        signed: String,
        /// Value derived anew.
        derived: String,
    },
}

/// Names a thing: in-toto's `ResourceDescriptor`, as far as it is used here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResourceDescriptor {
    /// For people.
    pub name: String,
    /// Identifies it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// Its digest.
    pub digest: SubjectDigest,
    /// More about it, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// A digest as subjects and descriptors carry it.
pub(crate) fn sha256(digest: &str) -> SubjectDigest {
    SubjectDigest { sha256: digest.to_owned() }
}

/// What was tested: the backend's own files, each once. The kit, which is a subject of the row, is none here, unless the
/// backend is a part of it.
pub(crate) fn tested(header: &Header) -> Vec<Subject> {
    let mut subjects = Vec::new();
    for file in &header.backend_files {
        let next = Subject { name: file.name.clone(), digest: sha256(&file.sha256) };
        if !subjects.contains(&next) {
            subjects.push(next);
        }
    }
    subjects
}
