//! Folding anew: the tables, the selector's values and every replica's view are what a fold from nothing gives, with every
//! event applied once.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tokio::time::Instant;
use waybill_domain::history::Placed;
use waybill_domain::selector::breaker::Phase;
use waybill_domain::selector::evidence::Evidence;
use waybill_domain::selector::fleet::FleetState;
use waybill_domain::selector::{Place, SourceState, value_key};
use waybill_event::{ConfigPosition, LogTime, Position};
use waybill_journal::Bucket;
use waybill_projector::read_models::verify;
use waybill_read_model::Projection;

use super::logged::News;
use super::{Case, Ground};

/// A value may be ten seconds older than the first event that it lacks.
const WRITTEN: Duration = Duration::from_secs(25);
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// The selector's fold, over the log as it was read.
#[derive(Debug, Default)]
pub struct Refold {
    fleet: FleetState,
    /// Events that came too late to be evidence.
    pub late: u64,
    /// Transitions of breakers, blocks and disablings.
    pub transitions: Vec<(Position, String)>,
}

impl Refold {
    fn advance(&mut self, news: &News, violations: &mut Vec<String>) {
        for (position, edit) in &news.edits {
            if let Err(error) = self.fleet.feed_config(edit, ConfigPosition(*position)) {
                violations.push(format!("edit {position}: {error}"));
            }
        }
        for placed in &news.events {
            self.late += u64::from(self.is_late(placed));
            match self.fleet.apply(&placed.event, placed.position, placed.stored_at) {
                Ok(effects) => {
                    if effects.duplicate || effects.anomaly.is_some() {
                        violations.push(format!("{}: {effects:?}", placed.position));
                    }
                    let transitions = effects.transitions.iter();
                    self.transitions.extend(transitions.map(|one| (placed.position, format!("{one:?}"))));
                }
                Err(needed) => violations.push(format!("{}: {needed:?} is missing", placed.position)),
            }
        }
    }

    fn is_late(&self, placed: &Placed) -> bool {
        Evidence::of(&placed.event).is_some_and(|evidence| {
            let state = self.fleet.source(evidence.source);
            let after = state.map_or(u64::MAX, |state| state.policy.late_after_ms);
            evidence.is_late(Place::stored(placed.position, placed.stored_at), Duration::from_millis(after))
        })
    }

    /// States of the sources.
    pub fn sources(&self) -> impl Iterator<Item = &SourceState> {
        self.fleet.sources()
    }
}

/// Reads the rest of the log, and folds it.
pub async fn advance(ground: &mut Ground, case: &mut Case) {
    let news = ground.read_on().await;
    ground.refold.advance(&news, &mut case.violations);
    case.violations.append(&mut ground.log.violations);
}

/// Compares everything that was folded by the fleet, which rests, with a fold from nothing.
pub async fn check(ground: &mut Ground, case: &mut Case) {
    advance(ground, case).await;
    let (events, again) = (ground.log.events, ground.log.repeated);
    case.notes
        .push(format!("{events} events in the log so far, {again} of them a second time; ordinals without a gap"));
    tables(ground, case).await;
    let end = Instant::now() + WRITTEN;
    loop {
        let mut different = values(ground).await;
        different.extend(views(ground).await);
        if different.is_empty() {
            let sources = ground.refold.sources().count();
            case.notes.push(format!("{sources} sources' values and views: none differs"));
            return;
        }
        if Instant::now() >= end {
            case.violations.extend(different);
            return;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
        advance(ground, case).await;
    }
}

/// The tables, row by row.
async fn tables(ground: &Ground, case: &mut Case) {
    let connection = ground.bench.fleet.log("operator").await;
    let tables = ground.bench.fleet.tables();
    let mut same = 0;
    for projection in [Projection::Traffic, Projection::Config] {
        let found = loop {
            let before = position(&tables, projection).await;
            let found = verify(connection.journal().log.as_ref(), &tables, projection, before).await;
            // A row that was written meanwhile isn't a difference.
            if position(&tables, projection).await == before {
                break found;
            }
        };
        match found {
            Ok(found) => {
                same += found.same;
                if found.different > 0 {
                    let first = found.first.map(|first| first.to_string()).unwrap_or_default();
                    case.violations.push(format!("{projection}: {} rows differ: {first}", found.different));
                }
            }
            Err(error) => case.violations.push(format!("{projection} can't be folded anew: {error}")),
        }
    }
    tables.close().await;
    connection.close().await;
    case.notes.push(format!("{same} rows: none differs"));
}

async fn position(tables: &waybill_read_model::ReadModel, projection: Projection) -> u64 {
    let all = tables.projections().await.unwrap_or_default();
    all.into_iter().find(|held| held.projection == projection.as_str()).map_or(0, |held| held.position)
}

/// A state without what tells when, and by whom, it was written.
fn bare(state: &SourceState) -> SourceState {
    SourceState {
        rev: 0,
        config: ConfigPosition::default(),
        position: Position::default(),
        marks: Vec::new(),
        epoch: 0,
        unannounced: Vec::new(),
        ..state.clone()
    }
}

/// The selector's values.
async fn values(ground: &Ground) -> Vec<String> {
    let connection = ground.bench.fleet.log("operator").await;
    let keyed = &connection.journal().keyed;
    let mut different = Vec::new();
    for expected in ground.refold.sources() {
        let held = keyed.get(Bucket::Selector, &value_key(expected.source)).await;
        let held = held.ok().flatten().and_then(|entry| serde_json::from_slice::<SourceState>(&entry.value).ok());
        if held.as_ref().map(bare) != Some(bare(expected)) {
            different.push(format!("the value of {}: {held:?}, should be {expected:?}", expected.source));
        }
    }
    connection.close().await;
    different
}

/// Every replica's view of every source, as it tells it.
async fn views(ground: &Ground) -> Vec<String> {
    let mut different = Vec::new();
    for proxy in 1..=ground.bench.fleet.proxies().len() {
        let proxy = format!("proxy-{proxy}");
        for expected in ground.refold.sources() {
            let shown = ground.bench.fleet.source_state(&proxy, &expected.source.to_string()).await;
            let wanted = shown_as(expected);
            let held: Vec<Value> = FIELDS.iter().map(|field| shown.get(field).cloned().unwrap_or_default()).collect();
            if held != wanted {
                different.push(format!("{proxy}'s view of {}: {held:?}, should be {wanted:?}", expected.source));
            }
        }
    }
    different
}

const FIELDS: [&str; 5] = ["breaker", "ok", "fail", "busy", "disabled"];

fn shown_as(state: &SourceState) -> Vec<Value> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = LogTime::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX));
    let totals = state.whole.window.totals(now);
    let breaker = match state.whole.breaker.phase(now) {
        Phase::Closed => "closed",
        Phase::Open(_) => "open",
        Phase::HalfOpen(_) => "half_open",
    };
    vec![breaker.into(), totals.ok.into(), totals.fail.into(), totals.busy.into(), state.disabled.is_some().into()]
}
