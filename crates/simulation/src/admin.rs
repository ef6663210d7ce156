//! Edits: commands decided by the product's catalogue and appended as the admin role does, and sealed credentials before
//! the edits that name them.

mod by_hand;
mod requests;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use secrecy::SecretString;
use waybill_domain::catalog::{self, Applied, Catalog, Command, GroupRef, channel, decide, group, key, policy};
use waybill_event::config::{
    Capabilities, Channel, ChannelModel, CredentialRef, Limits, PolicyScope, RequestOverrides, SelectorPolicy,
};
use waybill_event::{Actor, ChannelId, ConfigPosition, Draft, Event, GroupId, Identity, KeyId};
use waybill_journal::{Expect, Journal, Record, Stream};
use waybill_secret::Vault;

use crate::chance::Chance;
use crate::ground::Ground;
use crate::secrets;
use crate::setting;
use crate::tap::Tap;
use crate::upstream::Upstreams;

/// The models that clients ask for, and what upstreams call them.
pub const MODELS: [(&str, &str); 2] = [("small", "small"), ("large", "large-2026")];
/// Names that stand for routes, while there are some.
pub const ROUTES: [&str; 2] = ["smart", "any"];

/// The one administrator.
pub struct Admin {
    ground: Arc<Ground>,
    upstreams: Arc<Upstreams>,
    journal: Journal,
    catalog: Catalog,
    vault: Arc<Vault>,
    chance: Chance,
    edits: u64,
    credentials: u64,
    /// Whether the clients' key may be used.
    key_enabled: bool,
}

impl Admin {
    /// An administrator who has made no edit.
    #[must_use]
    pub fn new(ground: &Arc<Ground>, upstreams: &Arc<Upstreams>) -> Self {
        Self {
            ground: Arc::clone(ground),
            upstreams: Arc::clone(upstreams),
            journal: Tap::journal(ground, "admin-1"),
            catalog: Catalog::default(),
            vault: secrets::vault(),
            chance: Chance::of(ground.seed, "admin"),
            edits: 0,
            credentials: 0,
            key_enabled: true,
        }
    }

    /// What every run begins with: a group, a key, a policy and some channels.
    pub fn found(&mut self) {
        self.edit(&Command::Group(group::Command::Create { name: "default".to_owned(), enabled: true }));
        let new = key::New {
            name: "clients".to_owned(),
            group: GroupRef::Id(GroupId::new(1)),
            prefix: "wb-key".to_owned(),
            hash: secrets::hash(1),
            models: Vec::new(),
            expires_at: None,
            limits: Default::default(),
            user_limits: Default::default(),
            enabled: true,
        };
        self.edit(&Command::Key(key::Command::Issue(Box::new(new))));
        self.set_policy(PolicyScope::Global, self.ground.setting.policy);
        if self.ground.setting.routes {
            self.found_routes();
        }
        for _ in 0..self.ground.setting.channels {
            self.new_channel();
        }
    }

    /// The channels there are.
    #[must_use]
    pub fn channels(&self) -> Vec<u64> {
        self.catalog.channels.keys().map(|id| id.get()).collect()
    }

    /// The newest credential of a channel, in its words.
    fn credential_of(channel: &Channel) -> String {
        channel.credential.as_ref().map_or_else(String::new, |credential| credential.fingerprint.clone())
    }

    /// A channel's credential is taken no longer, or again.
    pub fn revoke(&self, channel: u64, revoked: bool) {
        if let Some(channel) = self.catalog.channels.get(&ChannelId::new(channel)) {
            self.ground.trace.note(format_args!("credential of {} revoked: {revoked}", channel.id));
            self.upstreams.revoke(&Self::credential_of(channel), revoked);
        }
    }

    /// Some edit.
    pub fn edit_something(&mut self) {
        if !self.key_enabled {
            return self.enable_all();
        }
        let channels = self.channels();
        if channels.len() < 2 {
            return self.new_channel();
        }
        let id = ChannelId::new(self.chance.one_of(&channels));
        let Some(old) = self.catalog.channels.get(&id).cloned() else { return };
        let patch = |patch: channel::Patch| {
            Command::Channel(channel::Command::Edit { id, expected: old.version, patch: Box::new(patch) })
        };
        if self.ground.setting.routes && self.chance.yes(0.5) {
            match self.chance.below(3) {
                0 => self.edit_route(),
                1 => self.set_numbers(),
                _ => self.act_by_hand(id),
            }
            return;
        }
        let command = match self.chance.below(20) {
            0..6 => {
                let credential = Some(Some(self.seal(id)));
                patch(channel::Patch { credential, ..channel::Patch::default() })
            }
            6..8 => Command::Channel(channel::Command::Disable { id, expected: None }),
            8..11 => return self.enable_all(),
            11..13 => {
                let weight = Some(u32::try_from(self.chance.below(8)).unwrap_or(1));
                let priority = Some(i32::try_from(self.chance.below(3)).unwrap_or(0));
                patch(channel::Patch { weight, priority, ..channel::Patch::default() })
            }
            13 => {
                let base_url = Some(format!("https://c{id}-{}.upstream.test/v1", self.edits));
                patch(channel::Patch { base_url, ..channel::Patch::default() })
            }
            14..17 => {
                let scope = match self.chance.below(4) {
                    0..2 => PolicyScope::Global,
                    2 => PolicyScope::Source { source: old.source() },
                    _ => PolicyScope::Provider { provider: old.provider.clone() },
                };
                let numbers = setting::policy(&mut self.chance, self.ground.setting.half_open_probes);
                return self.set_policy(scope, numbers);
            }
            17 => Command::Channel(channel::Command::Delete { id, expected: None }),
            18 => return self.new_channel(),
            _ => {
                self.key_enabled = false;
                Command::Key(key::Command::Disable { id: KeyId::new(1), expected: None })
            }
        };
        self.edit(&command);
    }

    /// Everything may serve again.
    pub fn enable_all(&mut self) {
        for id in self.channels().into_iter().map(ChannelId::new) {
            self.edit(&Command::Channel(channel::Command::Enable { id, expected: None }));
        }
        self.let_go();
        self.key_enabled = true;
        self.edit(&Command::Key(key::Command::Enable { id: KeyId::new(1), expected: None }));
    }

    fn set_policy(&mut self, scope: PolicyScope, selector: SelectorPolicy) {
        let old = self.catalog.policies.get(&scope);
        let (expected, request) = old.map_or((0, RequestOverrides::default()), |old| (old.version, old.request));
        let selector = selector.into();
        self.edit(&Command::Policy(policy::Command::Set { scope, expected, selector, request }));
    }

    fn new_channel(&mut self) {
        let id = ChannelId::new(self.catalog.highest.channel + 1);
        let credential = Some(self.seal(id));
        let max_concurrent = self.chance.yes(0.3).then_some(4);
        let models = MODELS.iter().filter(|_| self.chance.yes(0.85)).collect::<Vec<_>>();
        let models = if models.is_empty() { vec![&MODELS[0]] } else { models };
        let declares = self.ground.setting.routes && self.chance.yes(0.3);
        let models = models.into_iter().map(|(name, upstream)| ChannelModel {
            // Some know both by one name.
            upstream: Some(if declares { "one" } else { upstream }.to_owned()),
            capabilities: Capabilities { tools: declares.then_some(false), ..Capabilities::default() },
            ..ChannelModel::named(*name)
        });
        let new = channel::New {
            credential,
            models: models.collect(),
            groups: vec![GroupRef::Id(GroupId::new(1))],
            priority: i32::try_from(self.chance.below(2)).unwrap_or(0),
            weight: u32::try_from(self.chance.among(0, 6)).unwrap_or(1),
            limits: Limits { max_concurrent, ..Limits::default() },
            ..channel::New::at(format!("channel {id}"), format!("https://c{id}.upstream.test/v1"))
        };
        self.edit(&Command::Channel(channel::Command::Create(Box::new(new))));
    }

    /// Seals a fresh credential, which its own words name.
    fn seal(&mut self, channel: ChannelId) -> CredentialRef {
        self.credentials += 1;
        let words = format!("sk-{channel}-{}", self.credentials);
        let sealed = self.vault.seal("channel", channel.get(), &SecretString::from(words.clone())).unwrap();
        let subject = Vault::subject("channel", channel.get());
        let record = Record { subject, message_id: None, payload: Bytes::from(sealed) };
        let revision = self.append(Stream::Secret, record, Expect::Anything);
        CredentialRef { revision, fingerprint: words }
    }

    fn edit(&mut self, command: &Command) {
        let changes = match decide(&self.catalog, command) {
            Ok(changes) => changes,
            Err(rejected) => {
                self.ground.trace.note(format_args!("an edit is rejected: {rejected}"));
                return;
            }
        };
        for change in changes {
            self.edits += 1;
            let (entity, id) = change.subject();
            let mut draft = Draft::new(self.ground.now(), change);
            draft.actor = Some(Actor::Operator);
            let identity =
                Identity::Derived { id: format!("edit-{}", self.edits), producer: "admin-1".parse().unwrap() };
            let event = Event { identity, draft };
            let payload = Bytes::from(event.encode().unwrap());
            let record = Record { subject: format!("wb.config.{entity}.{id}"), message_id: None, payload };
            let expect = Expect::LastInStream(self.catalog.position.0);
            let position = ConfigPosition(self.append(Stream::Config, record, expect));
            let applied = catalog::apply(&mut self.catalog, &event, position);
            assert!(!matches!(applied, Applied::Known | Applied::Blocked), "an own edit is new");
        }
    }

    fn append(&self, stream: Stream, record: Record, expect: Expect) -> u64 {
        // The store answers at once: nothing stands between it and the administrator.
        let appended = self.journal.log.append(stream, record, expect).now_or_never();
        appended.expect("the store answers").expect("nobody else edits").sequence
    }
}
