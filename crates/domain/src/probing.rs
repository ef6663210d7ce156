//! The shared schedule of probes and checks, as it is kept beside the log: one prober per source over the whole fleet, and
//! what the last one showed.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use waybill_event::{FailureKind, LogTime, ProducerId, Source, SourceKind};

/// Why a source is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A verdict disabled it.
    Disabled,
    /// It serves, and is checked this often.
    Check {
        /// How often.
        every: Duration,
    },
}

/// What is kept under a permit's key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Who wrote it.
    pub holder: ProducerId,
    /// Tells this write from every other of the holder's.
    pub token: u64,
    /// Id of the disabling that was probed last.
    pub disabling: Arc<str>,
    /// Version of the source's entity.
    pub version: u64,
    /// Probes so far, the one under way included.
    pub tries: u32,
    /// Until when nobody else probes.
    pub until: LogTime,
    /// The operator's wish that it was written after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<LogTime>,
    /// Whether a probe is under way.
    #[serde(default)]
    pub under_way: bool,
    /// What the last one showed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<FailureKind>,
}

/// The key of a source's permit.
#[must_use]
pub fn key(source: Source, purpose: Purpose) -> String {
    let purpose = match purpose {
        Purpose::Disabled => "disabled",
        Purpose::Check { .. } => "check",
    };
    let kind = match source.kind {
        SourceKind::Channel => "channel",
        SourceKind::Account => "account",
    };
    format!("probe.{kind}.{}.{purpose}", source.id)
}

/// The source whose probes of a verdict's disabling a key holds; `None` for every other key.
#[must_use]
pub fn disabled_source(key: &str) -> Option<Source> {
    let (source, purpose) = key.strip_prefix("probe.")?.rsplit_once('.')?;
    source.parse().ok().filter(|_| purpose == "disabled")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_name_their_source() {
        let source = Source { kind: SourceKind::Channel, id: 7 };
        assert_eq!(disabled_source(&key(source, Purpose::Disabled)), Some(source));
        assert_eq!(disabled_source(&key(source, Purpose::Check { every: Duration::from_secs(1) })), None);
        assert_eq!(disabled_source("probe.source:channel:7@x"), None);
    }
}
