//! Credentials on their way into the log: checked, sealed for their channel, appended before the edit that names them.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use waybill_domain::catalog::Rejection;
use waybill_event::config::{CredentialRef, Platform};
use waybill_event::{LogTime, Source, SourceKind};
use waybill_journal::{AppendError, Expect, Log, Record, Start, Stream};
use waybill_secret::oauth::Defaults;
use waybill_secret::{Bearer, ExposeSecret, NoBearer, OauthCredential, SecretString, Shown, TokenBody, Vault};

use crate::edit::EditError;

/// Longest credential, in bytes: a header of a request must hold it.
const CREDENTIAL_BYTES: usize = 8 * 1024;
/// Sends of one sealed credential while nobody can tell whether it was stored; the message id makes them one.
const SENDS: usize = 3;

/// A credential that isn't sealed yet.
pub enum Credential {
    /// The key of a channel.
    Key(SecretString),
    /// The tokens of an account.
    Login(Box<OauthCredential>),
}

/// The word for the kind of a source, as subjects have it.
const fn kind(source: Source) -> &'static str {
    match source.kind {
        SourceKind::Channel => "channel",
        SourceKind::Account => "account",
    }
}

/// Where credentials go and come from.
#[derive(Clone)]
pub struct Credentials {
    log: Arc<dyn Log>,
    vault: Arc<Vault>,
}

impl Credentials {
    /// Credentials in this log, sealed and opened with the vault's ring.
    #[must_use]
    pub fn new(log: Arc<dyn Log>, vault: Arc<Vault>) -> Self {
        Self { log, vault }
    }

    /// Keeps the vault filled from the log, in a task of `tasks` that ends with `stop`.
    pub fn follow(&self, tasks: &TaskTracker, stop: CancellationToken) {
        let (log, vault) = (Arc::clone(&self.log), Arc::clone(&self.vault));
        tasks.spawn(async move {
            let mut sealed = log.follow(Stream::Secret, Start::At(1));
            loop {
                let item = tokio::select! {
                    () = stop.cancelled() => return,
                    item = sealed.next() => item,
                };
                match item {
                    Some(Ok(message)) => {
                        if let Err(error) = vault.take(&message.subject, message.sequence, &message.payload) {
                            tracing::warn!(%error, "a sealed credential can't be taken");
                        }
                    }
                    Some(Err(error)) => tracing::warn!(%error, "sealed credentials can't be followed"),
                    None => return,
                }
            }
        });
    }

    /// Tells equal credentials from different ones.
    #[must_use]
    pub fn fingerprint(&self, credential: &Credential) -> String {
        let text = match credential {
            Credential::Key(key) => key,
            Credential::Login(login) => &login.access,
        };
        self.vault.ring().fingerprint(text).as_str().to_owned()
    }

    /// What requests to a source are sent with, if this process has it already and it holds at `now`.
    ///
    /// # Errors
    /// [`NoBearer`].
    pub fn bearer(&self, source: Source, credential: &CredentialRef, now: LogTime) -> Result<Bearer, NoBearer> {
        match source.kind {
            SourceKind::Channel => self.vault.of_channel(source.id, credential.revision),
            SourceKind::Account => self.vault.of_account(source.id, credential.revision, now.as_millis()),
        }
    }

    /// What may be known of the tokens that an account goes by now, with their revision; `None` while this process doesn't
    /// have them.
    #[must_use]
    pub fn shown(&self, account: u64, credential: &CredentialRef) -> Option<(u64, Arc<Shown>)> {
        let tokens = self.vault.account(account, credential.revision)?;
        Some((tokens.revision, tokens.shown))
    }

    /// Seals a credential for a source and appends it.
    ///
    /// # Errors
    /// [`EditError`]: it can't be sealed, or the log doesn't take it.
    pub async fn store(&self, source: Source, credential: &Credential) -> Result<CredentialRef, EditError> {
        let sealed = match credential {
            Credential::Key(key) => self.vault.seal(kind(source), source.id, key),
            Credential::Login(login) => self.vault.seal_account(source.id, login, None),
        };
        let sealed = sealed.map_err(EditError::Seal)?;
        let record = Record {
            subject: Vault::subject(kind(source), source.id),
            message_id: Some(uuid::Uuid::now_v7().to_string()),
            payload: Bytes::from(sealed),
        };
        let mut left = SENDS;
        loop {
            left -= 1;
            match self.log.append(Stream::Secret, record.clone(), Expect::Anything).await {
                Ok(appended) => {
                    let fingerprint = self.fingerprint(credential);
                    return Ok(CredentialRef { revision: appended.sequence, fingerprint });
                }
                Err(AppendError::Unknown { .. }) if left > 0 => {}
                // A credential that was perhaps stored but is named by no edit is of no use to anyone.
                Err(AppendError::Unknown { reason }) => return Err(EditError::LogAway { reason }),
                Err(AppendError::Full) => return Err(EditError::LogFull),
                Err(AppendError::Refused { reason }) => return Err(EditError::LogRefused { reason }),
                Err(error @ AppendError::Conflict) => {
                    return Err(EditError::LogRefused { reason: error.to_string() });
                }
            }
        }
    }
}

/// A credential as it will be sealed: without blanks around it, and such that a header can carry it.
///
/// # Errors
/// [`Rejection::Invalid`] for the field `field`.
pub fn checked(field: &str, credential: &SecretString) -> Result<SecretString, Rejection> {
    let text = credential.expose_secret().trim();
    let wrong = |message: &str| Rejection::Invalid { field: field.to_owned(), message: message.to_owned() };
    if text.is_empty() {
        return Err(wrong("is empty"));
    }
    if text.len() > CREDENTIAL_BYTES {
        return Err(wrong("is too long"));
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(wrong("has characters that can't be sent in a header"));
    }
    Ok(SecretString::from(text))
}

/// An account's login, read from a token file's text.
///
/// # Errors
/// [`Rejection::Invalid`] about `field`, with what is wrong with it and without what it says.
pub fn login(field: &str, text: &SecretString, platform: Platform, now: LogTime) -> Result<Credential, Rejection> {
    match OauthCredential::import(text, defaults(platform), now.as_millis()) {
        Ok(login) => Ok(Credential::Login(Box::new(login))),
        Err(error) => Err(Rejection::Invalid { field: field.to_owned(), message: error.to_string() }),
    }
}

/// What token files of a platform's own tools leave out. Its tools' client ids are public.
const fn defaults(platform: Platform) -> Defaults<'static> {
    match platform {
        Platform::Claude => Defaults {
            endpoint: Some("https://console.anthropic.com/v1/oauth/token"),
            body: TokenBody::Json,
            client_id: Some("9d1c250a-e61b-44d9-88ed-5944d1962f5e"),
        },
        Platform::Codex => Defaults {
            endpoint: Some("https://auth.openai.com/oauth/token"),
            body: TokenBody::Json,
            client_id: Some("app_EMoamEEZ73f0CkXaXp7hrann"),
        },
        Platform::Gemini => {
            Defaults { endpoint: Some("https://oauth2.googleapis.com/token"), body: TokenBody::Form, client_id: None }
        }
        Platform::Generic => Defaults { endpoint: None, body: TokenBody::Form, client_id: None },
    }
}
