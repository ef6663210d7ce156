//! The catalogue: the fold of configuration, and the commands that may change it.
//!
//! Every configuration event holds its entity's whole state, so the fold gives the same from the whole history and from
//! the newest event of each subject.

pub mod abilities;
pub mod account;
pub mod admin_token;
pub mod channel;
pub mod command;
pub mod diff;
pub mod group;
pub mod intervention;
pub mod key;
pub mod manifest;
pub mod policy;
pub mod price;
pub mod route;
pub mod rules;
pub mod snapshot;
pub mod source_entity;

mod check;
mod entity;

use std::collections::BTreeMap;
use std::sync::Arc;

use waybill_event::config::{
    Account, AdminToken, Change, Changed, Channel, ConfigChange, Entity, Group, Intervention, Key, Policy, PolicyScope,
    Price, RequestPolicy, Route, Rules, SelectorPolicy, StoredHash,
};
use waybill_event::{
    AccountId, AdminTokenId, Body, ChannelId, ConfigPosition, Event, GroupId, KeyId, RouteId, Scope, Source, SourceKind,
};

use crate::selector::ByHand;
use crate::verdict::Rulebook;

pub use abilities::{Ability, AbilityRow, Index, ModelAbilities, Tier};
pub use command::{Command, Rejection, decide};
pub use group::GroupRef;
pub use route::{Resolved, ResolvedTarget};
pub use snapshot::{Authorised, Denied, Snapshot};
pub use source_entity::SourceEntity;

/// Entities of one kind by id. Shared, so that a clone of the catalogue copies nothing until it is changed.
pub type Kept<K, T> = Arc<BTreeMap<K, Arc<T>>>;

/// The highest id there ever was of each kind, so that none is used twice; 0 when there was none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Highest {
    /// Of channels.
    pub channel: u64,
    /// Of accounts.
    pub account: u64,
    /// Of groups.
    pub group: u64,
    /// Of client keys.
    pub key: u64,
    /// Of admin tokens.
    pub admin_token: u64,
    /// Of routes.
    pub route: u64,
}

/// An edit that can't be read here. The fold stops before it and goes on only in a newer program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the edit at {position} ({kind} v{version}) is not known to this program")]
pub struct UnknownEdit {
    /// Where it stands.
    pub position: ConfigPosition,
    /// Its event type.
    pub kind: String,
    /// The version it needs.
    pub version: u16,
}

/// All configuration that is in force at a position of `WB_CONFIG`. Deleted entities are absent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Catalog {
    /// Position of the last edit folded.
    pub position: ConfigPosition,
    /// Channels.
    pub channels: Kept<ChannelId, Channel>,
    /// Accounts.
    pub accounts: Kept<AccountId, Account>,
    /// Prices by model.
    pub prices: Kept<String, Price>,
    /// Groups.
    pub groups: Kept<GroupId, Group>,
    /// Client keys.
    pub keys: Kept<KeyId, Key>,
    /// Admin tokens.
    pub admin_tokens: Kept<AdminTokenId, AdminToken>,
    /// Policies.
    pub policies: Kept<PolicyScope, Policy>,
    /// Routes.
    pub routes: Kept<RouteId, Route>,
    /// What operators did by hand.
    pub interventions: Kept<Scope, Intervention>,
    /// Rules of verdicts.
    pub rules: Kept<PolicyScope, Rules>,
    /// Ids that are used up.
    pub highest: Highest,
    /// The edit at which progress stopped, if it did.
    pub blocked_by: Option<UnknownEdit>,
}

/// What an edit replaced by what. `None` before is a creation, `None` after a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replaced<T> {
    /// The state before.
    pub old: Option<Arc<T>>,
    /// The state after.
    pub new: Option<Arc<T>>,
}

/// What an edit replaced by what, of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplacedSource {
    /// The entity before.
    pub old: Option<SourceEntity>,
    /// The entity after.
    pub new: Option<SourceEntity>,
}

impl<T> From<Replaced<T>> for ReplacedSource
where
    SourceEntity: From<Arc<T>>,
{
    fn from(Replaced { old, new }: Replaced<T>) -> Self {
        Self { old: old.map(Into::into), new: new.map(Into::into) }
    }
}

/// What folding an event did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    /// The position was folded before: nothing.
    Known,
    /// Progress stopped at an edit that can't be read here (this one or an earlier one): nothing.
    Blocked,
    /// A source changed: a channel or an account.
    Source(ReplacedSource),
    /// A price changed.
    Price(Replaced<Price>),
    /// A group changed.
    Group(Replaced<Group>),
    /// A client key changed.
    Key(Replaced<Key>),
    /// An admin token changed.
    AdminToken(Replaced<AdminToken>),
    /// A policy changed.
    Policy(Replaced<Policy>),
    /// A route changed.
    Route(Replaced<Route>),
    /// An operator did something by hand.
    Intervention(Replaced<Intervention>),
    /// The rules of a scope changed.
    Rules(Replaced<Rules>),
}

/// Folds one event of `WB_CONFIG`. Total: positions already folded do nothing, what can't be read stops progress.
pub fn apply(catalog: &mut Catalog, event: &Event, at: ConfigPosition) -> Applied {
    match &event.draft.body {
        Body::Config(change) if unusable(change) => {
            catalog.block(UnknownEdit {
                position: at,
                kind: event.draft.body.kind(),
                version: event.draft.body.version(),
            });
            Applied::Blocked
        }
        Body::Config(change) => catalog.adopt(change, at),
        body => {
            catalog.block(UnknownEdit { position: at, kind: body.kind(), version: body.version() });
            Applied::Blocked
        }
    }
}

/// Whether an edit can be read but not used: rules of a newer program.
fn unusable(change: &ConfigChange) -> bool {
    matches!(change, ConfigChange::Rules(changed) if Rulebook::of([&changed.state]).is_err())
}

fn replace<K: Ord + Clone, T: Clone>(map: &mut Kept<K, T>, id: K, changed: &Changed<T>) -> Replaced<T> {
    let map = Arc::make_mut(map);
    if changed.change == Change::Deleted {
        return Replaced { old: map.remove(&id), new: None };
    }
    let new = Arc::new(changed.state.clone());
    Replaced { old: map.insert(id, Arc::clone(&new)), new: Some(new) }
}

impl Catalog {
    /// Folds a decided change as if it stood at `at`.
    pub fn adopt(&mut self, change: &ConfigChange, at: ConfigPosition) -> Applied {
        if self.blocked_by.is_some() {
            return Applied::Blocked;
        }
        if at <= self.position {
            return Applied::Known;
        }
        self.position = at;
        match change {
            ConfigChange::Channel(c) => {
                self.highest.channel = self.highest.channel.max(c.state.id.get());
                Applied::Source(replace(&mut self.channels, c.state.id, c).into())
            }
            ConfigChange::Account(c) => {
                self.highest.account = self.highest.account.max(c.state.id.get());
                Applied::Source(replace(&mut self.accounts, c.state.id, c).into())
            }
            ConfigChange::Price(c) => Applied::Price(replace(&mut self.prices, c.state.model.clone(), c)),
            ConfigChange::Group(c) => {
                self.highest.group = self.highest.group.max(c.state.id.get());
                Applied::Group(replace(&mut self.groups, c.state.id, c))
            }
            ConfigChange::Key(c) => {
                self.highest.key = self.highest.key.max(c.state.id.get());
                Applied::Key(replace(&mut self.keys, c.state.id, c))
            }
            ConfigChange::AdminToken(c) => {
                self.highest.admin_token = self.highest.admin_token.max(c.state.id.get());
                Applied::AdminToken(replace(&mut self.admin_tokens, c.state.id, c))
            }
            ConfigChange::Policy(c) => Applied::Policy(replace(&mut self.policies, c.state.scope.clone(), c)),
            ConfigChange::Route(c) => {
                self.highest.route = self.highest.route.max(c.state.id.get());
                Applied::Route(replace(&mut self.routes, c.state.id, c))
            }
            ConfigChange::Intervention(c) => {
                Applied::Intervention(replace(&mut self.interventions, c.state.scope.clone(), c))
            }
            ConfigChange::Rules(c) => Applied::Rules(replace(&mut self.rules, c.state.scope.clone(), c)),
        }
    }

    /// Stops progress at an edit that can't be read; the first one counts. For messages that aren't even an event the
    /// reader calls this itself.
    pub fn block(&mut self, edit: UnknownEdit) {
        if edit.position > self.position {
            self.blocked_by.get_or_insert(edit);
        }
    }

    /// The numbers of the selector fold in force for a source: the built-in ones, overridden by the global policy, its
    /// provider's and its own.
    #[must_use]
    pub fn selector_policy(&self, source: Source) -> SelectorPolicy {
        let provider = self.entity(source).map(|entity| entity.provider().to_owned());
        let provider = provider.map(|provider| PolicyScope::Provider { provider });
        let scopes = [Some(PolicyScope::Global), provider, Some(PolicyScope::Source { source })];
        let set = scopes.into_iter().flatten().filter_map(|scope| self.policies.get(&scope));
        set.fold(SelectorPolicy::default(), |numbers, policy| numbers.with(&policy.selector))
    }

    /// The numbers in force for a request: the built-in ones, overridden by the global policy, the group's, the route's
    /// and the key's.
    #[must_use]
    pub fn request_policy(&self, group: GroupId, route: Option<RouteId>, key: Option<KeyId>) -> RequestPolicy {
        if self.policies.is_empty() {
            return RequestPolicy::default();
        }
        let scopes = [
            Some(PolicyScope::Global),
            Some(PolicyScope::Group { group }),
            route.map(|route| PolicyScope::Route { route }),
            key.map(|key| PolicyScope::Key { key }),
        ];
        let set = scopes.into_iter().flatten().filter_map(|scope| self.policies.get(&scope));
        set.fold(RequestPolicy::default(), |numbers, policy| numbers.with(&policy.request))
    }

    /// What operators have done by hand to a source and to one of its models.
    #[must_use]
    pub fn by_hand(&self, source: Source, upstream_model: &str) -> [ByHand; 2] {
        if self.interventions.is_empty() {
            return <[ByHand; 2]>::default();
        }
        [None, Some(upstream_model.to_owned())].map(|model| {
            self.interventions.get(&Scope { source, model }).map(|done| ByHand::from(done.as_ref())).unwrap_or_default()
        })
    }

    /// The rules of verdicts in force. What can't be used never gets in here.
    #[must_use]
    pub fn rulebook(&self) -> Rulebook {
        Rulebook::of(self.rules.values().map(AsRef::as_ref)).unwrap_or_default()
    }

    /// The entity of a source, if it lives.
    #[must_use]
    pub fn entity(&self, source: Source) -> Option<SourceEntity> {
        match source.kind {
            SourceKind::Channel => self.channels.get(&ChannelId::new(source.id)).cloned().map(Into::into),
            SourceKind::Account => self.accounts.get(&AccountId::new(source.id)).cloned().map(Into::into),
        }
    }

    /// The entities of all sources: channels first.
    pub fn entities(&self) -> impl Iterator<Item = SourceEntity> + '_ {
        let channels = self.channels.values().cloned().map(SourceEntity::from);
        channels.chain(self.accounts.values().cloned().map(SourceEntity::from))
    }

    /// The source that a text names: `channel:ID`, `account:ID`, or the name of either kind, after its word or bare. A bare
    /// name that both kinds have names the channel.
    #[must_use]
    pub fn source_named(&self, text: &str) -> Option<Source> {
        let channel = |name: &str| self.channel_named(name).map(|channel| channel.source());
        let account = |name: &str| self.account_named(name).map(|account| account.source());
        if let Ok(source) = text.parse::<Source>() {
            return self.entity(source).map(|entity| entity.source());
        }
        let bare = || channel(text).or_else(|| account(text));
        match text.split_once(':') {
            Some(("channel", name)) => channel(name).or_else(bare),
            Some(("account", name)) => account(name).or_else(bare),
            _ => bare(),
        }
    }

    /// The living group of this name.
    #[must_use]
    pub fn group_named(&self, name: &str) -> Option<&Arc<Group>> {
        self.groups.values().find(|group| group.name == name)
    }

    /// The living channel of this name.
    #[must_use]
    pub fn channel_named(&self, name: &str) -> Option<&Arc<Channel>> {
        self.channels.values().find(|channel| channel.name == name)
    }

    /// The living account of this name.
    #[must_use]
    pub fn account_named(&self, name: &str) -> Option<&Arc<Account>> {
        self.accounts.values().find(|account| account.name == name)
    }

    /// The living client key of this name.
    #[must_use]
    pub fn key_named(&self, name: &str) -> Option<&Arc<Key>> {
        self.keys.values().find(|key| key.name == name)
    }

    /// The living route of this name.
    #[must_use]
    pub fn route_named(&self, name: &str) -> Option<&Arc<Route>> {
        self.routes.values().find(|route| route.name == name)
    }

    /// The living admin token with this hash.
    #[must_use]
    pub fn admin_token_by_hash(&self, hash: &StoredHash) -> Option<&Arc<AdminToken>> {
        self.admin_tokens.values().find(|token| &token.hash == hash)
    }

    /// The id that the next new channel gets.
    #[must_use]
    pub fn next_channel_id(&self) -> ChannelId {
        ChannelId::new(self.highest.channel + 1)
    }

    /// The id that the next new account gets.
    #[must_use]
    pub fn next_account_id(&self) -> AccountId {
        AccountId::new(self.highest.account + 1)
    }
}

/// The subject of an edit in `WB_CONFIG`.
#[must_use]
pub fn subject(change: &ConfigChange) -> String {
    let (entity, id) = change.subject();
    format!("wb.config.{entity}.{id}")
}

/// The words for the kinds of entities, as subjects and answers have them.
pub const ENTITIES: [&str; 10] = [
    Channel::ENTITY,
    Account::ENTITY,
    Group::ENTITY,
    Key::ENTITY,
    AdminToken::ENTITY,
    Policy::ENTITY,
    Route::ENTITY,
    Intervention::ENTITY,
    Rules::ENTITY,
    Price::ENTITY,
];

#[cfg(test)]
mod tests;
