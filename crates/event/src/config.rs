//! Configuration as facts: each event holds the whole new state of one entity, what changed, and who did it why.

pub mod account;
pub mod capabilities;
pub mod channel;
pub mod group;
pub mod intervention;
pub mod key;
pub mod policy;
pub mod price;
pub mod route;
pub mod rules;

use serde::{Deserialize, Serialize};

pub use account::{Account, Platform, SessionWindow};
pub use capabilities::{Capabilities, Capability};
pub use channel::{Channel, ChannelModel, CheckBy, CredentialRef, Limits, ProbeSettings};
pub use group::Group;
pub use intervention::{HeldOpen, Intervention};
pub use key::{AdminToken, Key, StoredHash};
pub use policy::{
    BreakerOverrides, BreakerPolicy, FactorBands, FailOverKinds, MidStream, OnAllUnavailable, OnOutage, Policy,
    PolicyScope, RequestOverrides, RequestPolicy, RetryBudgetPolicy, RetryUnknown, SelectorOverrides, SelectorPolicy,
    Strategy,
};
pub use price::Price;
pub use route::{Route, Target};
pub use rules::{Preset, RuleLayer, Rules};

/// What an edit did to its entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It came to be.
    Created,
    /// Some of its fields changed.
    Edited,
    /// It was taken out of use.
    Disabled,
    /// It was put back into use.
    Enabled,
    /// It ended for good; the id is never used again.
    Deleted,
}

impl Change {
    /// All changes.
    pub const ALL: [Self; 5] = [Self::Created, Self::Edited, Self::Disabled, Self::Enabled, Self::Deleted];

    /// The past participle that ends the event's type, e.g. `created` in `channel_created`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Edited => "edited",
            Self::Disabled => "disabled",
            Self::Enabled => "enabled",
            Self::Deleted => "deleted",
        }
    }
}

/// An edit of one entity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed<T> {
    /// What was done; it is part of the event's type and stands in no other place.
    #[serde(skip, default = "edited")]
    pub change: Change,
    /// The whole new state; of a deleted entity the last one.
    pub state: T,
    /// Names of the fields that changed; empty at creation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
}

const fn edited() -> Change {
    Change::Edited
}

/// An entity that configuration events carry.
pub trait Entity {
    /// The word for it in subjects (`wb.config.<entity>.<id>`) and in event types (`<entity>_created`).
    const ENTITY: &'static str;
    /// Version of the state's form.
    const VERSION: u16;
    /// Its id as the subject's last word.
    fn subject_id(&self) -> String;
    /// How many edits it has seen, its creation included.
    fn version(&self) -> u64;
}

/// The edit of any entity.
#[expect(clippy::large_enum_variant, reason = "it is boxed where it is kept, and edits are rare")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigChange {
    /// Of a channel.
    Channel(Changed<Channel>),
    /// Of a group.
    Group(Changed<Group>),
    /// Of a client key.
    Key(Changed<Key>),
    /// Of an admin token.
    AdminToken(Changed<AdminToken>),
    /// Of a policy.
    Policy(Changed<Policy>),
    /// Of a route.
    Route(Changed<Route>),
    /// What an operator did by hand.
    Intervention(Changed<Intervention>),
    /// Of the rules of a scope.
    Rules(Changed<Rules>),
    /// Of an account.
    Account(Changed<Account>),
    /// Of a price.
    Price(Changed<Price>),
}

impl ConfigChange {
    /// The entity's word and id, as its subject has them.
    #[must_use]
    pub fn subject(&self) -> (&'static str, String) {
        match self {
            Self::Channel(c) => (Channel::ENTITY, c.state.subject_id()),
            Self::Group(c) => (Group::ENTITY, c.state.subject_id()),
            Self::Key(c) => (Key::ENTITY, c.state.subject_id()),
            Self::AdminToken(c) => (AdminToken::ENTITY, c.state.subject_id()),
            Self::Policy(c) => (Policy::ENTITY, c.state.subject_id()),
            Self::Route(c) => (Route::ENTITY, c.state.subject_id()),
            Self::Intervention(c) => (Intervention::ENTITY, c.state.subject_id()),
            Self::Rules(c) => (Rules::ENTITY, c.state.subject_id()),
            Self::Account(c) => (Account::ENTITY, c.state.subject_id()),
            Self::Price(c) => (Price::ENTITY, c.state.subject_id()),
        }
    }

    /// What was done.
    #[must_use]
    pub fn change(&self) -> Change {
        match self {
            Self::Channel(c) => c.change,
            Self::Group(c) => c.change,
            Self::Key(c) => c.change,
            Self::AdminToken(c) => c.change,
            Self::Policy(c) => c.change,
            Self::Route(c) => c.change,
            Self::Intervention(c) => c.change,
            Self::Rules(c) => c.change,
            Self::Account(c) => c.change,
            Self::Price(c) => c.change,
        }
    }

    /// The entity's version after the edit.
    #[must_use]
    pub fn version(&self) -> u64 {
        match self {
            Self::Channel(c) => c.state.version(),
            Self::Group(c) => c.state.version(),
            Self::Key(c) => c.state.version(),
            Self::AdminToken(c) => c.state.version(),
            Self::Policy(c) => c.state.version(),
            Self::Route(c) => c.state.version(),
            Self::Intervention(c) => c.state.version(),
            Self::Rules(c) => c.state.version(),
            Self::Account(c) => c.state.version(),
            Self::Price(c) => c.state.version(),
        }
    }

    /// Names of the fields that changed.
    #[must_use]
    pub fn changed(&self) -> &[String] {
        match self {
            Self::Channel(c) => &c.changed,
            Self::Group(c) => &c.changed,
            Self::Key(c) => &c.changed,
            Self::AdminToken(c) => &c.changed,
            Self::Policy(c) => &c.changed,
            Self::Route(c) => &c.changed,
            Self::Intervention(c) => &c.changed,
            Self::Rules(c) => &c.changed,
            Self::Account(c) => &c.changed,
            Self::Price(c) => &c.changed,
        }
    }
}
