//! `GET /v1/models` and `GET /v1/models/{id}`: what the caller's key can use now.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use http::{HeaderMap, Response};
use waybill_domain::catalog::{Authorised, Snapshot};
use waybill_domain::verdict::PublicCode;
use waybill_event::LogTime;
use waybill_wire::models::{ModelEntry, render_list, render_model};

use crate::answer::{Ids, Refusal, json};
use crate::chat::admission::{authenticate, no_such_model};
use crate::inbound::Wishes;
use crate::replica::Replica;

/// The catalogue doesn't know when a model was made; clients want a number.
const UNKNOWN: i64 = 0;

/// Lists the models.
pub async fn list(State(replica): State<Arc<Replica>>, headers: HeaderMap) -> Response<Body> {
    answered(&replica, &headers, |snapshot, authorised| Ok(render_list(&entries(snapshot, authorised))))
}

/// Shows one model.
pub async fn one(State(replica): State<Arc<Replica>>, Path(model): Path<String>, headers: HeaderMap) -> Response<Body> {
    answered(&replica, &headers, |snapshot, authorised| {
        let found = entries(snapshot, authorised).into_iter().find(|entry| entry.id == model);
        found.as_ref().map(render_model).ok_or_else(|| no_such_model(&model))
    })
}

fn entries(snapshot: &Snapshot, authorised: &Authorised) -> Vec<ModelEntry> {
    snapshot
        .models_for(authorised)
        .map(|model| ModelEntry { id: model.to_string(), created_s: UNKNOWN, owned_by: "waybill".to_owned() })
        .collect()
}

fn answered(
    replica: &Replica,
    headers: &HeaderMap,
    render: impl FnOnce(&Snapshot, &Authorised) -> Result<bytes::Bytes, Refusal>,
) -> Response<Body> {
    let now = replica.serving_since_now();
    let ids = Ids { request: replica.new_request(now.unwrap_or_default()), client: Wishes::of(headers).client_id };
    let rendered = serve(replica, headers, now, render);
    match rendered {
        Ok(body) => json(&ids, body),
        Err(refusal) => {
            replica.metrics.refused(refusal.code.as_str());
            refusal.response(&ids)
        }
    }
}

fn serve(
    replica: &Replica,
    headers: &HeaderMap,
    now: Option<LogTime>,
    render: impl FnOnce(&Snapshot, &Authorised) -> Result<bytes::Bytes, Refusal>,
) -> Result<bytes::Bytes, Refusal> {
    let now = now.ok_or_else(|| Refusal::of(PublicCode::GatewayNotReady))?;
    let snapshot = replica.snapshot();
    let authorised = authenticate(replica, &snapshot, headers, now)?;
    render(&snapshot, &authorised)
}
