//! Client keys. The token of a new key stands in that one answer and nowhere else.

use std::sync::Arc;

use axum::extract::{Path, State as Held};
use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;
use waybill_domain::catalog::{Catalog, Command, GroupRef, key};
use waybill_event::config::{Key, Limits};
use waybill_event::{KeyId, LogTime};
use waybill_secret::TokenKind;

use super::channels::given;
use super::named::{Act, Named, find};
use super::view::{self, Subject};
use super::{Answer, answer_committed, answer_edit};
use crate::edit::{Author, EditError};
use crate::request::{Expected, Json, because};
use crate::{State, tokens};

/// A new key.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewKey {
    name: String,
    group: GroupRef,
    models: Option<Vec<String>>,
    expires_at: Option<LogTime>,
    /// What may be asked with it in all.
    limits: Option<Limits>,
    /// What each of its users may ask.
    user_limits: Option<Limits>,
    enabled: Option<bool>,
    reason: Option<String>,
}

/// An edit of a key: what is left out stays.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EditKey {
    expected_version: Option<u64>,
    name: Option<String>,
    group: Option<GroupRef>,
    models: Option<Vec<String>>,
    /// `null` means that it never expires.
    #[serde(default, deserialize_with = "given")]
    expires_at: Option<Option<LogTime>>,
    limits: Option<Limits>,
    user_limits: Option<Limits>,
    reason: Option<String>,
}

impl Named for Key {
    const ONE: &'static str = "key";
    const MANY: &'static str = "keys";

    fn called(catalog: &Catalog, reference: &GroupRef) -> Option<Arc<Self>> {
        match reference {
            GroupRef::Id(id) => catalog.keys.get(&KeyId::new(id.get())).cloned(),
            GroupRef::Name(name) => catalog.key_named(name).cloned(),
        }
    }

    fn all(catalog: &Catalog) -> impl Iterator<Item = &Arc<Self>> {
        catalog.keys.values()
    }

    fn view(&self, catalog: &Catalog) -> Value {
        view::key(catalog, self)
    }

    fn subject(&self) -> Subject {
        Subject::Key(self.id)
    }

    fn command(&self, act: Act, expected: Option<u64>) -> Command {
        let id = self.id;
        Command::Key(match act {
            Act::Enable => key::Command::Enable { id, expected },
            Act::Disable => key::Command::Disable { id, expected },
            Act::End => key::Command::Revoke { id, expected },
        })
    }
}

pub(super) async fn issue(Held(state): Held<State>, author: Author, Json(new): Json<NewKey>) -> Answer {
    let author = because(author, new.reason)?;
    let (token, issued) = tokens::mint(state.peppers(), TokenKind::ClientKey).map_err(EditError::from)?;
    let mut command = Command::Key(key::Command::Issue(Box::new(key::New {
        name: new.name,
        group: new.group,
        prefix: issued.prefix,
        hash: issued.hash,
        models: new.models.unwrap_or_default(),
        expires_at: new.expires_at,
        limits: new.limits.unwrap_or_default(),
        user_limits: new.user_limits.unwrap_or_default(),
        enabled: new.enabled.unwrap_or(true),
    })));
    let committed = state.editor().edit(&author, &mut command).await?;
    let catalog = state.fold().view().catalog;
    let mut shown = committed.changes.last().map(|change| view::of(&catalog, change)).unwrap_or_default();
    shown.insert("token".to_owned(), token.expose().into());
    Ok(answer_committed(&state, &committed, StatusCode::CREATED, shown).await)
}

pub(super) async fn edit(
    Held(state): Held<State>,
    author: Author,
    Path(id): Path<String>,
    expected: Expected,
    Json(edit): Json<EditKey>,
) -> Answer {
    let author = because(author, edit.reason)?;
    let id = find::<Key>(&state.fold().view().catalog, &id)?.id;
    let expected = expected.needed(edit.expected_version)?;
    let patch = key::Patch {
        name: edit.name,
        group: edit.group,
        models: edit.models,
        expires_at: edit.expires_at,
        limits: edit.limits,
        user_limits: edit.user_limits,
    };
    run(&state, &author, key::Command::Edit { id, expected, patch }, Some(id)).await
}

async fn run(state: &State, author: &Author, command: key::Command, subject: Option<KeyId>) -> Answer {
    answer_edit(state, author, &mut Command::Key(command), StatusCode::OK, subject.map(Subject::Key)).await
}
