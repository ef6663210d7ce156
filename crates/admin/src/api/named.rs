//! What channels, groups, keys and routes share: they are found by id or name, and listed, shown, switched and ended alike.

use std::sync::Arc;

use axum::Json as Body;
use axum::extract::{Path, State as Held};
use axum::response::IntoResponse;
use http::StatusCode;
use serde_json::Value;
use waybill_domain::catalog::{Catalog, Command, GroupRef};

use super::view::Subject;
use super::{Answer, answer_edit, member};
use crate::State;
use crate::edit::Author;
use crate::problem::Problem;
use crate::request::Expected;

/// What can be done with any of them.
#[derive(Debug, Clone, Copy)]
pub(super) enum Act {
    Enable,
    Disable,
    /// For good.
    End,
}

/// An entity with an id and a name.
pub(super) trait Named: Send + Sync + 'static {
    /// The word for one.
    const ONE: &'static str;
    /// The word for many, as answers have it.
    const MANY: &'static str;

    /// The one that is called so. A name of digits is found by its id only.
    fn called(catalog: &Catalog, reference: &GroupRef) -> Option<Arc<Self>>;
    fn all(catalog: &Catalog) -> impl Iterator<Item = &Arc<Self>>;
    fn view(&self, catalog: &Catalog) -> Value;
    fn subject(&self) -> Subject;
    fn command(&self, act: Act, expected: Option<u64>) -> Command;
}

/// The one of a path: digits are an id.
pub(super) fn find<N: Named>(catalog: &Catalog, text: &str) -> Result<Arc<N>, Problem> {
    let reference = text.parse().map_or_else(|_| GroupRef::Name(text.to_owned()), GroupRef::Id);
    N::called(catalog, &reference).ok_or_else(|| Problem::not_found(format!("there is no {} {text}", N::ONE)))
}

pub(super) async fn list<N: Named>(Held(state): Held<State>) -> Answer {
    let catalog = state.fold().view().catalog;
    let all: Vec<Value> = N::all(&catalog).map(|one| one.view(&catalog)).collect();
    Ok(Body(member(N::MANY, all)).into_response())
}

pub(super) async fn show<N: Named>(Held(state): Held<State>, Path(id): Path<String>) -> Answer {
    let catalog = state.fold().view().catalog;
    let one = find::<N>(&catalog, &id)?;
    Ok(Body(one.view(&catalog)).into_response())
}

pub(super) async fn enable<N: Named>(
    Held(state): Held<State>,
    author: Author,
    Path(id): Path<String>,
    Expected(expected): Expected,
) -> Answer {
    act::<N>(&state, &author, &id, Act::Enable, expected).await
}

pub(super) async fn disable<N: Named>(
    Held(state): Held<State>,
    author: Author,
    Path(id): Path<String>,
    Expected(expected): Expected,
) -> Answer {
    act::<N>(&state, &author, &id, Act::Disable, expected).await
}

pub(super) async fn end<N: Named>(
    Held(state): Held<State>,
    author: Author,
    Path(id): Path<String>,
    Expected(expected): Expected,
) -> Answer {
    act::<N>(&state, &author, &id, Act::End, expected).await
}

async fn act<N: Named>(state: &State, author: &Author, id: &str, act: Act, expected: Option<u64>) -> Answer {
    let one = find::<N>(&state.fold().view().catalog, id)?;
    // What has ended is shown as the edit left it, and not as it is now.
    let subject = match act {
        Act::Enable | Act::Disable => Some(one.subject()),
        Act::End => None,
    };
    answer_edit(state, author, &mut one.command(act, expected), StatusCode::OK, subject).await
}
