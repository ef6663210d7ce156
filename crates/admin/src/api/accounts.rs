//! Accounts. Their tokens come in as a token file and never go out again.

use std::sync::Arc;

use axum::extract::{Path, State as Held};
use http::StatusCode;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;
use waybill_domain::catalog::manifest::{ModelEntry, Window};
use waybill_domain::catalog::{Catalog, Command, GroupRef, account};
use waybill_event::config::{Account, ChannelModel, Limits, Platform, ProbeSettings};
use waybill_event::{AccountId, LogTime};
use waybill_secret::SecretString;

use super::channels::given;
use super::named::{Act, Named, find};
use super::view::{self, Subject};
use super::{Answer, answer_edit};
use crate::State;
use crate::credentials::{Credential, login};
use crate::edit::{Author, EditError, SourceWish};
use crate::problem::Problem;
use crate::request::{Expected, Json, because};

/// A token file: the object that a login tool writes, or the text of an access token alone.
#[derive(Debug)]
pub(super) struct TokenFile(SecretString);

impl<'de> Deserialize<'de> for TokenFile {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(reader)?;
        let text = String::from(Box::<str>::from(raw));
        let object = if text.starts_with('"') { format!("{{\"access_token\":{text}}}") } else { text };
        Ok(Self(SecretString::from(object)))
    }
}

impl TokenFile {
    fn read(&self, platform: Platform, now: LogTime) -> Result<Credential, Problem> {
        Ok(login("credential", &self.0, platform, now).map_err(EditError::from)?)
    }
}

/// A new account.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewAccount {
    name: String,
    platform: Option<Platform>,
    base_url: String,
    credential: Option<TokenFile>,
    models: Option<Vec<ModelEntry>>,
    groups: Option<Vec<GroupRef>>,
    priority: Option<i32>,
    weight: Option<u32>,
    limits: Option<Limits>,
    session_window: Option<Window>,
    allow_private: Option<bool>,
    probe: Option<ProbeSettings>,
    enabled: Option<bool>,
    reason: Option<String>,
}

/// An edit of an account: what is left out stays.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EditAccount {
    expected_version: Option<u64>,
    name: Option<String>,
    base_url: Option<String>,
    /// `null` takes the credential away.
    #[serde(default, deserialize_with = "given")]
    credential: Option<Option<TokenFile>>,
    models: Option<Vec<ModelEntry>>,
    groups: Option<Vec<GroupRef>>,
    priority: Option<i32>,
    weight: Option<u32>,
    limits: Option<Limits>,
    /// `null` takes the window away.
    #[serde(default, deserialize_with = "given")]
    session_window: Option<Option<Window>>,
    allow_private: Option<bool>,
    /// All of how upkeep asks it of its own accord.
    probe: Option<ProbeSettings>,
    reason: Option<String>,
}

fn models(entries: Vec<ModelEntry>) -> Vec<ChannelModel> {
    entries.into_iter().map(ChannelModel::from).collect()
}

impl Named for Account {
    const ONE: &'static str = "account";
    const MANY: &'static str = "accounts";

    fn called(catalog: &Catalog, reference: &GroupRef) -> Option<Arc<Self>> {
        match reference {
            GroupRef::Id(id) => catalog.accounts.get(&AccountId::new(id.get())).cloned(),
            GroupRef::Name(name) => catalog.account_named(name).cloned(),
        }
    }

    fn all(catalog: &Catalog) -> impl Iterator<Item = &Arc<Self>> {
        catalog.accounts.values()
    }

    fn view(&self, catalog: &Catalog) -> Value {
        view::account(catalog, self)
    }

    fn subject(&self) -> Subject {
        Subject::Account(self.id)
    }

    fn command(&self, act: Act, expected: Option<u64>) -> Command {
        let id = self.id;
        Command::Account(match act {
            Act::Enable => account::Command::Enable { id, expected },
            Act::Disable => account::Command::Disable { id, expected },
            Act::End => account::Command::Delete { id, expected },
        })
    }
}

pub(super) async fn create(Held(state): Held<State>, author: Author, Json(new): Json<NewAccount>) -> Answer {
    let author = because(author, new.reason)?;
    let platform = new.platform.unwrap_or_default();
    let credential = new.credential.map(|file| file.read(platform, state.now())).transpose()?;
    let default = account::New::at(new.name, platform, new.base_url);
    let command = account::Command::Create(Box::new(account::New {
        models: new.models.map_or(default.models, models),
        groups: new.groups.unwrap_or(default.groups),
        priority: new.priority.unwrap_or(default.priority),
        weight: new.weight.unwrap_or(default.weight),
        limits: new.limits.unwrap_or(default.limits),
        session_window: new.session_window.map(Into::into),
        allow_private: new.allow_private.unwrap_or(default.allow_private),
        probe: new.probe.unwrap_or(default.probe),
        enabled: new.enabled.unwrap_or(default.enabled),
        ..default
    }));
    run(&state, &author, command, credential, StatusCode::CREATED, None).await
}

pub(super) async fn edit(
    Held(state): Held<State>,
    author: Author,
    Path(id): Path<String>,
    expected: Expected,
    Json(edit): Json<EditAccount>,
) -> Answer {
    let author = because(author, edit.reason)?;
    let found = find::<Account>(&state.fold().view().catalog, &id)?;
    let expected = expected.needed(edit.expected_version)?;
    // A new credential is sealed later; here only its removal can be said.
    let removed = matches!(edit.credential, Some(None)).then_some(None);
    let credential = edit.credential.flatten().map(|file| file.read(found.platform, state.now())).transpose()?;
    let patch = account::Patch {
        name: edit.name,
        base_url: edit.base_url,
        credential: removed,
        models: edit.models.map(models),
        groups: edit.groups,
        priority: edit.priority,
        weight: edit.weight,
        limits: edit.limits,
        session_window: edit.session_window.map(|window| window.map(Into::into)),
        allow_private: edit.allow_private,
        probe: edit.probe,
    };
    let command = account::Command::Edit { id: found.id, expected, patch: Box::new(patch) };
    run(&state, &author, command, credential, StatusCode::OK, Some(found.id)).await
}

async fn run(
    state: &State,
    author: &Author,
    command: account::Command,
    credential: Option<Credential>,
    done: StatusCode,
    subject: Option<AccountId>,
) -> Answer {
    let (subject, mut command) = (subject.map(Subject::Account), Command::Account(command));
    match credential {
        None => answer_edit(state, author, &mut command, done, subject).await,
        Some(credential) => {
            let mut wish = SourceWish::new(state.credentials().clone(), command, credential);
            answer_edit(state, author, &mut wish, done, subject).await
        }
    }
}
