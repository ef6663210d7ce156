//! The manifest: a file that says how configuration shall be. It is declarative for what it names: a field it leaves
//! out stays as it is (or gets the default, at creation), and what it doesn't name stays unless it asks to prune.

mod credentials;
mod plan;

use std::fmt;

use serde::Deserialize;
use waybill_event::LogTime;
use waybill_event::NanoUsd;
use waybill_event::config::{
    Capabilities, ChannelModel, CredentialRef, Limits, Platform, ProbeSettings, RequestOverrides, SelectorOverrides,
    SessionWindow, StoredHash, Target,
};

use super::{Catalog, GroupRef};

pub use credentials::{Plain, SourceCredential};
pub use plan::{Plan, Step, plan};

/// Most changes that one manifest may make: they are appended as one batch.
pub const MAX_CHANGES: usize = 500;

/// A credential in plain text, on its way to be sealed. It can't be printed.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct PlainCredential(String);

impl PlainCredential {
    /// The credential, for sealing and for nothing else.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PlainCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlainCredential(..)")
    }
}

/// An account's login in plain text, on its way to be sealed: a token file's object, or an access token alone. It can't be
/// printed.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct PlainLogin(serde_json::Value);

impl PlainLogin {
    /// The login as a token file, for sealing and for nothing else.
    #[must_use]
    pub fn expose(&self) -> String {
        match &self.0 {
            token @ serde_json::Value::String(_) => format!("{{\"access_token\":{token}}}"),
            file => file.to_string(),
        }
    }
}

impl fmt::Debug for PlainLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlainLogin(..)")
    }
}

/// How configuration shall be.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Whether channels, keys, routes and groups that aren't named here are deleted, and policies emptied. Accounts and
    /// prices only where the manifest has such a part: a login that was deleted can't be had again.
    #[serde(default)]
    pub prune: bool,
    /// Groups.
    #[serde(default)]
    pub groups: Vec<GroupEntry>,
    /// Channels.
    #[serde(default)]
    pub channels: Vec<ChannelEntry>,
    /// Accounts; nothing is said of them where this is absent.
    pub accounts: Option<Vec<AccountEntry>>,
    /// Prices; nothing is said of them where this is absent.
    pub prices: Option<Vec<PriceEntry>>,
    /// Client keys; one that doesn't exist is issued.
    #[serde(default)]
    pub keys: Vec<KeyEntry>,
    /// Routes.
    #[serde(default)]
    pub routes: Vec<RouteEntry>,
    /// Policies.
    #[serde(default)]
    pub policies: Vec<PolicyEntry>,
}

/// A route, by its name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteEntry {
    /// What clients ask for.
    pub name: String,
    /// All its targets, the best first; needed for a route that doesn't exist yet.
    pub targets: Option<Vec<TargetEntry>>,
    /// All groups it is for; empty means all.
    pub groups: Option<Vec<GroupRef>>,
    /// Whether it is used.
    pub enabled: Option<bool>,
}

/// A target of a route: a model, or a model with what it is declared to be able to do.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum TargetEntry {
    /// A model.
    Plain(String),
    /// A model with its capabilities.
    Declared(DeclaredTarget),
}

/// A target with its capabilities.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeclaredTarget {
    /// The model, or the name of another route.
    pub model: String,
    /// What it can do.
    #[serde(default)]
    pub capabilities: Capabilities,
}

impl From<TargetEntry> for Target {
    fn from(entry: TargetEntry) -> Self {
        match entry {
            TargetEntry::Plain(model) => Self { model, capabilities: Capabilities::default() },
            TargetEntry::Declared(DeclaredTarget { model, capabilities }) => Self { model, capabilities },
        }
    }
}

/// What a scope overrides; all of it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyEntry {
    /// What it applies to, as [`super::policy::scope`] reads it.
    pub scope: String,
    /// Numbers of the selector fold.
    #[serde(default)]
    pub selector: SelectorOverrides,
    /// Numbers of requests.
    #[serde(default)]
    pub request: RequestOverrides,
}

/// A group, by its name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupEntry {
    /// Its name.
    pub name: String,
    /// Whether its keys may be used.
    pub enabled: Option<bool>,
}

/// A model of a channel: its name, or its name and what the upstream calls it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum ModelEntry {
    /// The same name at the upstream.
    Plain(String),
    /// Perhaps another name at the upstream.
    Named(NamedModel),
}

/// A model with what the upstream calls it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedModel {
    /// The model as groups and routes name it.
    pub name: String,
    /// What the upstream calls it, where that differs.
    #[serde(default)]
    pub upstream: Option<String>,
    /// What it can do here.
    #[serde(default)]
    pub capabilities: Capabilities,
}

impl From<ModelEntry> for ChannelModel {
    fn from(entry: ModelEntry) -> Self {
        match entry {
            ModelEntry::Plain(name) => Self { name, upstream: None, capabilities: Capabilities::default() },
            ModelEntry::Named(NamedModel { name, upstream, capabilities }) => Self { name, upstream, capabilities },
        }
    }
}

/// A channel, by its name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelEntry {
    /// Its name.
    pub name: String,
    /// The provider's kind.
    pub provider: Option<String>,
    /// Where it is; needed for a channel that doesn't exist yet.
    pub base_url: Option<String>,
    /// Its credential.
    pub credential: Option<PlainCredential>,
    /// The environment variable that holds its credential; read by the command line and sent as `credential`.
    pub credential_env: Option<String>,
    /// All models it offers.
    pub models: Option<Vec<ModelEntry>>,
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
    /// Whether it may serve.
    pub enabled: Option<bool>,
}

/// An account, by its name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccountEntry {
    /// Its name.
    pub name: String,
    /// The service it is a login of. That of an account that exists can't be another.
    pub platform: Option<Platform>,
    /// Where that is; needed for an account that doesn't exist yet.
    pub base_url: Option<String>,
    /// Its login. One with the access token that was imported last is the same one, whatever tokens it was refreshed to.
    pub credential: Option<PlainLogin>,
    /// The environment variable that holds its login; read by the command line and sent as `credential`.
    pub credential_env: Option<String>,
    /// All models it offers.
    pub models: Option<Vec<ModelEntry>>,
    /// All groups it serves.
    pub groups: Option<Vec<GroupRef>>,
    /// Its tier.
    pub priority: Option<i32>,
    /// Its share within the tier.
    pub weight: Option<u32>,
    /// All its limits.
    pub limits: Option<Limits>,
    /// What one session may spend on it; 0 dollars are no window.
    pub session_window: Option<Window>,
    /// Whether addresses of private networks are allowed.
    pub allow_private: Option<bool>,
    /// All of how upkeep asks it of its own accord.
    pub probe: Option<ProbeSettings>,
    /// Whether it may serve.
    pub enabled: Option<bool>,
}

/// What one session may spend, as people write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// In dollars.
    pub usd: Usd,
    /// Within so many seconds; five hours if nothing is said.
    pub seconds: Option<u32>,
}

/// The window that subscriptions reckon in, in seconds.
const FIVE_HOURS: u32 = 5 * 3_600;

impl From<Window> for SessionWindow {
    fn from(Window { usd, seconds }: Window) -> Self {
        Self { limit: usd.0, seconds: seconds.unwrap_or(FIVE_HOURS) }
    }
}

/// An amount that is written in dollars. What is no amount of money is less than nothing, which everything refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(from = "f64")]
pub struct Usd(pub NanoUsd);

impl From<f64> for Usd {
    #[expect(clippy::cast_possible_truncation, reason = "it is finite and within bounds")]
    fn from(usd: f64) -> Self {
        let nano = (usd * 1e9).round();
        Self(NanoUsd(if nano.is_finite() && nano < 9e18 { nano as i64 } else { -1 }))
    }
}

/// What a model costs, by its name at the upstream.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceEntry {
    /// The model as upstreams call it.
    pub model: String,
    /// A million tokens of prompts, in dollars.
    pub input_usd: Usd,
    /// A million tokens of answers, in dollars.
    pub output_usd: Usd,
}

/// A client key, by its name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyEntry {
    /// Its name.
    pub name: String,
    /// The group it belongs to; needed for a key that doesn't exist yet.
    pub group: Option<GroupRef>,
    /// All models it may use; empty means all of its group's.
    pub models: Option<Vec<String>>,
    /// From when on it is no longer valid.
    pub expires_at: Option<LogTime>,
    /// What may be asked with it in all.
    pub limits: Option<Limits>,
    /// What each of its users may ask.
    pub user_limits: Option<Limits>,
    /// Whether it may be used.
    pub enabled: Option<bool>,
}

/// Prefix and hash of a token that was made for a new key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedToken {
    /// Its first characters.
    pub prefix: String,
    /// Its hash.
    pub hash: StoredHash,
}

/// What a plan needs from outside: sealing and randomness aren't its business.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Supplies {
    /// Credentials of channels that the manifest gives one, by the channel's name.
    pub credentials: std::collections::BTreeMap<String, CredentialRef>,
    /// Logins of accounts that the manifest gives one, by the account's name.
    pub logins: std::collections::BTreeMap<String, CredentialRef>,
    /// Tokens of keys that don't exist yet, by the key's name.
    pub tokens: std::collections::BTreeMap<String, IssuedToken>,
}

impl Manifest {
    /// Names of the keys that the plan will issue.
    pub fn new_keys<'a>(&'a self, catalog: &'a Catalog) -> impl Iterator<Item = &'a str> {
        self.keys.iter().map(|entry| entry.name.trim()).filter(|name| catalog.key_named(name).is_none())
    }
}

#[cfg(test)]
mod tests;
