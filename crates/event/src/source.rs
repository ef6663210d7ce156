//! Sources: the upstreams that can serve. A bare id never identifies one.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::id::{AccountId, ChannelId};

/// The kinds of sources, each with its own id space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceKind {
    /// An API key at a base URL.
    Channel,
    /// A subscription login.
    Account,
}

/// One upstream that can serve. Written as `channel:42`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Source {
    /// Its kind.
    pub kind: SourceKind,
    /// Its id within the kind.
    pub id: u64,
}

impl From<ChannelId> for Source {
    fn from(id: ChannelId) -> Self {
        Self { kind: SourceKind::Channel, id: id.get() }
    }
}

impl From<AccountId> for Source {
    fn from(id: AccountId) -> Self {
        Self { kind: SourceKind::Account, id: id.get() }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            SourceKind::Channel => "channel",
            SourceKind::Account => "account",
        };
        write!(f, "{kind}:{}", self.id)
    }
}

/// A text that names no source.
#[derive(Debug, Clone, thiserror::Error)]
#[error("not a source (channel:ID or account:ID): {text:?}")]
pub struct ParseSourceError {
    text: String,
}

impl FromStr for Source {
    type Err = ParseSourceError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (kind, id) = s.split_once([':', '.'])?;
            let kind = match kind {
                "channel" => SourceKind::Channel,
                "account" => SourceKind::Account,
                _ => return None,
            };
            Some(Self { kind, id: id.parse().ok()? })
        };
        parse().ok_or_else(|| ParseSourceError { text: s.chars().take(64).collect() })
    }
}

/// A source as an event names it: with the version of its entity that was in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SourceRef {
    /// The source.
    #[serde(flatten)]
    pub source: Source,
    /// Version of the entity (1 at creation, +1 an edit).
    pub rev: u64,
}

/// What a breaker or a block covers: a whole source, or one upstream model of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Scope {
    /// The source.
    pub source: Source,
    /// The upstream model; `None` covers the whole source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.model {
            None => write!(f, "source:{}", self.source),
            Some(model) => write!(f, "model:{}:{model}", self.source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_read_back() {
        let s = Source { kind: SourceKind::Channel, id: 42 };
        assert_eq!(s.to_string().parse::<Source>().unwrap(), s);
        assert!("channel".parse::<Source>().is_err());
        assert!("42".parse::<Source>().is_err());
        assert_eq!(
            serde_json::to_string(&SourceRef { source: s, rev: 9 }).unwrap(),
            r#"{"kind":"channel","id":42,"rev":9}"#
        );
    }
}
