//! Why a run was made: to watch over a backend from day to day, or to certify it.

use serde::{Deserialize, Serialize};

/// The mode of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Known failures may be listed and cases may be tried again, openly; its row says `PARTIAL` at most.
    Ci,
    /// Every rung, the kit's own suites, no filter, no list of known failures, no second try, and inputs that derive
    /// from a challenge: the only mode whose row may say more than `PARTIAL`.
    Certify,
}

impl Mode {
    /// The name used in rows and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Ci => "ci",
            Mode::Certify => "certify",
        }
    }
}
