//! The time for which a signed document holds.

use std::time::{Duration, SystemTime};

use crate::time::{self, TimeError};
use crate::ttl::{self, TtlError};

/// Clocks of two machines that keep time may differ by this much at most: a document is accepted so long before it was
/// issued, and never after its end.
pub const CLOCK_SKEW: Duration = Duration::from_secs(5 * 60);

/// Why a document does not hold at a time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeriodError {
    /// Over.
    #[error("{what} expired at {expires}, now it is {now}: ask for a new one")]
    Expired {
        /// What expired.
        what: &'static str,
        /// End.
        expires: String,
        /// Now.
        now: String,
    },
    /// From the future.
    #[error("{what} was issued at {issued}, but now it is {now}: check the clocks of both machines")]
    NotYet {
        /// What is not valid yet.
        what: &'static str,
        /// Beginning.
        issued: String,
        /// Now.
        now: String,
    },
    /// A time that the kit would not have written.
    #[error("{field} is {found:?}, expected {expected:?}: RFC 3339 in UTC, whole seconds")]
    Seconds {
        /// The field.
        field: &'static str,
        /// Its value.
        found: String,
        /// The same time in whole seconds.
        expected: String,
    },
    /// It ends before it begins.
    #[error("expires is {expires}, expected a time after issued, {issued}")]
    Order {
        /// Beginning.
        issued: String,
        /// End.
        expires: String,
    },
    /// Too short or too long.
    #[error(transparent)]
    Ttl(#[from] TtlError),
    /// Not a time.
    #[error(transparent)]
    Time(#[from] TimeError),
}

/// The fields `issued` and `expires` of a document.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Period<'a> {
    /// What the document is, with its article.
    pub(crate) what: &'static str,
    pub(crate) issued: &'a str,
    pub(crate) expires: &'a str,
}

/// The texts of both ends of a period that begins now.
pub(crate) fn from(now: SystemTime, ttl: Duration, most: Duration) -> Result<(String, String), PeriodError> {
    ttl::check(ttl, most)?;
    let issued = time::format(now)?;
    let late = || TimeError::TooLate { text: issued.clone() };
    let end = time::parse(&issued)?.checked_add(ttl).ok_or_else(late)?;
    let expires = time::format(end)?;
    Ok((issued, expires))
}

impl Period<'_> {
    /// Checks what does not depend on the time: form, order and length.
    pub(crate) fn check_form(&self, most: Duration) -> Result<(), PeriodError> {
        let (issued, expires) = (whole("issued", self.issued)?, whole("expires", self.expires)?);
        let order =
            || PeriodError::Order { issued: self.issued.to_owned(), expires: self.expires.to_owned() };
        let length = expires.duration_since(issued).map_err(|_| order())?;
        Ok(ttl::check(length, most)?)
    }

    /// Checks that the document holds now.
    pub(crate) fn check(&self, now: SystemTime) -> Result<(), PeriodError> {
        let Period { what, issued, expires } = *self;
        if now > time::parse(expires)? {
            return Err(PeriodError::Expired { what, expires: expires.to_owned(), now: time::format(now)? });
        }
        if time::parse(issued)?.duration_since(now).is_ok_and(|ahead| ahead > CLOCK_SKEW) {
            return Err(PeriodError::NotYet { what, issued: issued.to_owned(), now: time::format(now)? });
        }
        Ok(())
    }
}

fn whole(field: &'static str, text: &str) -> Result<SystemTime, PeriodError> {
    let time = time::parse(text)?;
    let expected = time::format(time)?;
    if expected == text {
        return Ok(time);
    }
    Err(PeriodError::Seconds { field, found: text.to_owned(), expected })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SystemTime {
        time::parse(text).expect("a time")
    }

    #[test]
    fn the_last_second_counts_and_the_next_does_not() {
        let period =
            Period { what: "the pass", issued: "2026-11-30T10:00:00Z", expires: "2026-11-30T11:00:00Z" };
        assert_eq!(period.check(at("2026-11-30T11:00:00Z")), Ok(()));
        let error = period.check(at("2026-11-30T11:00:01Z")).expect_err("over");
        assert_eq!(
            error.to_string(),
            "the pass expired at 2026-11-30T11:00:00Z, now it is 2026-11-30T11:00:01Z: ask for a new one"
        );
        assert_eq!(period.check(at("2026-11-30T09:55:00Z")), Ok(()));
        let error = period.check(at("2026-11-30T09:54:59Z")).expect_err("too early");
        assert!(matches!(error, PeriodError::NotYet { .. }), "{error}");
    }

    #[test]
    fn a_period_that_nobody_would_write_is_refused() {
        let refusal = |issued, expires| {
            Period { what: "it", issued, expires }.check_form(ttl::days(1)).expect_err("a refusal")
        };
        let fraction = refusal("2026-11-30T10:00:00.5Z", "2026-11-30T11:00:00Z");
        assert!(matches!(fraction, PeriodError::Seconds { field: "issued", .. }), "{fraction}");
        let order = refusal("2026-11-30T12:00:00Z", "2026-11-30T11:00:00Z");
        assert!(matches!(order, PeriodError::Order { .. }), "{order}");
        let long = refusal("2026-11-30T10:00:00Z", "2026-12-01T10:01:00Z");
        assert!(matches!(long, PeriodError::Ttl(TtlError::Range { .. })), "{long}");
        assert!(matches!(refusal("now", "then"), PeriodError::Time(_)));
        let good = Period { what: "it", issued: "2026-11-30T10:00:00Z", expires: "2026-12-01T10:00:00Z" };
        assert_eq!(good.check_form(ttl::days(1)), Ok(()));
    }

    #[test]
    fn a_period_begins_now() {
        let now = at("2026-11-30T10:00:00Z") + Duration::from_millis(700);
        let (issued, expires) = from(now, ttl::days(1), ttl::days(30)).expect("a period");
        assert_eq!((issued.as_str(), expires.as_str()), ("2026-11-30T10:00:00Z", "2026-12-01T10:00:00Z"));
        assert!(from(at("9999-12-31T10:00:00Z"), ttl::days(1), ttl::days(30)).is_err());
    }
}
