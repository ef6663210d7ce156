//! Prices of models. A model's name may have any characters, so that it stands in the body or the query, never in a path.

use axum::Json as Body;
use axum::extract::State as Held;
use axum::response::IntoResponse;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use waybill_domain::catalog::manifest::Usd;
use waybill_domain::catalog::{Command, price};

use super::view::{self, Subject};
use super::{Answer, answer_edit};
use crate::State;
use crate::edit::Author;
use crate::request::{Json, Query, because};

/// What a million tokens of a model cost, in dollars.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SetPrice {
    /// The model as upstreams call it.
    model: String,
    input_usd: Usd,
    output_usd: Usd,
    reason: Option<String>,
}

/// Which price is cleared.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    model: String,
}

pub(super) async fn list(Held(state): Held<State>) -> Answer {
    let catalog = state.fold().view().catalog;
    let all: Vec<Value> = catalog.prices.values().map(|price| view::price(price)).collect();
    Ok(Body(json!({"prices": all})).into_response())
}

pub(super) async fn set(Held(state): Held<State>, author: Author, Json(wanted): Json<SetPrice>) -> Answer {
    let author = because(author, wanted.reason)?;
    let (input, output) = (wanted.input_usd.0, wanted.output_usd.0);
    let subject = Some(Subject::Price(wanted.model.clone()));
    let mut command = Command::Price(price::Command::Set { model: wanted.model, input, output });
    answer_edit(&state, &author, &mut command, StatusCode::OK, subject).await
}

pub(super) async fn clear(Held(state): Held<State>, author: Author, Query(which): Query<Which>) -> Answer {
    let mut command = Command::Price(price::Command::Clear { model: which.model });
    answer_edit(&state, &author, &mut command, StatusCode::OK, None).await
}
