//! The history of edits: who changed what, when and why.

use axum::Json as Body;
use axum::extract::State as Held;
use axum::response::IntoResponse;
use serde::Deserialize;
use serde_json::json;
use waybill_domain::catalog::ENTITIES;
use waybill_event::ConfigPosition;
use waybill_read_model::read::ConfigHistoryQuery;

use super::Answer;
use super::requests::page;
use crate::State;
use crate::problem::Problem;
use crate::request::Query;

/// Which edits are wanted.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// Kind of entity.
    entity: Option<String>,
    /// Its id.
    id: Option<String>,
    /// `next_cursor` of the page before.
    cursor: Option<u64>,
    limit: Option<u32>,
}

pub(super) async fn list(Held(state): Held<State>, Query(parameters): Query<Parameters>) -> Answer {
    if let Some(entity) = parameters.entity.as_deref()
        && !ENTITIES.contains(&entity)
    {
        return Err(Problem::invalid("entity", format!("entity must be one of {}", ENTITIES.join(", "))));
    }
    let query = ConfigHistoryQuery {
        entity: parameters.entity,
        entity_id: parameters.id,
        before: parameters.cursor.map(ConfigPosition),
        limit: page(parameters.limit)?,
    };
    let rows = state.reads().edits(&query).await?;
    let full = u32::try_from(rows.len()).is_ok_and(|rows| rows == query.limit);
    let next = rows.last().filter(|_| full).map(|row| row.position);
    Ok(Body(json!({"edits": rows, "next_cursor": next})).into_response())
}
