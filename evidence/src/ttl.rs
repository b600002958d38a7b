//! For how long a signed document holds.

use std::time::Duration;

/// A time to live that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TtlError {
    /// Not a number and a unit.
    #[error(
        "{text:?} is no time to live: expected a whole number and a unit, m, h or d, such as 30m, 24h or 7d"
    )]
    Malformed {
        /// What was found.
        text: String,
    },
    /// Nothing, or too long.
    #[error("the time to live is {found}, expected at least 1m and at most {most}")]
    Range {
        /// What was found.
        found: String,
        /// The longest that is allowed.
        most: String,
    },
}

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Days as a duration.
pub const fn days(count: u64) -> Duration {
    Duration::from_secs(count * DAY)
}

/// Reads `30m`, `24h` or `7d`: a whole number and one unit.
///
/// # Errors
/// [`TtlError::Malformed`]; the range is checked by whoever signs.
pub fn parse(text: &str) -> Result<Duration, TtlError> {
    let malformed = || TtlError::Malformed { text: text.to_owned() };
    let unit = match text.as_bytes().last() {
        Some(b'm') => MINUTE,
        Some(b'h') => HOUR,
        Some(b'd') => DAY,
        _ => return Err(malformed()),
    };
    let number = &text[..text.len() - 1];
    // `parse` would take a plus sign.
    if !number.bytes().all(|b| b.is_ascii_digit()) {
        return Err(malformed());
    }
    let count: u64 = number.parse().map_err(|_| malformed())?;
    Ok(Duration::from_secs(count.checked_mul(unit).ok_or_else(malformed)?))
}

/// Checks a time to live against the longest that a kind of document may have.
///
/// # Errors
/// [`TtlError::Range`].
pub fn check(ttl: Duration, most: Duration) -> Result<(), TtlError> {
    if (Duration::from_secs(MINUTE)..=most).contains(&ttl) {
        return Ok(());
    }
    Err(TtlError::Range { found: text(ttl), most: text(most) })
}

/// The shortest text that [`parse`] reads as this many minutes; the seconds where it is none.
fn text(ttl: Duration) -> String {
    match ttl.as_secs() {
        0 => "0m".to_owned(),
        seconds if seconds % DAY == 0 => format!("{}d", seconds / DAY),
        seconds if seconds % HOUR == 0 => format!("{}h", seconds / HOUR),
        seconds if seconds % MINUTE == 0 => format!("{}m", seconds / MINUTE),
        seconds => format!("{seconds} seconds"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_a_unit_and_nothing_else() {
        assert_eq!(parse("30m"), Ok(Duration::from_secs(1800)));
        assert_eq!(parse("24h"), parse("1d"));
        assert_eq!(parse("7d"), Ok(days(7)));
        for text in [
            "",
            "m",
            "7",
            "7s",
            "+7d",
            "-1h",
            "1.5h",
            " 7d",
            "7 d",
            "7D",
            "1d2h",
            "999999999999999999d",
            "７d",
        ] {
            assert_eq!(parse(text), Err(TtlError::Malformed { text: text.into() }));
        }
    }

    #[test]
    fn the_range_is_named() {
        assert_eq!(check(days(30), days(30)), Ok(()));
        let error = check(days(31), days(30)).expect_err("too long");
        assert_eq!(error.to_string(), "the time to live is 31d, expected at least 1m and at most 30d");
        assert!(check(Duration::ZERO, days(30)).is_err());
        assert!(check(Duration::from_secs(90), days(30)).is_ok());
    }
}
