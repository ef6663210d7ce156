//! Time of the log: microseconds since 1970, UTC. It comes from events; nothing here reads a clock.

use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;
use std::time::Duration;

use chrono::DateTime;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A moment of the log, in microseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LogTime(i64);

impl LogTime {
    /// The moment at this many microseconds since 1970.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since 1970.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Milliseconds since 1970, rounded down.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    /// How long ago `earlier` was; zero if it lies in the future.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl Add<Duration> for LogTime {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(rhs.as_micros()).unwrap_or(i64::MAX)))
    }
}

impl Sub<Duration> for LogTime {
    type Output = Self;
    fn sub(self, rhs: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(rhs.as_micros()).unwrap_or(i64::MAX)))
    }
}

/// Splits days since 1970 into year, month and day (proleptic Gregorian).
fn civil(days: i64) -> (i64, u8, u8) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + i64::from(month <= 2);
    (year, u8::try_from(month).unwrap_or(1), u8::try_from(day).unwrap_or(1))
}

/// Bytes of a time with a year of four digits.
const LENGTH: usize = 27;
/// The first and the last moment of the years that can be written, 0 to 9999.
const WRITTEN: (LogTime, LogTime) = (LogTime(-62_167_219_200_000_000), LogTime(253_402_300_799_999_999));

impl LogTime {
    /// The time as it is written. What lies outside of the years 0 to 9999 is written as their first or last moment:
    /// upstreams name any time they like, and what couldn't be read again would take the whole event or beat with it.
    pub(crate) fn text(self) -> [u8; LENGTH] {
        let written = self.0.clamp(WRITTEN.0.0, WRITTEN.1.0);
        let seconds = written.div_euclid(1_000_000);
        let small = |number: i64| u32::try_from(number).unwrap_or_default();
        let micros = small(written.rem_euclid(1_000_000));
        let (year, month, day) = civil(seconds.div_euclid(86_400));
        let (year, rest) = (small(year), small(seconds.rem_euclid(86_400)));
        let digit = |number: u32, unit: u32| b'0' + u8::try_from(number / unit % 10).unwrap_or_default();
        let pair = |number: u32| [digit(number, 10), digit(number, 1)];
        let [[y0, y1], [y2, y3]] = [pair(year / 100), pair(year % 100)];
        let [[o0, o1], [d0, d1]] = [pair(month.into()), pair(day.into())];
        let [[h0, h1], [m0, m1], [s0, s1]] = [pair(rest / 3_600), pair(rest / 60 % 60), pair(rest % 60)];
        let [[u0, u1], [u2, u3], [u4, u5]] = [pair(micros / 10_000), pair(micros / 100 % 100), pair(micros % 100)];
        [
            y0, y1, y2, y3, b'-', o0, o1, b'-', d0, d1, b'T', h0, h1, b':', m0, m1, b':', s0, s1, b'.', u0, u1, u2, u3,
            u4, u5, b'Z',
        ]
    }
}

impl fmt::Display for LogTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text();
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

/// A text that is no RFC 3339 time.
#[derive(Debug, Clone, thiserror::Error)]
#[error("not an RFC 3339 time: {text:?}")]
pub struct ParseLogTimeError {
    text: String,
}

impl FromStr for LogTime {
    type Err = ParseLogTimeError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        DateTime::parse_from_rfc3339(s)
            .map(|t| Self(t.timestamp_micros()))
            .map_err(|_| ParseLogTimeError { text: s.chars().take(64).collect() })
    }
}

impl Serialize for LogTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.text()) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for LogTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_lies_beyond_the_years_that_can_be_written_is_still_read_again() {
        let check = |micros: i64, expected: &str| {
            let at = LogTime::from_micros(micros);
            let written = serde_json::to_string(&at).unwrap();
            assert_eq!((at.to_string().as_str(), written.as_str()), (expected, format!("{expected:?}").as_str()));
            let read: LogTime = serde_json::from_str(&written).unwrap();
            assert_eq!(read.to_string(), expected);
        };
        check(i64::MAX, "9999-12-31T23:59:59.999999Z");
        check(253_402_300_800_000_000, "9999-12-31T23:59:59.999999Z");
        check(-62_167_219_200_000_001, "0000-01-01T00:00:00.000000Z");
        check(i64::MIN, "0000-01-01T00:00:00.000000Z");
    }

    proptest! {
        #[test]
        fn rendering_agrees_with_chrono(micros in -62_135_596_800_000_000i64..253_402_300_799_999_999) {
            let ours = LogTime::from_micros(micros).to_string();
            let theirs = DateTime::from_timestamp_micros(micros).unwrap().to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
            prop_assert_eq!(&ours, &theirs);
            prop_assert_eq!(ours.parse::<LogTime>().unwrap().as_micros(), micros);
        }
    }
}
