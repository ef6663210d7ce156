//! Who wrote an event and how it is told apart from every other.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::LogTime;
use crate::json::{hexadecimal, integer};

/// Name of a writer of events, e.g. `proxy-2`: 1 to 48 characters of `[a-z0-9-]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ProducerId(Arc<str>);

/// A text that is no producer's name or no boot.
#[derive(Debug, Clone, thiserror::Error)]
#[error("not a {what}: {text:?}")]
pub struct ParseIdentityError {
    what: &'static str,
    text: String,
}

impl ParseIdentityError {
    fn new(what: &'static str, text: &str) -> Self {
        Self { what, text: text.chars().take(64).collect() }
    }
}

impl ProducerId {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ProducerId {
    type Err = ParseIdentityError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if (1..=48).contains(&s.len()) && s.bytes().all(allowed) {
            Ok(Self(s.into()))
        } else {
            Err(ParseIdentityError::new("producer name (1 to 48 of a-z, 0-9, -)", s))
        }
    }
}

impl fmt::Display for ProducerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ProducerId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// One start of a producer: the milliseconds at which it began and 32 random bits, so that boots are ordered and
/// never reused. Written as 12 and 8 hexadecimal digits in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Boot {
    millis: u64,
    random: u32,
}

impl Boot {
    /// A boot that begins at `at`.
    #[must_use]
    pub fn new(at: LogTime, random: u32) -> Self {
        Self { millis: u64::try_from(at.as_millis()).unwrap_or(0) & 0xffff_ffff_ffff, random }
    }
}

impl Boot {
    /// Appends its digits.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&hexadecimal::<12>(self.millis));
        out.extend_from_slice(&hexadecimal::<8>(self.random.into()));
    }
}

impl fmt::Display for Boot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:012x}{:08x}", self.millis, self.random)
    }
}

impl FromStr for Boot {
    type Err = ParseIdentityError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let parse = || {
            if s.len() != 20 || !s.bytes().all(|b| b.is_ascii_hexdigit()) {
                return None;
            }
            let (millis, random) = s.split_at_checked(12)?;
            Some(Self { millis: u64::from_str_radix(millis, 16).ok()?, random: u32::from_str_radix(random, 16).ok()? })
        };
        parse().ok_or_else(|| ParseIdentityError::new("boot (20 hexadecimal digits)", s))
    }
}

impl Serialize for Boot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Boot {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A place in one producer's own sequence of events. Written as `producer:boot:n`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    /// The producer.
    pub producer: ProducerId,
    /// Its boot.
    pub boot: Boot,
    /// Ordinal within the boot, from 1.
    pub n: u64,
}

impl Mark {
    /// Appends what [`Mark`] is written as; it has nothing that JSON would escape.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.producer.as_str().as_bytes());
        out.push(b':');
        self.boot.write(out);
        out.push(b':');
        integer(self.n, false, out);
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.producer, self.boot, self.n)
    }
}

impl FromStr for Mark {
    type Err = ParseIdentityError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseIdentityError::new("mark (producer:boot:n)", s);
        let mut parts = s.split(':');
        let (Some(producer), Some(boot), Some(n), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong());
        };
        Ok(Self { producer: producer.parse()?, boot: boot.parse()?, n: n.parse().map_err(|_| wrong())? })
    }
}

impl Serialize for Mark {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Mark {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// What tells an event apart from every other, in every fold.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Identity {
    /// The n-th event of a producer's boot; it came through that producer's outbox.
    Sequenced(Mark),
    /// An event whose id is derived from its cause (control events) or given by its writer (configuration).
    Derived {
        /// The id, unique in the log.
        id: String,
        /// Who wrote it.
        producer: ProducerId,
    },
}

impl Identity {
    /// The writer.
    #[must_use]
    pub fn producer(&self) -> &ProducerId {
        match self {
            Self::Sequenced(mark) => &mark.producer,
            Self::Derived { producer, .. } => producer,
        }
    }

    /// The mark, if it came through an outbox.
    #[must_use]
    pub fn mark(&self) -> Option<&Mark> {
        match self {
            Self::Sequenced(mark) => Some(mark),
            Self::Derived { .. } => None,
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sequenced(mark) => mark.fmt(f),
            Self::Derived { id, .. } => f.write_str(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boots_order_by_time_and_read_back() {
        let early = Boot::new(LogTime::from_micros(1_000_000), u32::MAX);
        let late = Boot::new(LogTime::from_micros(2_000_000), 0);
        assert!(early < late && early.to_string() < late.to_string());
        assert_eq!(late.to_string().parse::<Boot>().unwrap(), late);
        assert!("xyz".parse::<Boot>().is_err());
    }

    #[test]
    fn marks_read_back() {
        let mark = Mark { producer: "proxy-2".parse().unwrap(), boot: Boot::new(LogTime::from_micros(5), 9), n: 41 };
        assert_eq!(mark.to_string().parse::<Mark>().unwrap(), mark);
        assert!("proxy-2:1".parse::<Mark>().is_err());
        assert!("Proxy".parse::<ProducerId>().is_err());
    }
}
