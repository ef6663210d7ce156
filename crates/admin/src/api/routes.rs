//! Routes.

use std::sync::Arc;

use axum::Json as Body;
use axum::extract::{Path, State as Held};
use axum::response::IntoResponse;
use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;
use waybill_domain::catalog::manifest::TargetEntry;
use waybill_domain::catalog::{Catalog, Command, GroupRef, route};
use waybill_event::RouteId;
use waybill_event::config::{Route, Target};

use super::view::{self, Subject};
use super::{Answer, answer_edit, member};
use crate::State;
use crate::edit::Author;
use crate::problem::Problem;
use crate::request::{Expected, Json, because};

/// A new route.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewRoute {
    name: String,
    targets: Vec<TargetEntry>,
    #[serde(default)]
    groups: Vec<GroupRef>,
    enabled: Option<bool>,
    reason: Option<String>,
}

/// An edit of a route.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EditRoute {
    expected_version: Option<u64>,
    name: Option<String>,
    targets: Option<Vec<TargetEntry>>,
    groups: Option<Vec<GroupRef>>,
    reason: Option<String>,
}

fn targets(entries: Vec<TargetEntry>) -> Vec<Target> {
    entries.into_iter().map(Target::from).collect()
}

/// Digits are an id; a route whose name is digits is found by its id only.
fn find(catalog: &Catalog, text: &str) -> Result<Arc<Route>, Problem> {
    let found = match text.parse() {
        Ok(id) => catalog.routes.get(&RouteId::new(id)),
        Err(_) => catalog.route_named(text),
    };
    found.cloned().ok_or_else(|| Problem::not_found(format!("there is no route {text}")))
}

pub(super) async fn list(Held(state): Held<State>) -> Answer {
    let catalog = state.fold().view().catalog;
    let routes: Vec<Value> = catalog.routes.values().map(|route| view::route(&catalog, route)).collect();
    Ok(Body(member("routes", routes)).into_response())
}

pub(super) async fn show(Held(state): Held<State>, Path(id): Path<String>) -> Answer {
    let catalog = state.fold().view().catalog;
    let route = find(&catalog, &id)?;
    Ok(Body(view::route(&catalog, &route)).into_response())
}

pub(super) async fn create(Held(state): Held<State>, author: Author, Json(new): Json<NewRoute>) -> Answer {
    let author = because(author, new.reason)?;
    let new = route::New {
        name: new.name,
        targets: targets(new.targets),
        groups: new.groups,
        enabled: new.enabled.unwrap_or(true),
    };
    run(&state, &author, route::Command::Create(new), StatusCode::CREATED, None).await
}

pub(super) async fn edit(
    Held(state): Held<State>,
    author: Author,
    Path(id): Path<String>,
    expected: Expected,
    Json(edit): Json<EditRoute>,
) -> Answer {
    let author = because(author, edit.reason)?;
    let id = find(&state.fold().view().catalog, &id)?.id;
    let expected = expected.needed(edit.expected_version)?;
    let patch = route::Patch { name: edit.name, targets: edit.targets.map(targets), groups: edit.groups };
    run(&state, &author, route::Command::Edit { id, expected, patch }, StatusCode::OK, Some(id)).await
}

pub(super) async fn enable(
    Held(state): Held<State>,
    author: Author,
    Path(id): Path<String>,
    Expected(expected): Expected,
) -> Answer {
    let id = find(&state.fold().view().catalog, &id)?.id;
    run(&state, &author, route::Command::Enable { id, expected }, StatusCode::OK, Some(id)).await
}

pub(super) async fn disable(
    Held(state): Held<State>,
    author: Author,
    Path(id): Path<String>,
    Expected(expected): Expected,
) -> Answer {
    let id = find(&state.fold().view().catalog, &id)?.id;
    run(&state, &author, route::Command::Disable { id, expected }, StatusCode::OK, Some(id)).await
}

pub(super) async fn delete(
    Held(state): Held<State>,
    author: Author,
    Path(id): Path<String>,
    Expected(expected): Expected,
) -> Answer {
    let id = find(&state.fold().view().catalog, &id)?.id;
    run(&state, &author, route::Command::Delete { id, expected }, StatusCode::OK, None).await
}

async fn run(
    state: &State,
    author: &Author,
    command: route::Command,
    done: StatusCode,
    subject: Option<RouteId>,
) -> Answer {
    answer_edit(state, author, &mut Command::Route(command), done, subject.map(Subject::Route)).await
}
