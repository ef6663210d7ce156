//! A source's story: what happened to it and what was done to it, newest first.

use axum::Json as Body;
use axum::extract::{Path, State as Held};
use axum::response::IntoResponse;
use serde::Deserialize;
use serde_json::json;
use waybill_domain::history::StoryLine;
use waybill_event::config::{Account, Channel, Entity, Intervention, PolicyScope, Rules};
use waybill_event::{LogTime, Scope, Source, SourceKind};
use waybill_read_model::StoreError;
use waybill_read_model::read::ConfigHistoryQuery;

use super::Answer;
use super::interventions::find;
use super::requests::page;
use crate::State;
use crate::request::Query;

/// Which part of the story.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// What was before this time; the newest if nothing is said.
    before: Option<LogTime>,
    limit: Option<u32>,
}

pub(super) async fn show(
    Held(state): Held<State>,
    Path(named): Path<String>,
    Query(parameters): Query<Parameters>,
) -> Answer {
    let source = find(&state.fold().view().catalog, &named)?;
    let limit = page(parameters.limit)?;
    let happened = state.reads().transitions(source, parameters.before, limit).await?;
    let mut causes = state.reads().causes(source, &happened).await?;
    let mut lines: Vec<StoryLine> =
        happened.iter().map(|row| StoryLine::happened(row, causes.remove(&row.id))).collect();
    lines.extend(edits(&state, source, parameters.before, limit).await?);
    lines.sort_by_key(|line| std::cmp::Reverse(line.at));
    lines.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    let next = lines.last().filter(|_| u32::try_from(lines.len()).is_ok_and(|n| n == limit)).map(|line| line.at);
    let shown = json!({"source": source.to_string(), "lines": lines, "next_before": next});
    Ok(Body(shown).into_response())
}

/// What people did to it.
pub(super) async fn edits(
    state: &State,
    source: Source,
    before: Option<LogTime>,
    limit: u32,
) -> Result<Vec<StoryLine>, StoreError> {
    let catalog = state.fold().view().catalog;
    let models = catalog.entity(source).map(|entity| entity.models().to_vec()).unwrap_or_default();
    let models = models.iter().map(|model| Some(model.upstream_name().to_owned()));
    let by_hand = std::iter::once(None).chain(models).filter_map(|model| {
        let done = catalog.interventions.get(&Scope { source, model })?;
        Some((Intervention::ENTITY, done.subject_id()))
    });
    let scope = PolicyScope::Source { source };
    let entity = match source.kind {
        SourceKind::Channel => Channel::ENTITY,
        SourceKind::Account => Account::ENTITY,
    };
    let own = [(entity, source.id.to_string()), (Rules::ENTITY, scope.subject_id())];
    let mut lines = Vec::new();
    for (entity, id) in own.into_iter().chain(by_hand) {
        let query = ConfigHistoryQuery { entity: Some(entity.to_owned()), entity_id: Some(id), before: None, limit };
        let rows = state.reads().edits(&query).await?;
        let wanted = rows.iter().filter(|row| before.is_none_or(|before| row.at < before));
        lines.extend(wanted.map(StoryLine::edited));
    }
    Ok(lines)
}
