//! How strictly the events of requests are recorded: the operator's choice between speed and certainty.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// When an event counts as recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// When it is in the outbox: nothing is lost by the death of the process, at most what the log hadn't acknowledged
    /// by the loss of the machine.
    #[default]
    Pipelined,
    /// When the log has acknowledged it: no request is dispatched before its admission is, and no answer is completed
    /// before its end is.
    Acked,
}

/// What becomes of a request whose events don't fit into the outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutboxFull {
    /// It is refused.
    #[default]
    Refuse,
    /// It is served, leaves no event, and is counted.
    Count,
}

/// How requests of a replica are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recording {
    /// When an event counts as recorded.
    pub durability: Durability,
    /// What becomes of a request whose events don't fit.
    pub outbox_full: OutboxFull,
    /// How long the log's acknowledgement is waited for.
    pub acknowledged_within: Duration,
}

impl Default for Recording {
    fn default() -> Self {
        Self {
            durability: Durability::default(),
            outbox_full: OutboxFull::default(),
            acknowledged_within: Duration::from_secs(2),
        }
    }
}

impl Recording {
    /// Whether the two choices fit together. Where only what the log has acknowledged counts, nothing may go unrecorded.
    #[must_use]
    pub const fn is_consistent(&self) -> bool {
        !matches!((self.durability, self.outbox_full), (Durability::Acked, OutboxFull::Count))
    }
}
