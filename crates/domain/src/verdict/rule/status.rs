//! Ranges of HTTP statuses.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Statuses from one to another, both included. Written as `429` or `500-599`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatusRange {
    first: u16,
    last: u16,
}

impl StatusRange {
    /// Whether a status lies in the range.
    #[must_use]
    pub const fn contains(self, status: u16) -> bool {
        self.first <= status && status <= self.last
    }

    /// The first status of the range, and the one behind its last.
    pub(in crate::verdict) const fn bounds(self) -> (u16, u16) {
        (self.first, self.last.saturating_add(1))
    }
}

/// A text that is no range of statuses.
#[derive(Debug, Clone, thiserror::Error)]
#[error("not a status or a range of them (429 or 500-599): {text:?}")]
pub struct ParseStatusRangeError {
    text: String,
}

impl FromStr for StatusRange {
    type Err = ParseStatusRangeError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let (first, last) = s.split_once('-').unwrap_or((s, s));
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) if first <= last => Ok(Self { first, last }),
            _ => Err(ParseStatusRangeError { text: s.chars().take(32).collect() }),
        }
    }
}

impl fmt::Display for StatusRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last { write!(f, "{}", self.first) } else { write!(f, "{}-{}", self.first, self.last) }
    }
}

impl Serialize for StatusRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for StatusRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
