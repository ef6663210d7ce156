//! A day of the log, by which tables of traffic are partitioned.

use std::fmt;

use serde::{Serialize, Serializer};
use waybill_event::{LogTime, RequestId};

const MICROS: i64 = 86_400_000_000;

/// A day, UTC, as days since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(pub i32);

impl Day {
    /// The day that a moment lies in.
    #[must_use]
    pub fn of(at: LogTime) -> Self {
        Self(i32::try_from(at.as_micros().div_euclid(MICROS)).unwrap_or(i32::MAX))
    }

    /// The day of a request, which its id tells: each of its events finds the same one.
    #[must_use]
    pub fn of_request(id: RequestId) -> Self {
        Self::of(id.admitted_at())
    }

    /// Its first moment.
    #[must_use]
    pub fn start(self) -> LogTime {
        LogTime::from_micros(i64::from(self.0).saturating_mul(MICROS))
    }

    /// The day so many days before it.
    #[must_use]
    pub const fn before(self, days: u32) -> Self {
        Self(self.0.saturating_sub_unsigned(days))
    }

    /// The day after it.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = self.start().to_string();
        f.write_str(start.split('T').next().unwrap_or(&start))
    }
}

impl Serialize for Day {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_requests_day_is_the_one_its_id_tells() {
        let last: LogTime = "2026-11-29T23:59:59.999999Z".parse().unwrap();
        let day = Day::of_request(RequestId::from_parts(last, [255; 10]));
        assert_eq!(day.to_string(), "2026-11-29");
        assert_eq!(day.next().start().to_string(), "2026-11-30T00:00:00.000000Z");
        assert_eq!(day.before(30).to_string(), "2026-10-30");
        assert_eq!(Day::of(LogTime::from_micros(-1)).to_string(), "1969-12-31");
    }
}
