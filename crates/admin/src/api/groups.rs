//! Groups.

use std::sync::Arc;

use axum::Json as Body;
use axum::extract::{Path, State as Held};
use axum::response::IntoResponse;
use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;
use waybill_domain::catalog::{Catalog, Command, GroupRef, group};
use waybill_event::GroupId;
use waybill_event::config::Group;

use super::view::{self, Subject};
use super::{Answer, answer_edit, member, reference};
use crate::State;
use crate::edit::Author;
use crate::problem::Problem;
use crate::request::{Expected, Json, because};

/// A new group.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewGroup {
    name: String,
    enabled: Option<bool>,
    reason: Option<String>,
}

/// An edit of a group.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EditGroup {
    expected_version: Option<u64>,
    name: Option<String>,
    reason: Option<String>,
}

fn find(catalog: &Catalog, text: &str) -> Result<Arc<Group>, Problem> {
    let found = match reference(text) {
        GroupRef::Id(id) => catalog.groups.get(&id),
        GroupRef::Name(name) => catalog.group_named(&name),
    };
    found.cloned().ok_or_else(|| Problem::not_found(format!("there is no group {text}")))
}

pub(super) async fn list(Held(state): Held<State>) -> Answer {
    let catalog = state.fold().view().catalog;
    let groups: Vec<Value> = catalog.groups.values().map(|group| view::group(group)).collect();
    Ok(Body(member("groups", groups)).into_response())
}

pub(super) async fn show(Held(state): Held<State>, Path(id): Path<String>) -> Answer {
    let group = find(&state.fold().view().catalog, &id)?;
    Ok(Body(view::group(&group)).into_response())
}

pub(super) async fn create(Held(state): Held<State>, author: Author, Json(new): Json<NewGroup>) -> Answer {
    let author = because(author, new.reason)?;
    let command = group::Command::Create { name: new.name, enabled: new.enabled.unwrap_or(true) };
    run(&state, &author, command, StatusCode::CREATED, None).await
}

pub(super) async fn edit(
    Held(state): Held<State>,
    author: Author,
    Path(id): Path<String>,
    expected: Expected,
    Json(edit): Json<EditGroup>,
) -> Answer {
    let author = because(author, edit.reason)?;
    let id = find(&state.fold().view().catalog, &id)?.id;
    let expected = expected.needed(edit.expected_version)?;
    run(&state, &author, group::Command::Edit { id, expected, name: edit.name }, StatusCode::OK, Some(id)).await
}

pub(super) async fn enable(
    Held(state): Held<State>,
    author: Author,
    Path(id): Path<String>,
    Expected(expected): Expected,
) -> Answer {
    let id = find(&state.fold().view().catalog, &id)?.id;
    run(&state, &author, group::Command::Enable { id, expected }, StatusCode::OK, Some(id)).await
}

pub(super) async fn disable(
    Held(state): Held<State>,
    author: Author,
    Path(id): Path<String>,
    Expected(expected): Expected,
) -> Answer {
    let id = find(&state.fold().view().catalog, &id)?.id;
    run(&state, &author, group::Command::Disable { id, expected }, StatusCode::OK, Some(id)).await
}

pub(super) async fn delete(
    Held(state): Held<State>,
    author: Author,
    Path(id): Path<String>,
    Expected(expected): Expected,
) -> Answer {
    let id = find(&state.fold().view().catalog, &id)?.id;
    run(&state, &author, group::Command::Delete { id, expected }, StatusCode::OK, None).await
}

async fn run(
    state: &State,
    author: &Author,
    command: group::Command,
    done: StatusCode,
    subject: Option<GroupId>,
) -> Answer {
    answer_edit(state, author, &mut Command::Group(command), done, subject.map(Subject::Group)).await
}
