//! Where an event stands in the log.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Position of a traffic event: stream generation, shard, the message's sequence, index in the message.
/// Written as `generation/shard/sequence/index`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position {
    /// Generation of the streams; rises when the number of shards changes.
    pub generation: u16,
    /// Shard within the generation.
    pub shard: u16,
    /// Sequence of the message in its stream, from 1.
    pub sequence: u64,
    /// Index of the event in the message, from 0.
    pub index: u16,
}

impl Position {
    /// Position in generation 0, shard 0: all there is for now.
    #[must_use]
    pub const fn new(sequence: u64, index: u16) -> Self {
        Self { generation: 0, shard: 0, sequence, index }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}", self.generation, self.shard, self.sequence, self.index)
    }
}

/// A text that is no position.
#[derive(Debug, Clone, thiserror::Error)]
#[error("not a position (generation/shard/sequence/index): {text:?}")]
pub struct ParsePositionError {
    text: String,
}

impl FromStr for Position {
    type Err = ParsePositionError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let mut parts = s.split('/');
            let position = Self {
                generation: parts.next()?.parse().ok()?,
                shard: parts.next()?.parse().ok()?,
                sequence: parts.next()?.parse().ok()?,
                index: parts.next()?.parse().ok()?,
            };
            parts.next().is_none().then_some(position)
        };
        parse().ok_or_else(|| ParsePositionError { text: s.chars().take(64).collect() })
    }
}

impl Serialize for Position {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Position {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Position of a configuration event: its sequence in `WB_CONFIG`; 0 is before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ConfigPosition(pub u64);

impl fmt::Display for ConfigPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_read_back_and_order() {
        let p = Position::new(101, 2);
        assert_eq!(p.to_string(), "0/0/101/2");
        assert_eq!("0/0/101/2".parse::<Position>().unwrap(), p);
        assert!("0/0/101".parse::<Position>().is_err());
        assert!("0/0/101/2/3".parse::<Position>().is_err());
        assert!(Position::new(101, 2) < Position::new(102, 0));
    }
}
