//! Asking the upstream of a channel or an account: whether it works, and which models it has.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json as Body;
use axum::extract::{Path, State as Held};
use axum::response::IntoResponse;
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use waybill_domain::catalog::SourceEntity;
use waybill_event::FailureKind;
use waybill_secret::NoBearer;
use waybill_upstream::{Limits, Target, Tried};
use waybill_wire::mask::mask;

use super::super::named::{Named, find};
use crate::State;
use crate::api::Answer;
use crate::probe::{WHOLE, target};
use crate::problem::Problem;
use crate::request::Query;

/// Which model is tried; the source's first one if nothing is said.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct Which {
    model: Option<String>,
}

fn reach<N: Named>(state: &State, id: &str) -> Result<(SourceEntity, Target), Problem>
where
    Arc<N>: Into<SourceEntity>,
{
    let entity: SourceEntity = find::<N>(&state.fold().view().catalog, id)?.into();
    let (conflict, one) = (|code, detail: String| Problem::new(StatusCode::CONFLICT, code, detail), N::ONE);
    let Some(credential) = entity.credential() else {
        return Err(conflict("no_credential", format!("the {one} has no credential")));
    };
    let bearer = state.credentials().bearer(entity.source(), credential, state.now()).map_err(|fault| match fault {
        NoBearer::Expired { .. } => conflict("credential_expired", format!("the {one}'s access token has expired")),
        NoBearer::Missing => Problem::unavailable(
            "credential_unavailable",
            format!("the {one}'s credential isn't here yet, or can't be opened"),
        ),
    })?;
    let target = target(&entity, &bearer).map_err(|error| conflict("channel_misconfigured", error.to_string()))?;
    Ok((entity, target))
}

pub(in crate::api) async fn test<N: Named>(
    Held(state): Held<State>,
    Path(id): Path<String>,
    Query(which): Query<Which>,
) -> Answer
where
    Arc<N>: Into<SourceEntity>,
{
    let (entity, target) = reach::<N>(&state, &id)?;
    let model = match which.model {
        Some(name) => entity.models().iter().find(|model| model.name == name || model.upstream_name() == name),
        None => entity.models().first(),
    };
    let model = model.ok_or_else(|| Problem::invalid("model", format!("the {} has no such model", N::ONE)))?;
    let (begun, now_ms) = (Instant::now(), state.now().as_millis());
    let dispatcher = state.dispatcher();
    let tried = dispatcher.try_chat(&target, entity.provider(), model.upstream_name(), WHOLE, now_ms).await;
    let (Tried { observation, status }, took) = (tried, begun.elapsed());
    let rules = state.fold().view().catalog.rulebook();
    let verdict = rules.classify(Some(entity.source()), &observation);
    let error = &observation.error;
    let shown = json!({
        (N::ONE): entity.id(),
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

pub(in crate::api) async fn fetch_models<N: Named>(Held(state): Held<State>, Path(id): Path<String>) -> Answer
where
    Arc<N>: Into<SourceEntity>,
{
    let (entity, target) = reach::<N>(&state, &id)?;
    let limits = Limits { head: Duration::from_secs(15), ..Limits::default() };
    match state.dispatcher().fetch_models(&target, limits).await {
        Ok(models) => {
            let offered: Vec<&str> = entity.models().iter().map(|model| model.upstream_name()).collect();
            let new: Vec<&String> = models.iter().filter(|model| !offered.contains(&model.as_str())).collect();
            Ok(Body(json!({(N::ONE): entity.id(), "models": models, "not_offered_yet": new})).into_response())
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
