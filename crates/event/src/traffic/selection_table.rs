//! `selection_table`: what plans of one (group, model) are made from, written at the table's first use, so that every
//! plan can be checked afterwards.

use serde::{Deserialize, Serialize};

use crate::body::Payload;
use crate::selection::{SkipReason, TableHash};
use crate::{GroupId, LogTime, Position, Source};

/// The factors of the effective weight, each 1 to 100. `load` is a recorded input; the others can be re-derived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Factors {
    /// From the share of failed and busy outcomes.
    pub health: u8,
    /// From the 95th percentile of response times.
    pub latency: u8,
    /// From requests in flight over the source's limit.
    pub load: u8,
    /// From the time since the breaker closed.
    pub recovery: u8,
}

/// One candidate of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableCandidate {
    /// The source.
    pub source: Source,
    /// Its priority: its tier.
    pub priority: i32,
    /// Its configured weight.
    pub weight: u32,
    /// Its factors.
    pub factors: Factors,
    /// Why it was out, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip: Option<SkipReason>,
    /// Position up to which the shared state it was judged by is folded; absent when there was none yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<Position>,
    /// First and last ordinal of this replica's own events applied on top.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<(u64, u64)>,
}

/// What plans of one (group, model) are made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelectionTable {
    /// Names the content; requests refer to it.
    pub hash: TableHash,
    /// The group.
    pub group: GroupId,
    /// The model.
    pub model: String,
    /// The time expiry and half-open were judged at.
    pub as_of: LogTime,
    /// The candidates, highest priority first, then by source.
    pub candidates: Vec<TableCandidate>,
}

impl Payload for SelectionTable {
    const TYPE: &'static str = "selection_table";
    const VERSION: u16 = 1;
}
