//! Admin tokens. A new one stands in its one answer and nowhere else.

use axum::Json as Body;
use axum::extract::{Path, State as Held};
use axum::response::IntoResponse;
use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;
use waybill_domain::catalog::{Command, admin_token};
use waybill_event::AdminTokenId;
use waybill_secret::TokenKind;

use super::view::{self, Subject};
use super::{Answer, answer_committed, answer_edit, member};
use crate::edit::{Author, EditError};
use crate::problem::Problem;
use crate::request::{Expected, Json, because};
use crate::{State, tokens};

/// A new admin token.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewToken {
    name: String,
    reason: Option<String>,
}

pub(super) async fn list(Held(state): Held<State>) -> Answer {
    let catalog = state.fold().view().catalog;
    let tokens: Vec<Value> = catalog.admin_tokens.values().map(|token| view::admin_token(token)).collect();
    Ok(Body(member("admin_tokens", tokens)).into_response())
}

pub(super) async fn issue(Held(state): Held<State>, author: Author, Json(new): Json<NewToken>) -> Answer {
    let author = because(author, new.reason)?;
    let (token, issued) = tokens::mint(state.peppers(), TokenKind::AdminToken).map_err(EditError::from)?;
    let issue = admin_token::Command::Issue { name: new.name, prefix: issued.prefix, hash: issued.hash };
    let committed = state.editor().edit(&author, &mut Command::AdminToken(issue)).await?;
    let catalog = state.fold().view().catalog;
    let mut shown = committed.changes.last().map(|change| view::of(&catalog, change)).unwrap_or_default();
    shown.insert("token".to_owned(), token.expose().into());
    Ok(answer_committed(&state, &committed, StatusCode::CREATED, shown).await)
}

pub(super) async fn revoke(
    Held(state): Held<State>,
    author: Author,
    Path(id): Path<String>,
    Expected(expected): Expected,
) -> Answer {
    let unknown = || Problem::not_found(format!("there is no admin token {id}"));
    let id: AdminTokenId = id.parse().map_err(|_| unknown())?;
    let mut command = Command::AdminToken(admin_token::Command::Revoke { id, expected });
    answer_edit(&state, &author, &mut command, StatusCode::OK, Some(Subject::AdminToken(id))).await
}
