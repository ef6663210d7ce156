//! Asking a channel's upstream: whether it works, and which models it has.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json as Body;
use axum::extract::{Path, State as Held};
use axum::response::IntoResponse;
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use waybill_event::FailureKind;
use waybill_event::config::Channel;
use waybill_upstream::{Limits, Target, Tried};
use waybill_wire::mask::mask;

use super::super::named::find;
use crate::State;
use crate::api::Answer;
use crate::probe::{WHOLE, target};
use crate::problem::Problem;
use crate::request::Query;

/// Which model is tried; the channel's first one if nothing is said.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct Which {
    model: Option<String>,
}

fn reach(state: &State, id: &str) -> Result<(Arc<Channel>, Target), Problem> {
    let channel = find::<Channel>(&state.fold().view().catalog, id)?;
    let conflict = |code, detail: String| Problem::new(StatusCode::CONFLICT, code, detail);
    let Some(credential) = &channel.credential else {
        return Err(conflict("no_credential", "the channel has no credential".to_owned()));
    };
    let bearer = state.credentials().bearer(channel.source(), credential, state.now());
    let bearer = bearer.map_err(|_| {
        Problem::unavailable("credential_unavailable", "the channel's credential isn't here yet, or can't be opened")
    })?;
    let target = target(&channel, &bearer).map_err(|error| conflict("channel_misconfigured", error.to_string()))?;
    Ok((channel, target))
}

pub(in crate::api) async fn test(
    Held(state): Held<State>,
    Path(id): Path<String>,
    Query(which): Query<Which>,
) -> Answer {
    let (channel, target) = reach(&state, &id)?;
    let model = match which.model {
        Some(name) => channel.models.iter().find(|model| model.name == name || model.upstream_name() == name),
        None => channel.models.first(),
    };
    let model = model.ok_or_else(|| Problem::invalid("model", "the channel has no such model"))?;
    let (begun, now_ms) = (Instant::now(), state.now().as_millis());
    let dispatcher = state.dispatcher();
    let tried = dispatcher.try_chat(&target, &channel.provider, model.upstream_name(), WHOLE, now_ms).await;
    let (Tried { observation, status }, took) = (tried, begun.elapsed());
    let rules = state.fold().view().catalog.rulebook();
    let verdict = rules.classify(Some(channel.source()), &observation);
    let error = &observation.error;
    let shown = json!({
        "channel": channel.id,
        "model": model.name,
        "upstream_model": model.upstream_name(),
        "ok": verdict.kind == FailureKind::Success,
        "kind": verdict.kind,
        "rule": verdict.rule,
        "status": status,
        "took_ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        "error": {
            "code": error.code, "type": error.kind, "param": error.param,
            "message": error.message.as_deref().map(mask),
        },
        "transport": transport(&observation.ending),
    });
    Ok(Body(shown).into_response())
}

fn transport(ending: &waybill_domain::observation::Ending) -> Option<String> {
    use waybill_domain::observation::Ending;
    match ending {
        Ending::Transport(fault) => Some(fault.to_string()),
        Ending::TimedOut { limit, .. } => Some(format!("timed out: {limit:?}")),
        Ending::Success | Ending::Status { .. } | Ending::Wrong2xx { .. } | Ending::ClientGone | Ending::Local => None,
    }
}

pub(in crate::api) async fn fetch_models(Held(state): Held<State>, Path(id): Path<String>) -> Answer {
    let (channel, target) = reach(&state, &id)?;
    let limits = Limits { head: Duration::from_secs(15), ..Limits::default() };
    match state.dispatcher().fetch_models(&target, limits).await {
        Ok(models) => {
            let offered: Vec<&str> = channel.models.iter().map(|model| model.upstream_name()).collect();
            let new: Vec<&String> = models.iter().filter(|model| !offered.contains(&model.as_str())).collect();
            Ok(Body(json!({"channel": channel.id, "models": models, "not_offered_yet": new})).into_response())
        }
        Err(error) => {
            let mut detail = error.to_string();
            if let Some(source) = std::error::Error::source(&error) {
                detail = format!("{detail}: {source}");
            }
            Err(Problem::new(StatusCode::BAD_GATEWAY, "upstream_failed", mask(&detail)))
        }
    }
}
