//! Sources with their live state: what configuration says, what the selector's fold knows, and what that means now.

use axum::Json as Body;
use axum::extract::State as Held;
use axum::response::IntoResponse;
use serde::Serialize;
use serde_json::json;
use waybill_domain::catalog::{Catalog, SourceEntity};
use waybill_domain::selector::breaker::Phase;
use waybill_domain::selector::eligibility::{CatalogFacts, Eligibility, eligibility, unknown};
use waybill_domain::selector::factors::Load;
use waybill_domain::selector::state::{Disabled, ScopeState};
use waybill_domain::selector::window::Counts;
use waybill_event::config::Limits;
use waybill_event::failure::Strength;
use waybill_event::selection::SkipReason;
use waybill_event::traffic::Factors;
use waybill_event::{ConfigPosition, FailureKind, LogTime, Position};

use super::Answer;
use crate::State;
use crate::live::LiveSource;

#[derive(Serialize)]
struct Shown<'a> {
    source: String,
    name: &'a str,
    provider: &'a str,
    base_url: &'a str,
    enabled: bool,
    has_credential: bool,
    /// Of an account: what may be known of the tokens it goes by now.
    token: Option<Token>,
    groups: Vec<&'a str>,
    priority: i32,
    weight: u32,
    limits: Limits,
    version: u64,
    /// `active`, `disabled` (by an operator or a verdict) or `probing`.
    state: &'static str,
    /// How probes of a disabled source stand; absent where none has been sent.
    probe: Option<Probe>,
    /// Whether at least one of its models may be asked now.
    available: bool,
    models: Vec<Model<'a>>,
    /// What the selector's fold knows; absent where it knows nothing yet.
    live: Option<Known>,
}

/// What may be known of an account's tokens.
#[derive(Clone, Serialize)]
pub(super) struct Token {
    revision: u64,
    issued_at: LogTime,
    /// Absent where it has no known end.
    pub(super) expires_at: Option<LogTime>,
    pub(super) expired: bool,
    /// Whether upkeep can get the next one.
    pub(super) refreshable: bool,
    scopes: Vec<String>,
    fingerprint: String,
}

impl Token {
    pub(super) fn of(state: &State, entity: &SourceEntity, now: LogTime) -> Option<Self> {
        let SourceEntity::Account(account) = entity else { return None };
        let (revision, shown) = state.credentials().shown(account.id.get(), account.credential.as_ref()?)?;
        let time = |millis: i64| LogTime::from_micros(millis.saturating_mul(1_000));
        let expires_at = shown.expires_ms.map(time);
        Some(Self {
            revision,
            issued_at: time(shown.issued_ms),
            expires_at,
            expired: expires_at.is_some_and(|expires_at| expires_at <= now),
            refreshable: shown.refreshable,
            scopes: shown.scopes.clone(),
            fingerprint: shown.fingerprint.to_string(),
        })
    }
}

#[derive(Serialize)]
struct Model<'a> {
    model: &'a str,
    upstream_model: &'a str,
    /// Why it can't be asked now; absent where it can.
    skip: Option<SkipReason>,
    /// When what keeps it out ends by itself.
    returns_at: Option<LogTime>,
    factors: Factors,
    /// What is known of the model at this source.
    scope: Option<Scope>,
}

/// Probes of a source that a verdict disabled.
#[derive(Serialize)]
struct Probe {
    /// Probes so far, the one under way included.
    tries: u32,
    under_way: bool,
    /// When the next one is due; while one is under way, when it is given up.
    next_at: LogTime,
    /// What the last one showed.
    last: Option<FailureKind>,
}

#[derive(Serialize)]
struct Known {
    position: Position,
    config: ConfigPosition,
    /// The newest evidence's time.
    clock: LogTime,
    stored_at: LogTime,
    /// Time since the value was written, in milliseconds.
    age_ms: u64,
    disabled: Option<Disabled>,
    scope: Scope,
}

#[derive(Serialize)]
struct Scope {
    breaker: &'static str,
    opening: Option<String>,
    open_until: Option<LogTime>,
    ok: u32,
    fail: u32,
    busy: u32,
    p95_ms: Option<u32>,
    blocks: Vec<Block>,
}

#[derive(Serialize)]
struct Block {
    strength: Strength,
    kind: FailureKind,
    since: LogTime,
    until: LogTime,
}

fn scope(state: &ScopeState, now: LogTime) -> Scope {
    let (breaker, opening) = match state.breaker.phase(now) {
        Phase::Closed => ("closed", None),
        Phase::Open(opening) => ("open", Some(opening)),
        Phase::HalfOpen(opening) => ("half_open", Some(opening)),
    };
    let Counts { ok, fail, busy } = state.window.totals(now);
    let block = |strength| {
        let block = state.blocks.active(strength, now)?;
        Some(Block { strength, kind: block.kind, since: block.since, until: block.until })
    };
    Scope {
        breaker,
        opening: opening.map(|opening| opening.id.to_string()),
        open_until: opening.map(|opening| opening.open_until),
        ok,
        fail,
        busy,
        p95_ms: state.latencies.p95(),
        blocks: [Strength::Hard, Strength::Hint, Strength::Soft].into_iter().filter_map(block).collect(),
    }
}

pub(super) fn facts(catalog: &Catalog, entity: &SourceEntity, upstream_model: &str) -> CatalogFacts {
    CatalogFacts {
        enabled: entity.enabled(),
        has_credential: entity.credential().is_some(),
        revisions: entity.revisions(),
        by_hand: catalog.by_hand(entity.source(), upstream_model),
    }
}

fn models<'a>(catalog: &Catalog, entity: &'a SourceEntity, live: Option<&LiveSource>, now: LogTime) -> Vec<Model<'a>> {
    let load = Load { in_flight: 0, max_concurrent: entity.limits().max_concurrent };
    let shown = |model: &'a waybill_event::config::ChannelModel| {
        let upstream = model.upstream_name();
        let judged: Eligibility = match live {
            Some(live) => eligibility(&live.state, facts(catalog, entity, upstream), upstream, load, now),
            None => unknown(facts(catalog, entity, upstream), load, now),
        };
        let known = live.and_then(|live| live.state.models.get(upstream));
        Model {
            model: &model.name,
            upstream_model: upstream,
            skip: judged.skip,
            returns_at: judged.returns_at,
            factors: judged.factors,
            scope: known.map(|state| scope(state, now)),
        }
    };
    entity.models().iter().map(shown).collect()
}

pub(super) async fn list(Held(state): Held<State>) -> Answer {
    let now = state.now();
    let catalog = state.fold().view().catalog;
    let entities: Vec<SourceEntity> = catalog.entities().collect();
    let mut sources = Vec::with_capacity(entities.len());
    for entity in &entities {
        let live = state.live().of(entity.source());
        let models = models(&catalog, entity, live.as_ref(), now);
        let disabled = live.as_ref().and_then(|live| live.state.disabled.as_ref());
        let hold = disabled.and_then(|disabled| state.live().probes(entity.source(), &disabled.id));
        let probe = hold.map(|hold| Probe {
            tries: hold.tries,
            under_way: hold.under_way && hold.until > now,
            next_at: hold.until,
            last: hold.last,
        });
        let standing = match &probe {
            Some(probe) if probe.under_way => "probing",
            _ if disabled.is_some() || !entity.enabled() => "disabled",
            _ => "active",
        };
        let known = live.map(|live| Known {
            position: live.state.position,
            config: live.state.config,
            clock: live.state.clock,
            stored_at: live.stored_at,
            age_ms: u64::try_from(now.since(live.stored_at).as_millis()).unwrap_or(u64::MAX),
            disabled: live.state.disabled.clone(),
            scope: scope(&live.state.whole, now),
        });
        sources.push(Shown {
            source: entity.source().to_string(),
            name: entity.name(),
            provider: entity.provider(),
            base_url: entity.base_url(),
            enabled: entity.enabled(),
            has_credential: entity.credential().is_some(),
            token: Token::of(&state, entity, now),
            groups: entity.groups().iter().filter_map(|id| Some(catalog.groups.get(id)?.name.as_str())).collect(),
            priority: entity.priority(),
            weight: entity.weight(),
            limits: entity.limits(),
            version: entity.version(),
            state: standing,
            probe,
            available: models.iter().any(|model| model.skip.is_none()),
            models,
            live: known,
        });
    }
    let watch = state.live().watch();
    let read = json!({
        "config_position": catalog.position,
        "selector_position": watch.position,
        "selector_current": watch.current,
        "selector_fault": watch.fault,
        "at": now,
    });
    Ok(Body(json!({"sources": sources, "read": read})).into_response())
}
