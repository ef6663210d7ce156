//! Pools: each account with how much of it is in use, how it stands and who went elsewhere because of what; and the sums
//! of each group.

mod account;
mod moved;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use axum::Json as Body;
use axum::extract::State as Held;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use serde_json::json;
use waybill_domain::catalog::{Catalog, SourceEntity};
use waybill_event::{GroupId, LogTime, Source, SourceKind};
use waybill_read_model::StoreError;
use waybill_read_model::read::{Ended, Move};

use super::Answer;
use super::standing::{Standing, attach};
use crate::State;
use crate::problem::Problem;
use crate::request::Query;

use self::account::Shown;
pub(super) use self::account::{Limits, SessionSpend, Window};
pub(super) use self::moved::{Moved, by_reason};

/// How far back moves are counted, when nothing is said.
const SINCE_S: u64 = 900;
/// Farthest.
const SINCE_MAX_S: u64 = 86_400;
/// How far back last attempts are looked for.
const ENDED_SINCE: Duration = Duration::from_hours(24);
/// Last attempts that are shown of each account.
const LAST: u32 = 50;
/// Rows of moves: sources times reasons times groups.
const MOVES: u32 = 1_000;
/// Accounts whose causes are looked up, of those that are out.
const EVIDENT: usize = 50;

/// Which time is looked at.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// How far back moves are counted, in seconds.
    since_s: Option<u64>,
}

/// Since when moves are counted.
pub(super) fn since(wanted: Option<u64>, now: LogTime) -> Result<LogTime, Problem> {
    match wanted.unwrap_or(SINCE_S) {
        seconds @ 1..=SINCE_MAX_S => Ok(now - Duration::from_secs(seconds)),
        _ => Err(Problem::invalid("since_s", format!("since_s must be between 1 and {SINCE_MAX_S}"))),
    }
}

/// What the read model knows; nothing of it while it is away.
#[derive(Default)]
struct Past {
    moves: Vec<Move>,
    ended: BTreeMap<Source, Vec<Ended>>,
}

impl Past {
    async fn read(state: &State, accounts: &[Source], since: LogTime) -> Result<Self, StoreError> {
        let moves = state.reads().moves(accounts, since, MOVES).await?;
        let ended = state.reads().ended(accounts, state.now() - ENDED_SINCE, LAST).await?;
        Ok(Self { moves, ended })
    }
}

/// The accounts of a group, together.
#[derive(Serialize)]
struct Pool<'a> {
    group: &'a str,
    id: GroupId,
    enabled: bool,
    accounts: usize,
    /// How many of them stand how.
    standing: BTreeMap<&'static str, usize>,
    in_flight: u32,
    /// Together; absent where one has no limit.
    max_concurrent: Option<u32>,
    rpm_used: u32,
    /// Together; absent where one has no limit.
    requests_per_minute: Option<u32>,
    sessions: u32,
    /// Requests of the group that an account didn't serve, by reason; absent while the read model is away.
    moved: Option<Vec<Moved>>,
    /// What the moves suggest; absent where there is nothing to suggest.
    advice: Option<&'static str>,
}

pub(super) async fn show(Held(state): Held<State>, Query(parameters): Query<Parameters>) -> Answer {
    let now = state.now();
    let since = since(parameters.since_s, now)?;
    let catalog = state.fold().view().catalog;
    let of_accounts = |entity: &SourceEntity| entity.source().kind == SourceKind::Account;
    let entities: Vec<SourceEntity> = catalog.entities().filter(of_accounts).collect();
    let sources: Vec<Source> = entities.iter().map(SourceEntity::source).collect();
    let past = Past::read(&state, &sources, since).await;
    let in_use = state.live().in_use(now);
    let mut accounts: Vec<Shown<'_>> = Vec::with_capacity(entities.len());
    let mut looked_up = 0;
    for entity in &entities {
        let used = in_use.get(&entity.source()).cloned().unwrap_or_default();
        let mut shown = Shown::of(&state, &catalog, entity, used, past.as_ref().ok(), now);
        if past.is_ok() && !shown.reasons.is_empty() && looked_up < EVIDENT {
            looked_up += 1;
            // What can't be looked up now is left out: the rest is worth telling.
            if let Err(error) = attach(&state, entity.source(), &mut shown.reasons).await {
                tracing::debug!(%error, "causes can't be looked up");
            }
        }
        accounts.push(shown);
    }
    let groups: BTreeSet<GroupId> = entities.iter().flat_map(|entity| entity.groups().iter().copied()).collect();
    let pools: Vec<Pool<'_>> =
        groups.into_iter().filter_map(|id| pool(&catalog, id, &accounts, past.as_ref().ok())).collect();
    let watch = state.live().watch();
    let read = json!({
        "at": now,
        "moves_since": since,
        "read_model": past.is_ok(),
        "in_use_known": state.live().in_use_known(now),
        "selector_current": watch.current,
        "selector_fault": watch.fault,
    });
    Ok(Body(json!({"accounts": accounts, "pools": pools, "read": read})).into_response())
}

fn pool<'a>(catalog: &'a Catalog, id: GroupId, accounts: &[Shown<'_>], past: Option<&Past>) -> Option<Pool<'a>> {
    let group = catalog.groups.get(&id)?;
    let of_it: Vec<&Shown<'_>> = accounts.iter().filter(|shown| shown.group_ids.contains(&id)).collect();
    let mut standing = BTreeMap::new();
    for shown in &of_it {
        let word = match shown.standing {
            Standing::Serving => "serving",
            Standing::Full => "full",
            Standing::LastResort => "last_resort",
            Standing::Probing => "probing",
            Standing::Out => "out",
        };
        *standing.entry(word).or_default() += 1;
    }
    let sum = |number: fn(&Shown<'_>) -> u32| of_it.iter().map(|shown| number(shown)).sum();
    let limit = |number: fn(&Shown<'_>) -> Option<u32>| {
        of_it.iter().map(|shown| number(shown).filter(|limit| *limit > 0)).sum::<Option<u32>>()
    };
    let here = |moved: &&Move| moved.group == Some(id) && of_it.iter().any(|shown| shown.of == moved.source);
    let moved = past.map(|past| by_reason(past.moves.iter().filter(here)));
    let advice = moved.as_deref().and_then(moved::advice);
    Some(Pool {
        group: &group.name,
        id,
        enabled: group.enabled,
        accounts: of_it.len(),
        standing,
        in_flight: sum(|shown| shown.limits.in_flight),
        max_concurrent: limit(|shown| shown.limits.max_concurrent),
        rpm_used: sum(|shown| shown.limits.rpm_used),
        requests_per_minute: limit(|shown| shown.limits.requests_per_minute),
        sessions: sum(|shown| shown.sessions),
        moved,
        advice,
    })
}
