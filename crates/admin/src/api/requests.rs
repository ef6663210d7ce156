//! Requests: listing and searching them, and the whole history of one.

use axum::Json as Body;
use axum::extract::{Path, State as Held};
use axum::response::IntoResponse;
use serde::Deserialize;
use serde_json::json;
use waybill_event::{GroupId, KeyId, LogTime, RequestId};
use waybill_read_model::read::RequestQuery;

use super::Answer;
use crate::State;
use crate::problem::Problem;
use crate::request::Query;

/// Rows of a page, when nothing is said.
const PAGE: u32 = 50;
/// Most rows of a page.
const PAGE_MAX: u32 = 500;

/// Which requests are wanted.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// A key's id or name.
    key: Option<String>,
    /// A group's id or name.
    group: Option<String>,
    model: Option<String>,
    /// `open`, `succeeded`, `partial`, `failed`, `refused`, `cancelled` or `unknown`.
    state: Option<String>,
    /// A source, as `channel:1`.
    source: Option<String>,
    from: Option<LogTime>,
    to: Option<LogTime>,
    /// What the request's id begins with.
    q: Option<String>,
    /// The client's own id of the request.
    client_request_id: Option<String>,
    /// `next_cursor` of the page before.
    cursor: Option<RequestId>,
    limit: Option<u32>,
}

/// Refuses pages of no rows and of too many.
pub(super) fn page(limit: Option<u32>) -> Result<u32, Problem> {
    match limit.unwrap_or(PAGE) {
        limit @ 1..=PAGE_MAX => Ok(limit),
        _ => Err(Problem::invalid("limit", format!("limit must be between 1 and {PAGE_MAX}"))),
    }
}

fn query(state: &State, parameters: Parameters) -> Result<RequestQuery, Problem> {
    let catalog = state.fold().view().catalog;
    let key = match parameters.key {
        None => None,
        Some(text) => match text.parse::<KeyId>() {
            Ok(id) => Some(id),
            Err(_) => {
                let unknown = || Problem::invalid("key", format!("there is no key {text}"));
                Some(catalog.key_named(&text).ok_or_else(unknown)?.id)
            }
        },
    };
    let group = match parameters.group {
        None => None,
        Some(text) => match text.parse::<GroupId>() {
            Ok(id) => Some(id),
            Err(_) => {
                let unknown = || Problem::invalid("group", format!("there is no group {text}"));
                Some(catalog.group_named(&text).ok_or_else(unknown)?.id)
            }
        },
    };
    let source = match parameters.source {
        None => None,
        Some(text) => Some(text.parse().map_err(|error| Problem::invalid("source", format!("{error}")))?),
    };
    let state = match parameters.state {
        None => None,
        Some(text) => {
            let unknown = |_| Problem::invalid("state", format!("there is no state {text:?}"));
            Some(text.parse().map_err(unknown)?)
        }
    };
    if let Some(q) = parameters.q.as_deref()
        && (q.len() > 36 || !q.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-'))
    {
        return Err(Problem::invalid("q", "must be the beginning of a request's id"));
    }
    Ok(RequestQuery {
        key,
        group,
        model: parameters.model,
        state,
        source,
        client_request_id: parameters.client_request_id,
        from: parameters.from,
        to: parameters.to,
        id_prefix: parameters.q,
        after: parameters.cursor,
        limit: page(parameters.limit)?,
    })
}

pub(super) async fn list(Held(state): Held<State>, Query(parameters): Query<Parameters>) -> Answer {
    let query = query(&state, parameters)?;
    let rows = state.reads().requests(&query).await?;
    let full = u32::try_from(rows.len()).is_ok_and(|rows| rows == query.limit);
    let next = rows.last().filter(|_| full).map(|row| row.request_id);
    Ok(Body(json!({"requests": rows, "next_cursor": next})).into_response())
}

pub(super) async fn show(Held(state): Held<State>, Path(id): Path<String>) -> Answer {
    let parsed: RequestId = id.parse().map_err(|_| Problem::not_found(format!("{id} is no request's id")))?;
    let history = state.reads().history(parsed).await?;
    let unknown = || Problem::not_found(format!("there is no request {id} in the read model"));
    Ok(Body(history.ok_or_else(unknown)?).into_response())
}
