//! `attempt_started`: one dispatch to one source begins; written before the dispatch. The envelope names the source.

use serde::{Deserialize, Serialize};

use crate::body::Payload;
use crate::selection::{Chosen, Skip, TableHash};

/// One dispatch begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptStarted {
    /// Number of the attempt within the request, from 1.
    pub attempt: u32,
    /// The resolved model.
    pub model: String,
    /// What is sent as model.
    pub upstream_model: String,
    /// Why this source.
    pub why: Chosen,
    /// The source's priority: its tier.
    pub priority: i32,
    /// Its place in the plan, from 0.
    pub place: u32,
    /// The route's target that it serves, from 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub target: u32,
    /// The selection table it was drawn from, where that isn't the one of the admission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<TableHash>,
    /// Candidates passed over since the attempt before, because of what happened after planning.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skips: Vec<Skip>,
    /// Revision of the credential used.
    pub credential_revision: u64,
    /// Time this attempt may take, in milliseconds.
    pub timeout_ms: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
const fn is_zero(target: &u32) -> bool {
    *target == 0
}

impl Payload for AttemptStarted {
    const TYPE: &'static str = "attempt_started";
    const VERSION: u16 = 1;
}
