//! How a wait that the upstream asks for is read and used.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Where a wait may be read, in the order in which it is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HintSource {
    /// The headers `retry-after-ms` and `retry-after`.
    RetryAfter,
    /// A member of the body that is made for it: `RetryInfo.retryDelay`, `resets_in_seconds`, `resets_at`,
    /// `estimated_time`, `retry_after` and their like.
    Body,
    /// The reset headers of the windows that are used up.
    ResetHeader,
    /// A time in the error's message.
    Message,
}

/// The unit of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HintUnit {
    /// Told by its looks: seconds, seconds since 1970 (10 digits), milliseconds since 1970 (13 digits), `1m30s`, a date.
    #[default]
    Auto,
    /// Seconds from now.
    Seconds,
    /// Milliseconds from now.
    Millis,
    /// Seconds since 1970.
    EpochSeconds,
    /// Milliseconds since 1970.
    EpochMillis,
    /// `1h2m3.5s`, `250ms`.
    Duration,
    /// RFC 3339, an HTTP date, or a date and time without a zone, which is the rule's.
    Date,
}

/// A header or a member of the body that names a wait, beside those that are known to every rule. It is looked at first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HintAt {
    /// The header's name in lower case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// A JSON pointer into the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Its unit.
    #[serde(default)]
    pub unit: HintUnit,
}

/// A window that ends with the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Calendar {
    /// At the next full hour.
    Hour,
    /// At the next midnight.
    Day,
    /// At the midnight before the next Monday.
    Week,
    /// At the midnight before the next first of a month.
    Month,
}

/// How a wait that the upstream asks for is used. Kinds without this ignore it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HintRule {
    /// The longest wait that is obeyed, in seconds: a relay must not be able to switch us off for years.
    pub cap_s: u64,
    /// Where it may be read; empty: everywhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<HintSource>,
    /// Where else it stands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<HintAt>,
    /// The zone of times that name none, and of the calendar: `+08:00` or `UTC`.
    #[serde(default, skip_serializing_if = "Zone::is_utc")]
    pub zone: Zone,
    /// When the window ends if nothing says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calendar: Option<Calendar>,
}

impl HintRule {
    /// Whether waits may be read there.
    #[must_use]
    pub fn reads(&self, source: HintSource) -> bool {
        self.read.is_empty() || self.read.contains(&source)
    }
}

/// A fixed distance from UTC, as `+08:00`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Zone {
    minutes: i32,
}

impl Zone {
    /// Minutes by which its clocks are ahead of UTC.
    #[must_use]
    pub const fn minutes(self) -> i32 {
        self.minutes
    }

    const fn is_utc(&self) -> bool {
        self.minutes == 0
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.minutes < 0 { '-' } else { '+' };
        let minutes = self.minutes.unsigned_abs();
        write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

/// A text that is no zone.
#[derive(Debug, Clone, thiserror::Error)]
#[error("not a zone (UTC or +08:00): {text:?}")]
pub struct ParseZoneError {
    text: String,
}

impl FromStr for Zone {
    type Err = ParseZoneError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let fault = || ParseZoneError { text: s.chars().take(16).collect() };
        if s == "UTC" || s == "Z" {
            return Ok(Self::default());
        }
        let (sign, rest) = s.strip_prefix('-').map_or((1, s.strip_prefix('+')), |rest| (-1, Some(rest)));
        let (hours, minutes) = rest.and_then(|rest| rest.split_once(':')).ok_or_else(fault)?;
        match (hours.parse::<u8>(), minutes.parse::<u8>()) {
            (Ok(hours @ 0..=14), Ok(minutes @ 0..=59)) => {
                Ok(Self { minutes: sign * (i32::from(hours) * 60 + i32::from(minutes)) })
            }
            _ => Err(fault()),
        }
    }
}

impl Serialize for Zone {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Zone {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
