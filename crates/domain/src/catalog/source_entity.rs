//! What is behind a source: a channel or an account. Everything that requests, probes and views need of either.

use std::sync::Arc;

use waybill_event::config::{Account, Channel, ChannelModel, CredentialRef, Limits, ProbeSettings, SessionWindow};
use waybill_event::{GroupId, Source, SourceKind, SourceRef};

use crate::selector::Revisions;

/// The entity of a source. A clone is one reference count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceEntity {
    /// An API key at a base URL.
    Channel(Arc<Channel>),
    /// A subscription's login.
    Account(Arc<Account>),
}

/// A field that both kinds have.
macro_rules! of_both {
    ($entity:expr, $field:ident) => {
        match $entity {
            SourceEntity::Channel(channel) => &channel.$field,
            SourceEntity::Account(account) => &account.$field,
        }
    };
}

impl SourceEntity {
    /// The source.
    #[must_use]
    pub fn source(&self) -> Source {
        match self {
            Self::Channel(channel) => channel.source(),
            Self::Account(account) => account.source(),
        }
    }

    /// Its id within its kind.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.source().id
    }

    /// The word for its kind, as subjects have it.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self.source().kind {
            SourceKind::Channel => "channel",
            SourceKind::Account => "account",
        }
    }

    /// The source as events name it.
    #[must_use]
    pub fn source_ref(&self) -> SourceRef {
        SourceRef { source: self.source(), rev: self.version() }
    }

    /// Its name, unique among those of its kind.
    #[must_use]
    pub fn name(&self) -> &str {
        of_both!(self, name)
    }

    /// The provider's kind, an input of the classifier.
    #[must_use]
    pub fn provider(&self) -> &str {
        match self {
            Self::Channel(channel) => &channel.provider,
            Self::Account(account) => account.platform.provider(),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn base_url(&self) -> &str {
        of_both!(self, base_url)
    }

    /// The credential that an operator gave it.
    #[must_use]
    pub fn credential(&self) -> Option<&CredentialRef> {
        of_both!(self, credential).as_ref()
    }

    /// Revisions of that credential and of the base URL.
    #[must_use]
    pub fn revisions(&self) -> Revisions {
        Revisions {
            credential: self.credential().map_or(0, |credential| credential.revision),
            base_url: *of_both!(self, base_url_revision),
        }
    }

    /// The models it offers.
    #[must_use]
    pub fn models(&self) -> &[ChannelModel] {
        of_both!(self, models)
    }

    /// The groups it serves.
    #[must_use]
    pub fn groups(&self) -> &[GroupId] {
        of_both!(self, groups)
    }

    /// Its tier.
    #[must_use]
    pub fn priority(&self) -> i32 {
        *of_both!(self, priority)
    }

    /// Its share within the tier.
    #[must_use]
    pub fn weight(&self) -> u32 {
        *of_both!(self, weight)
    }

    /// Its limits.
    #[must_use]
    pub fn limits(&self) -> Limits {
        *of_both!(self, limits)
    }

    /// What one session may spend on it, where that is limited.
    #[must_use]
    pub fn session_window(&self) -> Option<SessionWindow> {
        match self {
            Self::Channel(_) => None,
            Self::Account(account) => account.session_window,
        }
    }

    /// Factor on prices, in thousandths.
    #[must_use]
    pub fn multiplier_milli(&self) -> u32 {
        match self {
            Self::Channel(channel) => channel.multiplier_milli,
            Self::Account(_) => 1_000,
        }
    }

    /// Whether addresses of private networks are allowed.
    #[must_use]
    pub fn allow_private(&self) -> bool {
        *of_both!(self, allow_private)
    }

    /// How upkeep asks it of its own accord.
    #[must_use]
    pub fn probe(&self) -> &ProbeSettings {
        of_both!(self, probe)
    }

    /// Whether an operator lets it serve.
    #[must_use]
    pub fn enabled(&self) -> bool {
        *of_both!(self, enabled)
    }

    /// How many edits it has seen.
    #[must_use]
    pub fn version(&self) -> u64 {
        *of_both!(self, version)
    }
}

impl From<Arc<Channel>> for SourceEntity {
    fn from(channel: Arc<Channel>) -> Self {
        Self::Channel(channel)
    }
}

impl From<Arc<Account>> for SourceEntity {
    fn from(account: Arc<Account>) -> Self {
        Self::Account(account)
    }
}
