//! An account: the login of a subscription, whose capacity is scarce and personal.

use serde::{Deserialize, Serialize};

use super::{ChannelModel, CredentialRef, Entity, Limits, ProbeSettings};
use crate::{AccountId, GroupId, NanoUsd, Source, SourceRef};

/// The service that an account is a login of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Platform {
    /// A Claude subscription.
    Claude,
    /// A ChatGPT subscription, as Codex uses it.
    Codex,
    /// A Gemini subscription.
    Gemini,
    /// Any other service.
    #[default]
    Generic,
}

impl Platform {
    /// All platforms.
    pub const ALL: [Self; 4] = [Self::Claude, Self::Codex, Self::Gemini, Self::Generic];

    /// The word as it is written in events and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Generic => "generic",
        }
    }

    /// The provider's kind, an input of the classifier and a scope of policies and rules.
    #[must_use]
    pub const fn provider(self) -> &'static str {
        match self {
            Self::Claude => "anthropic",
            Self::Codex => "openai",
            Self::Gemini => "gemini",
            Self::Generic => "generic",
        }
    }
}

/// What one session may spend on an account within a rolling time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionWindow {
    /// At most so much, in nano-dollars.
    pub limit: NanoUsd,
    /// Within this many seconds.
    pub seconds: u32,
}

/// An account's whole state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Its id: of its own space, so that `account:7` and `channel:7` have nothing in common.
    pub id: AccountId,
    /// Its name, unique among accounts that aren't deleted.
    pub name: String,
    /// The service it is a login of.
    pub platform: Platform,
    /// Where that is; works with or without a trailing slash or `/v1`.
    pub base_url: String,
    /// The entity's version at which the base URL last changed.
    pub base_url_revision: u64,
    /// The credential that an operator gave it; the one in use may be newer, since it is refreshed. Without one it is no
    /// candidate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<CredentialRef>,
    /// The models it offers.
    pub models: Vec<ChannelModel>,
    /// The groups it serves: its pools.
    pub groups: Vec<GroupId>,
    /// Its tier: higher is asked first.
    pub priority: i32,
    /// Its share within the tier; 0 is a last resort.
    pub weight: u32,
    /// Its limits.
    #[serde(default)]
    pub limits: Limits,
    /// What one session may spend on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_window: Option<SessionWindow>,
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

impl Account {
    /// The account as a source.
    #[must_use]
    pub fn source(&self) -> Source {
        self.id.into()
    }

    /// The account as events name it.
    #[must_use]
    pub fn source_ref(&self) -> SourceRef {
        SourceRef { source: self.source(), rev: self.version }
    }
}

impl Entity for Account {
    const ENTITY: &'static str = "account";
    const VERSION: u16 = 1;
    fn subject_id(&self) -> String {
        self.id.to_string()
    }
    fn version(&self) -> u64 {
        self.version
    }
}
