//! A channel: an API key at a base URL.

use serde::{Deserialize, Serialize};

use super::{Capabilities, Entity};
use crate::{ChannelId, GroupId, Source, SourceRef};

/// One model that a channel offers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelModel {
    /// The model as groups and routes name it.
    pub name: String,
    /// What is sent to the upstream, where it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// What it can do here, as far as it is declared.
    #[serde(default, skip_serializing_if = "Capabilities::is_empty")]
    pub capabilities: Capabilities,
}

impl ChannelModel {
    /// A model that the upstream calls by the same name, and of which nothing is declared.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), upstream: None, capabilities: Capabilities::default() }
    }

    /// What is sent to the upstream.
    #[must_use]
    pub fn upstream_name(&self) -> &str {
        self.upstream.as_deref().unwrap_or(&self.name)
    }
}

/// What configuration may say of a credential; the sealed credential itself is in `WB_SECRET` only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialRef {
    /// Its sequence in `WB_SECRET`: names this very credential, rises with each new one.
    pub revision: u64,
    /// Tells equal credentials from different ones, without telling the credential.
    pub fingerprint: String,
}

/// Limits of a source, a client key or a user, over the whole fleet; `None` is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Requests in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrent: Option<u32>,
    /// Attempts per rolling minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<u32>,
}

impl Limits {
    /// Whether nothing is limited.
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }
}

/// By what a source is checked while it serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckBy {
    /// A chat of one token: whether it answers.
    #[default]
    Chat,
    /// The list of its models: whether it can be reached.
    Models,
}

/// How upkeep asks a source of its own accord.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProbeSettings {
    /// The model that probes and checks ask for, as the channel names it; without one a suitable one is taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How often it is checked while it serves, in seconds; without it never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check_every_s: Option<u32>,
    /// By what it is checked.
    #[serde(skip_serializing_if = "is_chat")]
    pub check_by: CheckBy,
    /// Whether checks are evidence like requests of clients.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub checks_count: bool,
}

impl ProbeSettings {
    /// Whether nothing is set.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde calls")]
fn is_chat(by: &CheckBy) -> bool {
    *by == CheckBy::Chat
}

/// A channel's whole state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Channel {
    /// Its id.
    pub id: ChannelId,
    /// Its name, unique among channels that aren't deleted.
    pub name: String,
    /// The provider's kind, an input of the classifier: `openai`, `azure`, `openrouter`, `generic` …
    pub provider: String,
    /// Where it is; works with or without a trailing slash or `/v1`.
    pub base_url: String,
    /// The entity's version at which the base URL last changed.
    pub base_url_revision: u64,
    /// Its credential; without one it is no candidate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<CredentialRef>,
    /// The models it offers.
    pub models: Vec<ChannelModel>,
    /// The groups it serves.
    pub groups: Vec<GroupId>,
    /// Its tier: higher is asked first.
    pub priority: i32,
    /// Its share within the tier; 0 is a last resort.
    pub weight: u32,
    /// Its limits.
    #[serde(default)]
    pub limits: Limits,
    /// Factor on prices, in thousandths (1000 = 1.0).
    pub multiplier_milli: u32,
    /// Whether addresses of private networks are allowed.
    pub allow_private: bool,
    /// How upkeep asks it of its own accord.
    #[serde(default, skip_serializing_if = "ProbeSettings::is_default")]
    pub probe: ProbeSettings,
    /// Whether an operator lets it serve.
    pub enabled: bool,
    /// How many edits it has seen, its creation included.
    pub version: u64,
}

impl Channel {
    /// The channel as a source.
    #[must_use]
    pub fn source(&self) -> Source {
        self.id.into()
    }

    /// The channel as events name it.
    #[must_use]
    pub fn source_ref(&self) -> SourceRef {
        SourceRef { source: self.source(), rev: self.version }
    }
}

impl Entity for Channel {
    const ENTITY: &'static str = "channel";
    const VERSION: u16 = 1;
    fn subject_id(&self) -> String {
        self.id.to_string()
    }
    fn version(&self) -> u64 {
        self.version
    }
}
