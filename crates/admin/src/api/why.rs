//! Why a source serves, or why it doesn't: until when, what caused it, what ends it, and who was sent elsewhere.

use std::time::Duration;

use axum::Json as Body;
use axum::extract::{Path, State as Held};
use axum::response::IntoResponse;
use serde::Deserialize;
use serde_json::json;
use waybill_event::LogTime;
use waybill_read_model::StoreError;

use super::Answer;
use super::interventions::find;
use super::pools::{Limits, Moved, SessionSpend, Window, by_reason, since};
use super::sources::Token;
use super::standing::{Judged, Look, Standing, attach, span};
use crate::State;
use crate::problem::Problem;
use crate::request::Query;

/// Rows of moves of one source.
const MOVES: u32 = 200;

/// What is said while nobody tells of itself.
const UNKNOWN: &str = "No replica tells of itself: none runs, or the log is out of reach (`waybill status`). What is in use isn't known now, and limits go by `request.on_outage`.";

/// Which time is looked at.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// How far back moves are counted, in seconds.
    since_s: Option<u64>,
}

pub(super) async fn show(
    Held(state): Held<State>,
    Path(named): Path<String>,
    Query(parameters): Query<Parameters>,
) -> Answer {
    let now = state.now();
    let since = since(parameters.since_s, now)?;
    let catalog = state.fold().view().catalog;
    let source = find(&catalog, &named)?;
    let unknown = || Problem::not_found(format!("there is no source {named}"));
    let entity = catalog.entity(source).ok_or_else(unknown)?;
    let live = state.live().of(source);
    let token = Token::of(&state, &entity, now);
    let in_use = state.live().in_use(now).remove(&source).unwrap_or_default();
    let look = Look {
        state: &state,
        catalog: &catalog,
        entity: &entity,
        live: live.as_ref(),
        in_use: &in_use,
        token: token.as_ref(),
        now,
    };
    let mut judged = look.judge();
    let past = past(&state, &look, &mut judged, since).await;
    let limits = Limits::of(&entity, &in_use);
    let spend = SessionSpend::of(&state, &entity, now);
    let mut says = says(entity.name(), &judged, &limits, spend.as_ref());
    let known = state.live().in_use_known(now);
    if !known {
        says.push(UNKNOWN.to_owned());
    }
    match &past {
        Ok(moved) => says.extend(moved.iter().map(|moved| went(moved, now.since(since)))),
        Err(_) => says
            .push("The read model is away: what caused it, and who was sent elsewhere, can't be told now.".to_owned()),
    }
    let headroom: Vec<Window> = in_use.headroom.iter().cloned().map(Window::from).collect();
    let shown = json!({
        "source": source.to_string(),
        "name": entity.name(),
        "serving": judged.standing == Standing::Serving,
        "standing": judged.standing,
        "returns_at": judged.returns_at,
        "says": says,
        "reasons": judged.reasons,
        "limits": limits,
        "token": token,
        "headroom": headroom,
        "sessions": in_use.sessions,
        "session_spend": spend,
        "moved": past.as_ref().ok(),
        "read": {"at": now, "moves_since": since, "read_model": past.is_ok(), "in_use_known": known},
    });
    Ok(Body(shown).into_response())
}

/// What the read model knows: causes go to the reasons, moves are given.
async fn past(state: &State, look: &Look<'_>, judged: &mut Judged, since: LogTime) -> Result<Vec<Moved>, StoreError> {
    attach(state, look.source(), &mut judged.reasons).await?;
    let moves = state.reads().moves(&[look.source()], since, MOVES).await?;
    Ok(by_reason(moves.iter()))
}

/// How it stands, in sentences.
fn says(name: &str, judged: &Judged, limits: &Limits, spend: Option<&SessionSpend>) -> Vec<String> {
    let mut says = vec![match judged.standing {
        Standing::Serving => format!("{name} serves."),
        Standing::Full => format!("{name} is full."),
        Standing::LastResort => format!("{name} is asked only when nothing better is left."),
        Standing::Probing => format!("{name} is being tried again."),
        Standing::Out => format!("{name} doesn't serve."),
    }];
    let of = |most: Option<u32>| most.filter(|most| *most > 0).map_or_else(String::new, |most| format!(" of {most}"));
    if judged.standing == Standing::Serving {
        // Without a limit attempts aren't counted.
        let rpm = limits.requests_per_minute.filter(|most| *most > 0);
        let rpm = rpm.map_or_else(String::new, |most| {
            format!(", {} of {most} attempts within the last minute", limits.rpm_used)
        });
        says.push(format!("{}{} in flight{rpm}.", limits.in_flight, of(limits.max_concurrent)));
    }
    says.extend(judged.reasons.iter().map(|reason| format!("{}.", reason.text)));
    says.extend(spend.and_then(SessionSpend::says));
    says
}

/// Who was sent elsewhere, within so long.
fn went(moved: &Moved, within: Duration) -> String {
    let requests = if moved.requests == 1 { "request" } else { "requests" };
    let last = moved.last.first().map_or_else(String::new, |id| format!(", the last one {id}"));
    let within = span(within);
    match moved.why.as_str() {
        "same_account" => {
            format!("{} {requests} of the last {within} failed and were asked here again{last}.", moved.requests)
        }
        why => format!("{} {requests} of the last {within} went elsewhere because of {why}{last}.", moved.requests),
    }
}
