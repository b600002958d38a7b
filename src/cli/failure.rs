//! An error with the exit code that it means.

use std::fmt::Display;
use std::path::Path;

use super::exit;

/// What ends the program early.
#[derive(Debug)]
pub(super) struct Failure {
    /// The exit code.
    pub(super) code: u8,
    /// What is printed after `error:`.
    pub(super) error: anyhow::Error,
}

impl Failure {
    /// An error with its exit code.
    pub(super) fn new(code: u8, error: impl Into<anyhow::Error>) -> Failure {
        Failure { code, error: error.into() }
    }

    /// A message with its exit code.
    pub(super) fn message(code: u8, text: impl Display) -> Failure {
        Failure { code, error: anyhow::anyhow!("{text}") }
    }
}

/// Turns what is wrong with a file of evidence into the failure that says so.
pub(super) fn rejected<E: Display>(path: &Path) -> impl Fn(E) -> Failure {
    let path = path.to_owned();
    move |error| Failure::message(exit::REJECTED, format!("{}: {error}", path.display()))
}

/// Whatever is not said otherwise is a matter of usage: a file that does not open, a suite that does not parse.
impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure { code: exit::USAGE, error: error.into() }
    }
}
