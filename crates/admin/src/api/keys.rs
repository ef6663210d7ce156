//! Client keys. The token of a new key stands in that one answer and nowhere else.

use std::sync::Arc;

use axum::Json as Body;
use axum::extract::{Path, State as Held};
use axum::response::IntoResponse;
use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;
use waybill_domain::catalog::{Catalog, Command, GroupRef, key};
use waybill_event::config::Key;
use waybill_event::{KeyId, LogTime};
use waybill_secret::TokenKind;

use super::channels::given;
use super::view::{self, Subject};
use super::{Answer, answer_committed, answer_edit, member, reference};
use crate::edit::{Author, EditError};
use crate::problem::Problem;
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
    reason: Option<String>,
}

fn find(catalog: &Catalog, text: &str) -> Result<Arc<Key>, Problem> {
    let found = match reference(text) {
        GroupRef::Id(id) => catalog.keys.get(&KeyId::new(id.get())),
        GroupRef::Name(name) => catalog.key_named(&name),
    };
    found.cloned().ok_or_else(|| Problem::not_found(format!("there is no key {text}")))
}

pub(super) async fn list(Held(state): Held<State>) -> Answer {
    let catalog = state.fold().view().catalog;
    let keys: Vec<Value> = catalog.keys.values().map(|key| view::key(&catalog, key)).collect();
    Ok(Body(member("keys", keys)).into_response())
}

pub(super) async fn show(Held(state): Held<State>, Path(id): Path<String>) -> Answer {
    let catalog = state.fold().view().catalog;
    let key = find(&catalog, &id)?;
    Ok(Body(view::key(&catalog, &key)).into_response())
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
    let id = find(&state.fold().view().catalog, &id)?.id;
    let expected = expected.needed(edit.expected_version)?;
    let patch = key::Patch { name: edit.name, group: edit.group, models: edit.models, expires_at: edit.expires_at };
    run(&state, &author, key::Command::Edit { id, expected, patch }, Some(id)).await
}

pub(super) async fn enable(
    Held(state): Held<State>,
    author: Author,
    Path(id): Path<String>,
    Expected(expected): Expected,
) -> Answer {
    let id = find(&state.fold().view().catalog, &id)?.id;
    run(&state, &author, key::Command::Enable { id, expected }, Some(id)).await
}

pub(super) async fn disable(
    Held(state): Held<State>,
    author: Author,
    Path(id): Path<String>,
    Expected(expected): Expected,
) -> Answer {
    let id = find(&state.fold().view().catalog, &id)?.id;
    run(&state, &author, key::Command::Disable { id, expected }, Some(id)).await
}

pub(super) async fn revoke(
    Held(state): Held<State>,
    author: Author,
    Path(id): Path<String>,
    Expected(expected): Expected,
) -> Answer {
    let id = find(&state.fold().view().catalog, &id)?.id;
    run(&state, &author, key::Command::Revoke { id, expected }, None).await
}

async fn run(state: &State, author: &Author, command: key::Command, subject: Option<KeyId>) -> Answer {
    answer_edit(state, author, &mut Command::Key(command), StatusCode::OK, subject.map(Subject::Key)).await
}
