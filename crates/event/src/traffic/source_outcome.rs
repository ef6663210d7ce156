//! `source_outcome`: what one request says about one model at one source after all its tries there: exactly one per
//! (request, source, upstream model). It is the only evidence that breakers, windows and blocks are made of. The envelope names the source.

use serde::{Deserialize, Serialize};

use crate::body::Payload;
use crate::failure::{BlockVerdict, FailureKind, Health};
use crate::money::Usage;

/// What one request says about one source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceOutcome {
    /// What was sent as model.
    pub upstream_model: String,
    /// The kind of the last attempt there.
    pub kind: FailureKind,
    /// Evidence on the source.
    pub source_health: Health,
    /// Evidence on the model at the source.
    pub model_health: Health,
    /// Response time without backoff, in milliseconds: to the first content for streams, else of the whole answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<u32>,
    /// What the verdict takes out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<BlockVerdict>,
    /// Tries at this source.
    pub attempts: u32,
    /// Revision of the credential used.
    pub credential_revision: u64,
    /// Revision of the base URL used.
    pub base_url_revision: u64,
    /// Whether the request held the probe permit; its `probe_finished` has decided then, and this doesn't count again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub probe: bool,
    /// Tokens as reported, where the source served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

impl Payload for SourceOutcome {
    const TYPE: &'static str = "source_outcome";
    const VERSION: u16 = 1;
}
