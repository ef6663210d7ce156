//! Routes.

use std::sync::Arc;

use axum::extract::{Path, State as Held};
use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;
use waybill_domain::catalog::manifest::TargetEntry;
use waybill_domain::catalog::{Catalog, Command, GroupRef, route};
use waybill_event::RouteId;
use waybill_event::config::{Route, Target};

use super::named::{Act, Named, find};
use super::view::{self, Subject};
use super::{Answer, answer_edit};
use crate::State;
use crate::edit::Author;
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

impl Named for Route {
    const ONE: &'static str = "route";
    const MANY: &'static str = "routes";

    fn called(catalog: &Catalog, reference: &GroupRef) -> Option<Arc<Self>> {
        match reference {
            GroupRef::Id(id) => catalog.routes.get(&RouteId::new(id.get())).cloned(),
            GroupRef::Name(name) => catalog.route_named(name).cloned(),
        }
    }

    fn all(catalog: &Catalog) -> impl Iterator<Item = &Arc<Self>> {
        catalog.routes.values()
    }

    fn view(&self, catalog: &Catalog) -> Value {
        view::route(catalog, self)
    }

    fn subject(&self) -> Subject {
        Subject::Route(self.id)
    }

    fn command(&self, act: Act, expected: Option<u64>) -> Command {
        let id = self.id;
        Command::Route(match act {
            Act::Enable => route::Command::Enable { id, expected },
            Act::Disable => route::Command::Disable { id, expected },
            Act::End => route::Command::Delete { id, expected },
        })
    }
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
    let id = find::<Route>(&state.fold().view().catalog, &id)?.id;
    let expected = expected.needed(edit.expected_version)?;
    let patch = route::Patch { name: edit.name, targets: edit.targets.map(targets), groups: edit.groups };
    run(&state, &author, route::Command::Edit { id, expected, patch }, StatusCode::OK, Some(id)).await
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
