//! Groups.

use std::sync::Arc;

use axum::extract::{Path, State as Held};
use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;
use waybill_domain::catalog::{Catalog, Command, GroupRef, group};
use waybill_event::GroupId;
use waybill_event::config::Group;

use super::named::{Act, Named, find};
use super::view::{self, Subject};
use super::{Answer, answer_edit};
use crate::State;
use crate::edit::Author;
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

impl Named for Group {
    const ONE: &'static str = "group";
    const MANY: &'static str = "groups";

    fn called(catalog: &Catalog, reference: &GroupRef) -> Option<Arc<Self>> {
        match reference {
            GroupRef::Id(id) => catalog.groups.get(id).cloned(),
            GroupRef::Name(name) => catalog.group_named(name).cloned(),
        }
    }

    fn all(catalog: &Catalog) -> impl Iterator<Item = &Arc<Self>> {
        catalog.groups.values()
    }

    fn view(&self, _: &Catalog) -> Value {
        view::group(self)
    }

    fn subject(&self) -> Subject {
        Subject::Group(self.id)
    }

    fn command(&self, act: Act, expected: Option<u64>) -> Command {
        let id = self.id;
        Command::Group(match act {
            Act::Enable => group::Command::Enable { id, expected },
            Act::Disable => group::Command::Disable { id, expected },
            Act::End => group::Command::Delete { id, expected },
        })
    }
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
    let id = find::<Group>(&state.fold().view().catalog, &id)?.id;
    let expected = expected.needed(edit.expected_version)?;
    run(&state, &author, group::Command::Edit { id, expected, name: edit.name }, StatusCode::OK, Some(id)).await
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
