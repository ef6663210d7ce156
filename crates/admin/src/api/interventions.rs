//! What operators do by hand to a source: hold its breaker open, close it, lift its blocks, reset all of it, have it
//! probed.

use axum::extract::{Path, State as Held};
use http::StatusCode;
use serde::Deserialize;
use waybill_domain::catalog::{Catalog, Command, intervention};
use waybill_event::failure::Recovery;
use waybill_event::{LogTime, Scope, Source};

use super::view::Subject;
use super::{Answer, answer_edit};
use crate::State;
use crate::edit::Author;
use crate::problem::Problem;
use crate::request::{Json, because};

/// What is to be done to which part of a source.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Intervene {
    /// The upstream model; without one the whole source.
    model: Option<String>,
    /// Until when its breaker is held open; only of `open`.
    until: Option<LogTime>,
    reason: Option<String>,
}

/// A source as `channel:ID` or `account:ID`, or by its name, with or without the kind before it.
pub(super) fn find(catalog: &Catalog, text: &str) -> Result<Source, Problem> {
    let found = text.parse::<Source>().ok().or_else(|| catalog.source_named(text));
    found.ok_or_else(|| Problem::not_found(format!("there is no source {text}")))
}

/// Refuses the probe of what no probe brings back.
fn probeable(state: &State, source: Source, of_model: bool) -> Result<(), Problem> {
    if of_model {
        return Err(Problem::invalid("model", "a verdict disables whole sources: so do probes ask them"));
    }
    let conflict = |code, detail: &str| Err(Problem::new(StatusCode::CONFLICT, code, detail));
    let live = state.live().of(source);
    match live.and_then(|live| live.state.disabled.as_ref().map(|disabled| disabled.recovery)) {
        Some(Recovery::Probe) => Ok(()),
        Some(Recovery::Operator) => {
            conflict("operator_only", "it is banned: probing may make that worse; lift it when the account is back")
        }
        None => conflict("not_disabled", "no verdict disabled it; to see whether it works, test it"),
    }
}

pub(super) async fn intervene(
    Held(state): Held<State>,
    author: Author,
    Path((source, act)): Path<(String, String)>,
    Json(wanted): Json<Intervene>,
) -> Answer {
    let author = because(author, wanted.reason)?;
    let source = find(&state.fold().view().catalog, &source)?;
    if wanted.until.is_some() && act != "open" {
        return Err(Problem::invalid("until", "is for holding a breaker open only"));
    }
    if wanted.until.is_some_and(|until| until <= state.now()) {
        return Err(Problem::invalid("until", "must lie in the future"));
    }
    let act = match act.as_str() {
        "open" => intervention::Act::Open { until: wanted.until },
        "close" => intervention::Act::Close,
        "lift" => intervention::Act::Lift,
        "reset" => intervention::Act::Reset,
        "probe" => {
            probeable(&state, source, wanted.model.is_some())?;
            intervention::Act::Probe { at: state.now() }
        }
        other => {
            return Err(Problem::not_found(format!("nothing is called {other}: open, close, lift, reset or probe")));
        }
    };
    let scope = Scope { source, model: wanted.model };
    let mut command = Command::Intervention(intervention::Command { scope: scope.clone(), act });
    answer_edit(&state, &author, &mut command, StatusCode::OK, Some(Subject::Intervention(scope))).await
}
