//! Channels.

pub(super) mod upstream;

use std::sync::Arc;

use axum::extract::{Path, State as Held};
use http::StatusCode;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use waybill_domain::catalog::manifest::ModelEntry;
use waybill_domain::catalog::{Catalog, Command, GroupRef, channel};
use waybill_event::ChannelId;
use waybill_event::config::{Channel, ChannelModel, Limits, ProbeSettings};
use waybill_secret::SecretString;

use super::named::{Act, Named, find};
use super::view::{self, Subject};
use super::{Answer, answer_edit};
use crate::State;
use crate::credentials::{Credential, checked};
use crate::edit::{Author, EditError, SourceWish};
use crate::request::{Expected, Json, because};

/// A new channel.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewChannel {
    name: String,
    base_url: String,
    provider: Option<String>,
    credential: Option<SecretString>,
    models: Option<Vec<ModelEntry>>,
    groups: Option<Vec<GroupRef>>,
    priority: Option<i32>,
    weight: Option<u32>,
    limits: Option<Limits>,
    multiplier_milli: Option<u32>,
    allow_private: Option<bool>,
    probe: Option<ProbeSettings>,
    enabled: Option<bool>,
    reason: Option<String>,
}

/// An edit of a channel: what is left out stays.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EditChannel {
    expected_version: Option<u64>,
    name: Option<String>,
    base_url: Option<String>,
    provider: Option<String>,
    /// `null` takes the credential away.
    #[serde(default, deserialize_with = "given")]
    credential: Option<Option<SecretString>>,
    models: Option<Vec<ModelEntry>>,
    groups: Option<Vec<GroupRef>>,
    priority: Option<i32>,
    weight: Option<u32>,
    limits: Option<Limits>,
    multiplier_milli: Option<u32>,
    allow_private: Option<bool>,
    /// All of how upkeep asks it of its own accord.
    probe: Option<ProbeSettings>,
    reason: Option<String>,
}

/// Tells `null` from a field that is left out.
pub(super) fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(reader: D) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(reader).map(Some)
}

fn models(entries: Vec<ModelEntry>) -> Vec<ChannelModel> {
    entries.into_iter().map(ChannelModel::from).collect()
}

impl Named for Channel {
    const ONE: &'static str = "channel";
    const MANY: &'static str = "channels";

    fn called(catalog: &Catalog, reference: &GroupRef) -> Option<Arc<Self>> {
        match reference {
            GroupRef::Id(id) => catalog.channels.get(&ChannelId::new(id.get())).cloned(),
            GroupRef::Name(name) => catalog.channel_named(name).cloned(),
        }
    }

    fn all(catalog: &Catalog) -> impl Iterator<Item = &Arc<Self>> {
        catalog.channels.values()
    }

    fn view(&self, catalog: &Catalog) -> Value {
        view::channel(catalog, self)
    }

    fn subject(&self) -> Subject {
        Subject::Channel(self.id)
    }

    fn command(&self, act: Act, expected: Option<u64>) -> Command {
        let id = self.id;
        Command::Channel(match act {
            Act::Enable => channel::Command::Enable { id, expected },
            Act::Disable => channel::Command::Disable { id, expected },
            Act::End => channel::Command::Delete { id, expected },
        })
    }
}

pub(super) async fn create(Held(state): Held<State>, author: Author, Json(new): Json<NewChannel>) -> Answer {
    let author = because(author, new.reason)?;
    let default = channel::New::at(new.name, new.base_url);
    let command = channel::Command::Create(Box::new(channel::New {
        provider: new.provider.unwrap_or(default.provider),
        models: new.models.map_or(default.models, models),
        groups: new.groups.unwrap_or(default.groups),
        priority: new.priority.unwrap_or(default.priority),
        weight: new.weight.unwrap_or(default.weight),
        limits: new.limits.unwrap_or(default.limits),
        multiplier_milli: new.multiplier_milli.unwrap_or(default.multiplier_milli),
        allow_private: new.allow_private.unwrap_or(default.allow_private),
        probe: new.probe.unwrap_or(default.probe),
        enabled: new.enabled.unwrap_or(default.enabled),
        ..default
    }));
    run(&state, &author, command, new.credential, StatusCode::CREATED, None).await
}

pub(super) async fn edit(
    Held(state): Held<State>,
    author: Author,
    Path(id): Path<String>,
    expected: Expected,
    Json(edit): Json<EditChannel>,
) -> Answer {
    let author = because(author, edit.reason)?;
    let id = find::<Channel>(&state.fold().view().catalog, &id)?.id;
    let expected = expected.needed(edit.expected_version)?;
    let patch = channel::Patch {
        name: edit.name,
        provider: edit.provider,
        base_url: edit.base_url,
        // A new credential is sealed later; here only its removal can be said.
        credential: matches!(edit.credential, Some(None)).then_some(None),
        models: edit.models.map(models),
        groups: edit.groups,
        priority: edit.priority,
        weight: edit.weight,
        limits: edit.limits,
        multiplier_milli: edit.multiplier_milli,
        allow_private: edit.allow_private,
        probe: edit.probe,
    };
    let command = channel::Command::Edit { id, expected, patch: Box::new(patch) };
    run(&state, &author, command, edit.credential.flatten(), StatusCode::OK, Some(id)).await
}

async fn run(
    state: &State,
    author: &Author,
    command: channel::Command,
    credential: Option<SecretString>,
    done: StatusCode,
    subject: Option<ChannelId>,
) -> Answer {
    let subject = subject.map(Subject::Channel);
    match credential {
        None => answer_edit(state, author, &mut Command::Channel(command), done, subject).await,
        Some(credential) => {
            let credential = Credential::Key(checked("credential", &credential).map_err(EditError::from)?);
            let mut wish = SourceWish::new(state.credentials().clone(), Command::Channel(command), credential);
            answer_edit(state, author, &mut wish, done, subject).await
        }
    }
}
