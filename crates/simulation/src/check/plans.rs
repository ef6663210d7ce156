//! Plans: every attempt was drawn from a table that its replica had recorded before, for a target of the route that the
//! request's name stood for, within the numbers that were in force.

use std::collections::{BTreeMap, BTreeSet};

use waybill_domain::catalog::Snapshot;
use waybill_domain::history::Placed;
use waybill_event::config::{OnAllUnavailable, RequestPolicy};
use waybill_event::selection::{Chosen, SkipReason, TableHash};
use waybill_event::traffic::{AttemptStarted, RequestAdmitted, SelectionTable};
use waybill_event::{Body, Boot, ProducerId, RequestId, Source};

use super::log::Log;
use super::tables::tables;
use crate::ground::Ground;

/// A request under way.
struct Walk<'a> {
    admitted: &'a RequestAdmitted,
    catalog: &'a Snapshot,
    policy: RequestPolicy,
    /// The targets that its name stood for.
    models: Vec<String>,
    /// The target asked last.
    target: Option<u32>,
    asked: BTreeSet<(Source, String)>,
}

type Recorded<'a> = BTreeMap<(ProducerId, Boot, TableHash), &'a SelectionTable>;

/// Checks all attempts.
pub fn check(ground: &Ground, log: &Log) {
    let recorded = tables(log).filter_map(|(placed, table)| {
        let mark = placed.event.identity.mark()?;
        Some(((mark.producer.clone(), mark.boot, table.hash), table))
    });
    let recorded: Recorded<'_> = recorded.collect();
    let mut walks: BTreeMap<RequestId, Walk<'_>> = BTreeMap::new();
    for placed in &log.events {
        let draft = &placed.event.draft;
        let Some((id, _)) = draft.request else { continue };
        match &draft.body {
            Body::RequestAdmitted(admitted) => {
                let config = draft.config.and_then(|config| usize::try_from(config.0).ok());
                let Some(catalog) = config.and_then(|config| log.catalogs.get(config)) else {
                    ground.violated("a request names no configuration", &id.to_string());
                    continue;
                };
                walks.insert(id, Walk::of(admitted, catalog));
                if of(&recorded, placed, admitted.table).is_none() {
                    ground.violated("a plan's table isn't recorded", &placed.event.identity.to_string());
                }
            }
            Body::AttemptStarted(attempt) => {
                let (Some(walk), Some(source)) = (walks.get_mut(&id), draft.source) else { continue };
                let table = of(&recorded, placed, attempt.table.or(walk.admitted.table));
                if let Some(wrong) = walk.begin(attempt, source.source, table) {
                    let text = format!("{}: {wrong}: {attempt:?} {table:?}", placed.event.identity);
                    ground.violated("an attempt isn't one that its plan allows", &text);
                }
            }
            _ => {}
        }
    }
}

/// A table that the same life of the same replica has recorded.
fn of<'a>(recorded: &Recorded<'a>, placed: &Placed, hash: Option<TableHash>) -> Option<&'a SelectionTable> {
    let mark = placed.event.identity.mark()?;
    recorded.get(&(mark.producer.clone(), mark.boot, hash?)).copied()
}

impl<'a> Walk<'a> {
    fn of(admitted: &'a RequestAdmitted, catalog: &'a Snapshot) -> Self {
        let policy = catalog.catalog().request_policy(admitted.group, admitted.route, Some(admitted.key));
        let resolved = catalog.resolve(admitted.group, &admitted.client_model);
        let models = resolved.targets.iter().map(|target| target.model.to_string()).collect();
        Self { admitted, catalog, policy, models, target: None, asked: BTreeSet::new() }
    }

    /// What is wrong with an attempt.
    fn begin(&mut self, attempt: &AttemptStarted, source: Source, table: Option<&SelectionTable>) -> Option<String> {
        let Some(table) = table else { return Some("its table isn't recorded".to_owned()) };
        let target = usize::try_from(attempt.target).ok().and_then(|at| self.models.get(at));
        if target != Some(&attempt.model) || table.model != attempt.model {
            return Some(format!("its model isn't a target's: {:?}", self.models));
        }
        let first = self.target.is_none();
        if self
            .target
            .is_some_and(|before| attempt.target < before || (attempt.target > before && !self.policy.degrade))
        {
            return Some(format!("from target {:?}", self.target));
        }
        self.target = Some(attempt.target);
        let again = !self.asked.insert((source, attempt.upstream_model.clone()));
        if again != (attempt.why == Chosen::SameSource) {
            return Some("a source is asked twice for a model, and not as the same one".to_owned());
        }
        if self.asked.len() > usize::try_from(self.policy.max_walk).unwrap_or(usize::MAX) {
            return Some("the walk is too long".to_owned());
        }
        let least_bad =
            self.policy.on_all_unavailable == OnAllUnavailable::LeastBad || self.policy.max_ejected_percent < 100;
        if attempt.why == Chosen::LeastBad && !least_bad {
            return Some("its breaker is open, and no policy asks it all the same".to_owned());
        }
        let Some(row) = table.candidates.iter().find(|candidate| candidate.source == source) else {
            return Some("its source isn't in the table".to_owned());
        };
        let fits = match (row.skip, attempt.why) {
            // What came between the plan and a later attempt is the calls' check.
            (_, _) if !first => true,
            // What was softly blocked after the plan is a last resort at its turn, or when its slot has come.
            (None, Chosen::LastResort) => true,
            (None, why) => matches!(why, Chosen::First | Chosen::FailOver | Chosen::NextTarget | Chosen::RoomFreed),
            // Another one's probe may have closed the breaker while its permit was asked for, and a soft block be left.
            (Some(SkipReason::Probing), why) => matches!(why, Chosen::Probe | Chosen::LastResort),
            (Some(SkipReason::SoftBlocked), why) => why == Chosen::LastResort,
            (Some(SkipReason::HintBlocked | SkipReason::HardBlocked), why) => {
                // Who waited for a limit's end may be full then, and softly blocked when that or its slot has come. That no
                // limit held any more is the calls' check.
                matches!(why, Chosen::LimitEnded | Chosen::LimitRetried | Chosen::RoomFreed | Chosen::LastResort)
            }
            (Some(SkipReason::SourceBreakerOpen | SkipReason::ModelBreakerOpen), why) => {
                matches!(why, Chosen::LeastBad | Chosen::LastResort)
            }
            (Some(_), _) => false,
        };
        if !fits {
            return Some(format!("its source was {:?}", row.skip));
        }
        // A target that was planned after the admission, say because a limit was waited for, goes by the catalogue of then.
        let planned_then = first && attempt.table.is_none();
        let offered = self.catalog.index().model(self.admitted.group, &attempt.model);
        if planned_then && offered.and_then(|abilities| abilities.of(source)).is_none() {
            return Some("its source doesn't offer the model".to_owned());
        }
        None
    }
}
