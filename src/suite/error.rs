//! What can be wrong with a suite tree.

/// A suite file, a set or a lookup that cannot be used. Every message names the file, and the line where there is one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SuiteError {
    /// The folder cannot be read.
    #[error("suites {path}: {reason}; give a folder that holds r0/ to r6/ and sets/")]
    Unreadable {
        /// The folder or file.
        path: String,
        /// What the operating system says.
        reason: String,
    },
    /// A file does not parse, or a value in it is not allowed.
    #[error("{file}:{line}: {reason}")]
    Invalid {
        /// Path within the tree.
        file: String,
        /// Line, from 1.
        line: usize,
        /// What is wrong and what was expected.
        reason: String,
    },
    /// No such set.
    #[error("no set {name:?}; known sets: {known}")]
    UnknownSet {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The set does not hold the cases that it pins.
    #[error(
        "sets/{set}.toml pins {pinned_cases} cases with digest {pinned_digest}, but the tree expands to {found_cases} \
         with digest {found_digest}; if the change is meant, put the new figures into sets/{set}.toml"
    )]
    PinMismatch {
        /// The set.
        set: String,
        /// Pinned number of cases.
        pinned_cases: u64,
        /// Pinned digest of the sorted case ids.
        pinned_digest: String,
        /// Number of cases found.
        found_cases: u64,
        /// Digest found.
        found_digest: String,
    },
    /// It is not known what the cases of the tree can reject.
    #[error("{reason}; run: modelbench build-suites DIR, and look at what it changes")]
    NotBuilt {
        /// What is missing or does not fit.
        reason: String,
    },
    /// A glob does not parse.
    #[error("pattern {pattern:?}: {reason}")]
    BadGlob {
        /// The pattern.
        pattern: String,
        /// What is wrong.
        reason: String,
    },
}
