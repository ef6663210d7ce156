//! One account of a pool.

use std::time::Duration;

use serde::Serialize;
use waybill_domain::catalog::{Catalog, SourceEntity};
use waybill_event::{GroupId, LogTime, NanoUsd, Source, UsageWindow};
use waybill_read_model::read::{Ended, Move};

use super::{Moved, Past, by_reason};
use crate::State;
use crate::api::sources::Token;
use crate::api::standing::{Look, Reason, Standing, span};
use crate::live::InUse;

/// How much of its limits is in use. 0 is no limit, and so is none.
#[derive(Debug, Clone, Serialize)]
pub(in crate::api) struct Limits {
    /// Requests in flight over the fleet.
    pub(in crate::api) in_flight: u32,
    /// Slots that replicas hold, those kept for a next request included.
    pub(in crate::api) slots: u32,
    pub(in crate::api) max_concurrent: Option<u32>,
    /// Replicas with requests that wait for a slot.
    pub(in crate::api) waiting: u32,
    /// Attempts of the last minute that count.
    pub(in crate::api) rpm_used: u32,
    pub(in crate::api) requests_per_minute: Option<u32>,
    /// When the first of them counts no more.
    pub(in crate::api) rpm_frees_at: Option<LogTime>,
}

impl Limits {
    pub(in crate::api) fn of(entity: &SourceEntity, used: &InUse) -> Self {
        let limits = entity.limits();
        Self {
            in_flight: used.in_flight,
            slots: used.slots,
            max_concurrent: limits.max_concurrent,
            waiting: used.waiting,
            rpm_used: used.rate_used,
            requests_per_minute: limits.requests_per_minute,
            rpm_frees_at: used.rate_frees_at,
        }
    }
}

/// A usage window, as its upstream told of it.
#[derive(Debug, Clone, Serialize)]
pub(in crate::api) struct Window {
    name: String,
    used_percent: Option<f64>,
    resets_at: Option<LogTime>,
    minutes: Option<u32>,
    exhausted: bool,
    seen_at: LogTime,
}

impl From<UsageWindow> for Window {
    fn from(window: UsageWindow) -> Self {
        let UsageWindow { name, used_permille, resets_at, minutes, exhausted, seen_at } = window;
        let used_percent = used_permille.map(|used| f64::from(used) / 10.0);
        Self { name, used_percent, resets_at, minutes, exhausted, seen_at }
    }
}

/// What its sessions have spent within its window.
#[derive(Debug, Clone, Serialize)]
pub(in crate::api) struct SessionSpend {
    /// Within this many seconds.
    window_s: u32,
    /// What each may spend, in dollars.
    limit_usd: f64,
    /// The one that has spent the most.
    most_usd: f64,
    /// All together.
    total_usd: f64,
    /// Sessions that have spent anything.
    sessions: u32,
    /// Sessions that have spent all they may: the account is passed over for them until enough of it has left the window.
    used_up: u32,
}

impl SessionSpend {
    /// Nothing where the account has no such window.
    pub(in crate::api) fn of(state: &State, entity: &SourceEntity, now: LogTime) -> Option<Self> {
        let SourceEntity::Account(account) = entity else { return None };
        let window = account.session_window?;
        let spent = state.live().spent(entity.source(), Duration::from_secs(window.seconds.into()), window.limit, now);
        Some(Self {
            window_s: window.seconds,
            limit_usd: dollars(window.limit),
            most_usd: dollars(spent.most),
            total_usd: dollars(spent.total),
            sessions: spent.sessions,
            used_up: spent.used_up,
        })
    }
}

impl SessionSpend {
    /// In a sentence, where any session has spent all it may.
    pub(in crate::api) fn says(&self) -> Option<String> {
        let Self { window_s, limit_usd, sessions, used_up, .. } = self;
        let are = if *used_up == 1 { "has" } else { "have" };
        let within = span(Duration::from_secs((*window_s).into()));
        (*used_up > 0).then(|| {
            format!(
                "{used_up} of {sessions} sessions {are} spent the {limit_usd} USD that each may spend within {within}: it is passed over for them until enough of that is older."
            )
        })
    }
}

/// For people: what is decided is decided in nano-dollars.
#[expect(clippy::cast_precision_loss, reason = "fifteen digits are shown truly")]
fn dollars(amount: NanoUsd) -> f64 {
    amount.0 as f64 / 1e9
}

#[derive(Serialize)]
pub(super) struct Shown<'a> {
    source: String,
    name: &'a str,
    provider: &'a str,
    enabled: bool,
    groups: Vec<&'a str>,
    priority: i32,
    weight: u32,
    pub(super) standing: Standing,
    returns_at: Option<LogTime>,
    #[serde(flatten)]
    pub(super) limits: Limits,
    token: Option<Token>,
    /// Conversations that are bound to it.
    pub(super) sessions: u32,
    /// Absent where sessions may spend what they like.
    session_spend: Option<SessionSpend>,
    headroom: Vec<Window>,
    /// Outcomes of the last while, as the selector counts them; absent where nothing is known.
    counts: Option<Counted>,
    /// The last attempts, newest first; absent while the read model is away.
    last: Option<Vec<Ended>>,
    /// Requests that it didn't serve, by reason; absent while the read model is away.
    moved: Option<Vec<Moved>>,
    pub(super) reasons: Vec<Reason>,
    #[serde(skip)]
    pub(super) of: Source,
    #[serde(skip)]
    pub(super) group_ids: &'a [GroupId],
}

#[derive(Serialize)]
struct Counted {
    ok: u32,
    fail: u32,
    busy: u32,
}

impl<'a> Shown<'a> {
    pub(super) fn of(
        state: &State,
        catalog: &'a Catalog,
        entity: &'a SourceEntity,
        used: InUse,
        past: Option<&Past>,
        now: LogTime,
    ) -> Self {
        let source = entity.source();
        let live = state.live().of(source);
        let token = Token::of(state, entity, now);
        let look = Look { state, catalog, entity, live: live.as_ref(), in_use: &used, token: token.as_ref(), now };
        let judged = look.judge();
        let counts = live.map(|live| {
            let totals = live.state.whole.window.totals(now);
            Counted { ok: totals.ok, fail: totals.fail, busy: totals.busy }
        });
        let here = |moved: &&Move| moved.source == source;
        Self {
            source: source.to_string(),
            name: entity.name(),
            provider: entity.provider(),
            enabled: entity.enabled(),
            groups: entity.groups().iter().filter_map(|id| Some(catalog.groups.get(id)?.name.as_str())).collect(),
            priority: entity.priority(),
            weight: entity.weight(),
            standing: judged.standing,
            returns_at: judged.returns_at,
            limits: Limits::of(entity, &used),
            token,
            sessions: used.sessions,
            session_spend: SessionSpend::of(state, entity, now),
            headroom: used.headroom.into_iter().map(Window::from).collect(),
            counts,
            last: past.map(|past| past.ended.get(&source).cloned().unwrap_or_default()),
            moved: past.map(|past| by_reason(past.moves.iter().filter(here))),
            reasons: judged.reasons,
            of: source,
            group_ids: entity.groups(),
        }
    }
}
