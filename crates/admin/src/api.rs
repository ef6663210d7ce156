//! The routes under `/api/v1`, one file per subject.

mod accounts;
mod admin_tokens;
mod apply;
mod channels;
mod config_history;
mod groups;
mod interventions;
mod keys;
mod named;
mod policy;
mod pools;
mod prices;
mod requests;
mod routes;
mod rules;
mod sources;
mod standing;
mod status;
mod story;
mod tail;
mod view;
mod why;

use std::time::Duration;

use axum::extract::DefaultBodyLimit;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use http::StatusCode;
use serde_json::{Map, Value};
use waybill_event::config::{Account, Channel, Group, Key, Route};

use self::view::Subject;
use crate::State;
use crate::edit::{Author, Committed, Wish};
use crate::problem::Problem;
use crate::request::{authenticate, identify};

/// Largest body, in bytes: a manifest of some thousand channels.
const BODY_BYTES: usize = 4 * 1024 * 1024;
/// How long an edit waits for the read model before it answers 202.
const READABLE: Duration = Duration::from_secs(1);

/// The whole API.
pub fn router(state: State) -> Router {
    let api = Router::new()
        .route("/channels", get(named::list::<Channel>).post(channels::create))
        .route("/channels/{id}", get(named::show::<Channel>).patch(channels::edit).delete(named::end::<Channel>))
        .route("/channels/{id}/enable", post(named::enable::<Channel>))
        .route("/channels/{id}/disable", post(named::disable::<Channel>))
        .route("/channels/{id}/test", post(channels::upstream::test::<Channel>))
        .route("/channels/{id}/fetch-models", post(channels::upstream::fetch_models::<Channel>))
        .route("/accounts", get(named::list::<Account>).post(accounts::create))
        .route("/accounts/{id}", get(named::show::<Account>).patch(accounts::edit).delete(named::end::<Account>))
        .route("/accounts/{id}/enable", post(named::enable::<Account>))
        .route("/accounts/{id}/disable", post(named::disable::<Account>))
        .route("/accounts/{id}/test", post(channels::upstream::test::<Account>))
        .route("/accounts/{id}/fetch-models", post(channels::upstream::fetch_models::<Account>))
        .route("/prices", get(prices::list).put(prices::set).delete(prices::clear))
        .route("/groups", get(named::list::<Group>).post(groups::create))
        .route("/groups/{id}", get(named::show::<Group>).patch(groups::edit).delete(named::end::<Group>))
        .route("/groups/{id}/enable", post(named::enable::<Group>))
        .route("/groups/{id}/disable", post(named::disable::<Group>))
        .route("/keys", get(named::list::<Key>).post(keys::issue))
        .route("/keys/{id}", get(named::show::<Key>).patch(keys::edit).delete(named::end::<Key>))
        .route("/keys/{id}/enable", post(named::enable::<Key>))
        .route("/keys/{id}/disable", post(named::disable::<Key>))
        .route("/admin-tokens", get(admin_tokens::list).post(admin_tokens::issue))
        .route("/admin-tokens/{id}", axum::routing::delete(admin_tokens::revoke))
        .route("/routes", get(named::list::<Route>).post(routes::create))
        .route("/routes/{id}", get(named::show::<Route>).patch(routes::edit).delete(named::end::<Route>))
        .route("/routes/{id}/enable", post(named::enable::<Route>))
        .route("/routes/{id}/disable", post(named::disable::<Route>))
        .route("/policy", get(policy::show).put(policy::set))
        .route("/rules", get(rules::show).put(rules::set))
        .route("/rules/shipped", get(rules::shipped))
        .route("/rules/promote", post(rules::promote))
        .route("/rules/revert", post(rules::revert))
        .route("/rules/shadow", get(rules::shadow))
        .route("/rules/test", post(rules::test))
        .route("/apply", post(apply::apply))
        .route("/config-history", get(config_history::list))
        .route("/requests", get(requests::list))
        .route("/requests/{id}", get(requests::show))
        .route("/sources", get(sources::list))
        .route("/sources/{source}/story", get(story::show))
        .route("/sources/{source}/why", get(why::show))
        .route("/pools", get(pools::show))
        .route("/sources/{source}/{act}", post(interventions::intervene))
        .route("/tail", get(tail::tail))
        .route("/status", get(status::show))
        .layer(middleware::from_fn_with_state(state.clone(), authenticate));
    Router::new()
        .nest("/api/v1", api)
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .layer(middleware::from_fn(identify))
        .with_state(state)
}

/// A handler's answer.
type Answer = Result<Response, Problem>;

/// Makes an edit and answers with its position, whether it is readable in the read model yet, and the entity as it is
/// now. `subject` tells which entity that is where nothing changed.
async fn answer_edit(
    state: &State,
    author: &Author,
    wish: &mut dyn Wish,
    done: StatusCode,
    subject: Option<Subject>,
) -> Answer {
    let committed = state.editor().edit(author, wish).await?;
    let catalog = state.fold().view().catalog;
    let shown = match (committed.changes.last(), subject) {
        (Some(change), _) => view::of(&catalog, change),
        (None, Some(subject)) => view::current(&catalog, subject),
        (None, None) => Map::new(),
    };
    Ok(answer_committed(state, &committed, done, shown).await)
}

async fn answer_committed(
    state: &State,
    committed: &Committed,
    done: StatusCode,
    rest: Map<String, Value>,
) -> Response {
    let readable = state.reads().has(committed.position, READABLE).await;
    let status = if readable { done } else { StatusCode::ACCEPTED };
    let mut body = Map::new();
    body.insert("position".to_owned(), committed.position.0.into());
    body.insert("readable".to_owned(), readable.into());
    body.insert("changed".to_owned(), (!committed.changes.is_empty()).into());
    body.extend(rest);
    (status, Json(body)).into_response()
}

/// An answer of one member.
fn member(name: &str, value: impl Into<Value>) -> Map<String, Value> {
    Map::from_iter([(name.to_owned(), value.into())])
}
