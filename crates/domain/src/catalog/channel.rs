//! Commands on channels.

use waybill_event::ChannelId;
use waybill_event::config::{Channel, ChannelModel, ConfigChange, CredentialRef, Limits, ProbeSettings};

use super::command::Rejection;
use super::entity::{created, deleted, edited, find_at, free_name, switched};
use super::{Catalog, GroupRef, check};

/// What a new channel is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct New {
    /// Its name.
    pub name: String,
    /// The provider's kind.
    pub provider: String,
    /// Where it is.
    pub base_url: String,
    /// Its credential, already sealed.
    pub credential: Option<CredentialRef>,
    /// The models it offers.
    pub models: Vec<ChannelModel>,
    /// The groups it serves.
    pub groups: Vec<GroupRef>,
    /// Its tier.
    pub priority: i32,
    /// Its share within the tier.
    pub weight: u32,
    /// Its limits.
    pub limits: Limits,
    /// Factor on prices, in thousandths.
    pub multiplier_milli: u32,
    /// Whether addresses of private networks are allowed.
    pub allow_private: bool,
    /// How upkeep asks it of its own accord.
    pub probe: ProbeSettings,
    /// Whether it may serve.
    pub enabled: bool,
}

impl New {
    /// A channel with the defaults: serves no model and no group yet, priority 0, weight 1, no limits, enabled.
    #[must_use]
    pub fn at(name: impl Into<String>, base_url: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            provider: "openai".to_owned(),
            base_url: base_url.into(),
            credential: None,
            models: Vec::new(),
            groups: Vec::new(),
            priority: 0,
            weight: 1,
            limits: Limits::default(),
            multiplier_milli: 1_000,
            allow_private: false,
            probe: ProbeSettings::default(),
            enabled: true,
        }
    }
}

/// What an edit changes; `None` leaves a field as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Patch {
    /// Its name.
    pub name: Option<String>,
    /// The provider's kind.
    pub provider: Option<String>,
    /// Where it is.
    pub base_url: Option<String>,
    /// Its credential, already sealed; `Some(None)` takes it away.
    pub credential: Option<Option<CredentialRef>>,
    /// All models it offers.
    pub models: Option<Vec<ChannelModel>>,
    /// All groups it serves.
    pub groups: Option<Vec<GroupRef>>,
    /// Its tier.
    pub priority: Option<i32>,
    /// Its share within the tier.
    pub weight: Option<u32>,
    /// All its limits.
    pub limits: Option<Limits>,
    /// Factor on prices, in thousandths.
    pub multiplier_milli: Option<u32>,
    /// Whether addresses of private networks are allowed.
    pub allow_private: Option<bool>,
    /// All of how upkeep asks it of its own accord.
    pub probe: Option<ProbeSettings>,
}

/// A wish about a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Make one. Its id will be [`Catalog::next_channel_id`].
    Create(Box<New>),
    /// Change some of its fields.
    Edit {
        /// Which.
        id: ChannelId,
        /// The version the caller knows.
        expected: u64,
        /// What changes.
        patch: Box<Patch>,
    },
    /// Let it serve.
    Enable {
        /// Which.
        id: ChannelId,
        /// The version the caller knows; without one any will do.
        expected: Option<u64>,
    },
    /// Let it no longer serve.
    Disable {
        /// Which.
        id: ChannelId,
        /// The version the caller knows; without one any will do.
        expected: Option<u64>,
    },
    /// End it.
    Delete {
        /// Which.
        id: ChannelId,
        /// The version the caller knows; without one any will do.
        expected: Option<u64>,
    },
}

pub(super) fn decide(catalog: &Catalog, command: &Command) -> Result<Vec<ConfigChange>, Rejection> {
    match command {
        Command::Create(new) => created(catalog, build(catalog, new)?),
        Command::Edit { id, expected, patch } => {
            let old = find_at::<Channel>(catalog, *id, Some(*expected))?;
            let new = patched(catalog, old, patch)?;
            Ok(edited(old.as_ref(), new))
        }
        Command::Enable { id, expected } => switched::<Channel>(catalog, *id, *expected, true),
        Command::Disable { id, expected } => switched::<Channel>(catalog, *id, *expected, false),
        Command::Delete { id, expected } => deleted::<Channel>(catalog, *id, *expected),
    }
}

fn build(catalog: &Catalog, new: &New) -> Result<Channel, Rejection> {
    Ok(Channel {
        id: catalog.next_channel_id(),
        name: free_name::<Channel>(catalog, &new.name, None)?,
        provider: check::provider(&new.provider)?,
        base_url: check::base_url(&new.base_url)?,
        base_url_revision: 1,
        credential: new.credential.clone(),
        models: check::channel_models(&new.models)?,
        groups: check::groups(catalog, &new.groups)?,
        priority: check::priority(new.priority)?,
        weight: check::weight(new.weight)?,
        limits: check::limits("limits", new.limits)?,
        multiplier_milli: check::multiplier(new.multiplier_milli)?,
        allow_private: new.allow_private,
        probe: check::probe(&new.probe, &new.models)?,
        enabled: new.enabled,
        version: 1,
    })
}

fn patched(catalog: &Catalog, old: &Channel, patch: &Patch) -> Result<Channel, Rejection> {
    let mut new = old.clone();
    if let Some(name) = &patch.name {
        new.name = free_name::<Channel>(catalog, name, Some(old.id))?;
    }
    if let Some(provider) = &patch.provider {
        new.provider = check::provider(provider)?;
    }
    if let Some(base_url) = &patch.base_url {
        new.base_url = check::base_url(base_url)?;
        if new.base_url != old.base_url {
            new.base_url_revision = old.version + 1;
        }
    }
    if let Some(credential) = &patch.credential {
        new.credential.clone_from(credential);
    }
    if let Some(models) = &patch.models {
        new.models = check::channel_models(models)?;
    }
    if let Some(groups) = &patch.groups {
        new.groups = check::groups(catalog, groups)?;
    }
    if let Some(priority) = patch.priority {
        new.priority = check::priority(priority)?;
    }
    if let Some(weight) = patch.weight {
        new.weight = check::weight(weight)?;
    }
    if let Some(limits) = patch.limits {
        new.limits = check::limits("limits", limits)?;
    }
    if let Some(milli) = patch.multiplier_milli {
        new.multiplier_milli = check::multiplier(milli)?;
    }
    if let Some(allow_private) = patch.allow_private {
        new.allow_private = allow_private;
    }
    if let Some(probe) = &patch.probe {
        new.probe.clone_from(probe);
    }
    new.probe = check::probe(&new.probe, &new.models)?;
    Ok(new)
}
