//! Wishes: commands with what they need from outside. A wish may be decided several times, on newer and newer
//! catalogues; credentials and tokens that were made for it are kept between.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use waybill_domain::catalog::manifest::{IssuedToken, Manifest, Plan, Supplies, plan};
use waybill_domain::catalog::{Catalog, Command, Rejection, account, channel, decide};
use waybill_event::Source;
use waybill_event::config::{ConfigChange, CredentialRef};
use waybill_secret::{Peppers, SecretString, Token, TokenKind};

use super::{EditError, addresses, tried};
use crate::credentials::{Credential, Credentials, checked};
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
    stored: BTreeMap<String, Stored>,
    tokens: BTreeMap<String, (Token, IssuedToken)>,
    planned: Plan,
}

impl ManifestWish {
    /// A manifest; its credentials are sealed by `credentials`, the tokens of its new keys hashed with `peppers`.
    ///
    /// # Errors
    /// [`Rejection::Invalid`] where it asks for what only the command line can do.
    pub fn new(credentials: Credentials, peppers: Arc<Peppers>, manifest: Manifest) -> Result<Self, Rejection> {
        for (i, entry) in manifest.channels.iter().enumerate() {
            if entry.credential_env.is_some() {
                let field = format!("channels/{i}/credential_env");
                let message = "is read by the command line, which sends it as credential".to_owned();
                return Err(Rejection::Invalid { field, message });
            }
        }
        let (stored, tokens) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { credentials, peppers, manifest, stored, tokens, planned: Plan::default() })
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
            let credential = SecretString::from(wanted.credential.expose());
            let credential = Credential::Key(checked("credential", &credential)?);
            let fingerprint = self.credentials.fingerprint(&credential);
            let held = wanted.held.filter(|held| held.fingerprint == fingerprint);
            let shown = held.unwrap_or(CredentialRef { revision: u64::MAX, fingerprint });
            supplies.credentials.insert(wanted.name.to_owned(), shown);
        }
        let planned = plan(catalog, &self.manifest, &supplies)?;
        let changes: Vec<ConfigChange> = planned.steps.iter().map(|step| step.change.clone()).collect();
        addresses::check(catalog, &changes, |entity| {
            let entry = self.manifest.channels.iter().position(|entry| entry.name == entity.name());
            entry.map_or_else(|| "base_url".to_owned(), |i| format!("channels/{i}/base_url"))
        })?;
        self.planned = planned;
        Ok(&self.planned)
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
            let key = checked("credential", &SecretString::from(wanted.credential.expose()))?;
            let (source, credential) = (Source::from(wanted.id), Credential::Key(key));
            let fingerprint = self.credentials.fingerprint(&credential);
            let held = wanted.held.filter(|held| held.fingerprint == fingerprint);
            let before = self.stored.remove(wanted.name).flatten().filter(|(sealed_for, _)| *sealed_for == source);
            let stored = match (held, before) {
                (Some(held), _) => held,
                (None, Some((_, stored))) => stored,
                (None, None) => self.credentials.store(source, &credential).await?,
            };
            self.stored.insert(wanted.name.to_owned(), Some((source, stored.clone())));
            supplies.credentials.insert(wanted.name.to_owned(), stored);
        }
        self.planned = plan(catalog, &self.manifest, &supplies)?;
        Ok(self.planned.steps.iter().map(|step| step.change.clone()).collect())
    }
}
