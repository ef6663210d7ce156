//! Wishes: commands with what they need from outside. A wish may be decided several times, on newer and newer
//! catalogues; credentials and tokens that were made for it are kept between.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use waybill_domain::catalog::manifest::{IssuedToken, Manifest, Plain, Plan, SourceCredential, Supplies, plan};
use waybill_domain::catalog::{Catalog, Command, Rejection, SourceEntity, account, channel, decide};
use waybill_event::config::{ConfigChange, CredentialRef};
use waybill_event::{LogTime, Source};
use waybill_secret::{Peppers, SecretString, Token, TokenKind};

use super::{EditError, addresses, tried};
use crate::credentials::{Credential, Credentials, checked, login};
use crate::tokens;

/// Something that can be decided on a catalogue.
#[async_trait]
pub trait Wish: Send {
    /// Decides it.
    ///
    /// # Errors
    /// [`EditError`].
    async fn decide(&mut self, catalog: &Catalog) -> Result<Vec<ConfigChange>, EditError>;
}

#[async_trait]
impl Wish for Command {
    async fn decide(&mut self, catalog: &Catalog) -> Result<Vec<ConfigChange>, EditError> {
        Ok(decided(catalog, self)?)
    }
}

/// Decides a command, the addresses that it brings included.
fn decided(catalog: &Catalog, command: &Command) -> Result<Vec<ConfigChange>, Rejection> {
    let changes = decide(catalog, command)?;
    addresses::check(catalog, &changes, |_| "base_url".to_owned())?;
    tried::check(catalog, &changes)?;
    Ok(changes)
}

/// A credential that was stored, with the source it was sealed for.
type Stored = Option<(Source, CredentialRef)>;

/// The creation or edit of a source, with a credential that isn't sealed yet.
pub struct SourceWish {
    credentials: Credentials,
    command: Command,
    credential: Credential,
    stored: Stored,
}

impl SourceWish {
    /// The command on a channel or account with this credential, whatever the command itself says of one.
    #[must_use]
    pub const fn new(credentials: Credentials, command: Command, credential: Credential) -> Self {
        Self { credentials, command, credential, stored: None }
    }

    fn with(&self, credential: CredentialRef) -> Command {
        let mut command = self.command.clone();
        match &mut command {
            Command::Channel(channel::Command::Create(new)) => new.credential = Some(credential),
            Command::Channel(channel::Command::Edit { patch, .. }) => patch.credential = Some(Some(credential)),
            Command::Account(account::Command::Create(new)) => new.credential = Some(credential),
            Command::Account(account::Command::Edit { patch, .. }) => patch.credential = Some(Some(credential)),
            // Nothing else takes a credential.
            _ => {}
        }
        command
    }

    fn target(&self, catalog: &Catalog) -> Option<Source> {
        match &self.command {
            Command::Channel(channel::Command::Create(_)) => Some(catalog.next_channel_id().into()),
            Command::Channel(channel::Command::Edit { id, .. }) => Some((*id).into()),
            Command::Account(account::Command::Create(_)) => Some(catalog.next_account_id().into()),
            Command::Account(account::Command::Edit { id, .. }) => Some((*id).into()),
            _ => None,
        }
    }
}

#[async_trait]
impl Wish for SourceWish {
    async fn decide(&mut self, catalog: &Catalog) -> Result<Vec<ConfigChange>, EditError> {
        let Some(source) = self.target(catalog) else { return Ok(decided(catalog, &self.command)?) };
        let fingerprint = self.credentials.fingerprint(&self.credential);
        // A login is sealed anew in any case: tokens that are equal may have another end, or another way to be refreshed.
        let held = catalog.entity(source).and_then(|entity| entity.credential().cloned());
        let held = held.filter(|_| matches!(self.credential, Credential::Key(_)));
        if let Some(held) = held.filter(|held| held.fingerprint == fingerprint) {
            return Ok(decided(catalog, &self.with(held))?);
        }
        // What would be refused anyway leaves no sealed credential behind.
        decided(catalog, &self.with(CredentialRef { revision: u64::MAX, fingerprint }))?;
        let stored = match self.stored.take().filter(|(sealed_for, _)| *sealed_for == source) {
            Some((_, stored)) => stored,
            None => self.credentials.store(source, &self.credential).await?,
        };
        self.stored = Some((source, stored.clone()));
        Ok(decided(catalog, &self.with(stored))?)
    }
}

/// A manifest.
pub struct ManifestWish {
    credentials: Credentials,
    peppers: Arc<Peppers>,
    manifest: Manifest,
    now: LogTime,
    stored: BTreeMap<Source, CredentialRef>,
    tokens: BTreeMap<String, (Token, IssuedToken)>,
    planned: Plan,
}

impl ManifestWish {
    /// A manifest; its credentials are sealed by `credentials`, the tokens of its new keys hashed with `peppers`. What its
    /// logins say of their ends is reckoned from `now`.
    ///
    /// # Errors
    /// [`Rejection::Invalid`] where it asks for what only the command line can do.
    pub fn new(
        credentials: Credentials,
        peppers: Arc<Peppers>,
        manifest: Manifest,
        now: LogTime,
    ) -> Result<Self, Rejection> {
        let channels = manifest.channels.iter().map(|entry| &entry.credential_env).enumerate();
        let accounts = manifest.accounts.iter().flatten().map(|entry| &entry.credential_env).enumerate();
        let all = channels.map(|entry| ("channels", entry)).chain(accounts.map(|entry| ("accounts", entry)));
        for (list, (i, variable)) in all {
            if variable.is_some() {
                let field = format!("{list}/{i}/credential_env");
                let message = "is read by the command line, which sends it as credential".to_owned();
                return Err(Rejection::Invalid { field, message });
            }
        }
        let (stored, tokens) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { credentials, peppers, manifest, now, stored, tokens, planned: Plan::default() })
    }

    /// The plan that was decided last.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.planned
    }

    /// The tokens of the keys that the last plan issues, by the key's name: to be handed over once.
    pub fn into_tokens(self) -> impl Iterator<Item = (String, Token)> {
        self.tokens.into_iter().map(|(name, (token, _))| (name, token))
    }

    /// Plans without storing anything.
    ///
    /// # Errors
    /// [`EditError`].
    pub fn rehearse(&mut self, catalog: &Catalog) -> Result<&Plan, EditError> {
        let mut supplies = self.tokens(catalog)?;
        for wanted in self.manifest.credentials(catalog) {
            let fingerprint = self.credentials.fingerprint(&self.read(&wanted)?);
            let held = wanted.held.clone().filter(|held| held.fingerprint == fingerprint);
            supply(&mut supplies, &wanted, held.unwrap_or(CredentialRef { revision: u64::MAX, fingerprint }));
        }
        let planned = plan(catalog, &self.manifest, &supplies)?;
        let changes: Vec<ConfigChange> = planned.steps.iter().map(|step| step.change.clone()).collect();
        addresses::check(catalog, &changes, |entity| {
            let name = entity.name();
            let (list, entry) = match entity {
                SourceEntity::Channel(_) => {
                    ("channels", self.manifest.channels.iter().position(|entry| entry.name.trim() == name))
                }
                SourceEntity::Account(_) => {
                    let mut accounts = self.manifest.accounts.iter().flatten();
                    ("accounts", accounts.position(|entry| entry.name.trim() == name))
                }
            };
            entry.map_or_else(|| "base_url".to_owned(), |i| format!("{list}/{i}/base_url"))
        })?;
        self.planned = planned;
        Ok(&self.planned)
    }

    /// A credential, checked as where it is given alone.
    fn read(&self, wanted: &SourceCredential<'_>) -> Result<Credential, Rejection> {
        match wanted.plain {
            Plain::Key(key) => Ok(Credential::Key(checked(&wanted.field, &SecretString::from(key.expose()))?)),
            Plain::Login(platform, plain) => {
                login(&wanted.field, &SecretString::from(plain.expose()), platform, self.now)
            }
        }
    }

    fn tokens(&mut self, catalog: &Catalog) -> Result<Supplies, EditError> {
        let mut supplies = Supplies::default();
        let wanted: Vec<String> = self.manifest.new_keys(catalog).map(str::to_owned).collect();
        self.tokens.retain(|name, _| wanted.contains(name));
        for name in wanted {
            if !self.tokens.contains_key(&name) {
                self.tokens.insert(name.clone(), tokens::mint(&self.peppers, TokenKind::ClientKey)?);
            }
            if let Some((_, issued)) = self.tokens.get(&name) {
                supplies.tokens.insert(name, issued.clone());
            }
        }
        Ok(supplies)
    }
}

#[async_trait]
impl Wish for ManifestWish {
    async fn decide(&mut self, catalog: &Catalog) -> Result<Vec<ConfigChange>, EditError> {
        self.rehearse(catalog)?;
        let mut supplies = self.tokens(catalog)?;
        for wanted in self.manifest.credentials(catalog) {
            let credential = self.read(&wanted)?;
            let fingerprint = self.credentials.fingerprint(&credential);
            // The login that was imported last stays, with the tokens it was refreshed to.
            let held = wanted.held.clone().filter(|held| held.fingerprint == fingerprint);
            let before = self.stored.get(&wanted.source).filter(|stored| stored.fingerprint == fingerprint);
            let stored = match (held, before) {
                (Some(held), _) => held,
                (None, Some(stored)) => stored.clone(),
                (None, None) => self.credentials.store(wanted.source, &credential).await?,
            };
            self.stored.insert(wanted.source, stored.clone());
            supply(&mut supplies, &wanted, stored);
        }
        self.planned = plan(catalog, &self.manifest, &supplies)?;
        Ok(self.planned.steps.iter().map(|step| step.change.clone()).collect())
    }
}

/// Puts a credential that is sealed with what the plan is made of.
fn supply(supplies: &mut Supplies, wanted: &SourceCredential<'_>, sealed: CredentialRef) {
    let of = match wanted.plain {
        Plain::Key(_) => &mut supplies.credentials,
        Plain::Login(..) => &mut supplies.logins,
    };
    of.insert(wanted.name.to_owned(), sealed);
}
