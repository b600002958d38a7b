//! Times of a row: RFC 3339 in UTC, and how long a row holds.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

/// Days for which a row holds after its run. Drivers and runtimes of accelerators are released about once a quarter,
/// and the Kubernetes conformance programme, too, takes no results older than 90 days.
pub const VALID_DAYS: u64 = 90;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A clock of the signer that runs ahead by less than this is not a reason to refuse a row.
pub const CLOCK_TOLERANCE: Duration = DAY;

/// A time that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// Not RFC 3339 in UTC.
    #[error("{text:?} is not a time: expected RFC 3339 in UTC, such as 2026-11-30T10:12:44Z")]
    Malformed {
        /// What was found.
        text: String,
    },
    /// Too late to be written as RFC 3339.
    #[error(
        "the time {text:?} plus {VALID_DAYS} days is beyond the year 9999: check the clock of that machine"
    )]
    TooLate {
        /// What was found.
        text: String,
    },
}

/// Reads a time.
///
/// # Errors
/// [`TimeError::Malformed`].
pub fn parse(text: &str) -> Result<SystemTime, TimeError> {
    humantime::parse_rfc3339(text).map_err(|_| TimeError::Malformed { text: text.to_owned() })
}

/// Writes a time in whole seconds.
///
/// # Errors
/// [`TimeError::TooLate`] outside of the years 1970 to 9999.
pub fn format(time: SystemTime) -> Result<String, TimeError> {
    let late = || TimeError::TooLate { text: format!("{time:?}") };
    // The formatter subtracts the epoch without a check.
    time.duration_since(SystemTime::UNIX_EPOCH).map_err(|_| late())?;
    let mut text = String::new();
    write!(text, "{}", humantime::format_rfc3339_seconds(time)).map_err(|_| late())?;
    Ok(text)
}

/// The end of a row's validity: [`VALID_DAYS`] after the end of its run.
///
/// # Errors
/// [`TimeError`] if `finished` is not a time, or is too late.
pub fn valid_until(finished: &str) -> Result<String, TimeError> {
    let late = || TimeError::TooLate { text: finished.to_owned() };
    let days = u32::try_from(VALID_DAYS).map_err(|_| late())?;
    let until = parse(finished)?.checked_add(DAY * days).ok_or_else(late)?;
    format(until).map_err(|_| late())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_holds_for_ninety_days() {
        assert_eq!(valid_until("2026-11-30T10:12:44Z"), Ok("2027-02-28T10:12:44Z".into()));
        assert_eq!(valid_until("2026-11-30T10:12:44.987Z"), Ok("2027-02-28T10:12:44Z".into()));
    }

    #[test]
    fn what_is_not_a_time_is_refused() {
        for text in [
            "",
            "now",
            "2026-11-30",
            "2026-11-30 10:12:44",
            "2026-11-30T10:12:44+01:00",
            "2026-13-30T10:12:44Z",
        ] {
            assert!(matches!(parse(text), Err(TimeError::Malformed { .. })), "{text}");
        }
        assert!(matches!(valid_until("9999-12-30T00:00:00Z"), Err(TimeError::TooLate { .. })));
    }
}
