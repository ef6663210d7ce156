//! A proxy replica: it serves clients, and drains when it is asked to stop.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use waybill_domain::selector::breaker::Phase;
use waybill_domain::selector::{SourceState, state::ScopeState};
use waybill_event::LogTime;
use waybill_event::failure::Strength;
use waybill_journal::outbox::{Outbox, OutboxConfig};
use waybill_journal::permits::{self, Permits};
use waybill_journal::presence::Report;
use waybill_journal::spending::Spending;
use waybill_journal::sticky::Bindings;
use waybill_journal_nats::Connection;
use waybill_proxy::gates::Gates;
use waybill_proxy::metrics::Readings;
use waybill_proxy::probes::Probes;
use waybill_proxy::replica::Known;
use waybill_proxy::tokens::Tokens;
use waybill_proxy::{Front, Limits, OutboxFull, Parts, Replica, follow};
use waybill_upstream::{DispatchConfig, Dispatcher};

use super::durability::{self, Durability};
use super::{BACKLOG, Booted, Clock, claim, system_time};
use crate::ops::{Dependency, Role};
use crate::serve::{Drained, serve_with};

/// Subject of this role's events.
const SUBJECT: &str = "wb.traffic.0.proxy";
/// Time the log gets to take what is left in the outbox at a stop.
const FLUSH: Duration = Duration::from_secs(10);
/// How often a replica that is starting looks whether it can serve.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// The exit code of a stop that left something behind.
const LEFT_BEHIND: u8 = 3;

struct Proxy {
    name: String,
    connection: Arc<Connection>,
    durability: Arc<Durability>,
    replica: Arc<Replica>,
    clock: Clock,
    outbox_full: OutboxFull,
    /// Whether clients' connections are taken.
    listening: AtomicBool,
}

/// Runs the role until it is asked to stop, and drains.
///
/// # Errors
/// Its configuration can't be used, the log can't be reached at the start, or an address is taken.
pub async fn run(path: &Path) -> anyhow::Result<ExitCode> {
    let booted = Booted::read(path)?;
    let (vault, peppers) = (booted.vault("proxy")?, booted.peppers("proxy")?);
    let listen = booted.config.proxy.listen;
    let socket = claim(listen)?;
    let connection = Arc::new(booted.connect().await?);
    let journal = connection.journal().clone();
    let clock = Clock::start(&booted, &journal, "proxy");
    let boot = booted.boot;
    let config = OutboxConfig {
        max_bytes: booted.config.proxy.outbox_max_bytes,
        ..OutboxConfig::new(booted.config.data_dir.join("outbox"), booted.producer.clone(), SUBJECT, clock.or_system())
    };
    let (outbox, publisher) = Outbox::open(config, boot).context("the outbox")?;
    let publishing = CancellationToken::new();
    booted.tasks.spawn(publisher.run(journal.log.clone(), publishing.clone()));
    let following = CancellationToken::new();
    let probes = Probes::start(&journal, &booted.producer, boot, &booted.tasks, &following);
    let tokens = Tokens::new(&journal, booted.producer.clone(), booted.tasks.clone());
    let presence = clock.presence();
    let permits = Permits::start(
        journal.keyed.clone(),
        &booted.producer,
        boot,
        Arc::new(move || presence.others().count.saturating_add(1)),
        &booted.tasks,
        &following,
        permits::Settings {
            ttl: Duration::from_millis(booted.config.proxy.slot_life_ms),
            ..permits::Settings::default()
        },
    );
    let spending = Spending::start(journal.keyed.clone(), boot, &booted.tasks, &following);
    let bindings = Bindings::start(journal.keyed.clone(), &booted.tasks, &following);
    let replica = Replica::new(Parts {
        outbox: outbox.clone(),
        clock: clock.reader(),
        vault,
        peppers,
        dispatcher: Dispatcher::new(&DispatchConfig::default())?,
        probes,
        tokens,
        gates: Gates::new(permits, spending, booted.tasks.clone()),
        bindings,
        recording: booted.config.proxy.recording(),
        limits: Limits { max_body_bytes: booted.config.proxy.max_body_bytes, ..Limits::default() },
        dice: waybill_journal::dice::system(),
    });
    let reporting = replica.clone();
    clock.report(move || Report {
        in_flight: reporting.metrics().in_flight(),
        busy: reporting.views().busy(),
        headroom: reporting.headroom(),
        config: reporting.snapshot().position(),
        outbox_bytes: reporting.outbox().status().bytes,
        ..Report::default()
    });
    for follower in [Follower::Catalog, Follower::Credentials, Follower::Selector, Follower::Others, Follower::Unread] {
        let (replica, journal, stop) = (replica.clone(), journal.clone(), following.clone());
        let presence = clock.presence();
        booted.tasks.spawn(async move {
            match follower {
                Follower::Catalog => follow::catalog(replica, journal, stop).await,
                Follower::Credentials => follow::credentials(replica, journal, stop).await,
                Follower::Selector => follow::selector(replica, journal, stop).await,
                Follower::Others => follow::others(replica, presence, stop).await,
                Follower::Unread => follow::unread(replica, stop).await,
            }
        });
    }
    let durability = durability::watch(&booted, &connection)?;
    let role = Arc::new(Proxy {
        name: booted.config.name.clone(),
        connection: connection.clone(),
        durability,
        replica: replica.clone(),
        clock: clock.clone(),
        outbox_full: booted.config.proxy.outbox_full,
        listening: AtomicBool::new(false),
    });
    let ops = CancellationToken::new();
    booted.serve_ops(role.clone(), ops.clone())?;

    let accepting = CancellationToken::new();
    let grace = Duration::from_millis(booted.config.proxy.grace_ms);
    // Until it can serve, connections are refused: whoever balances sends such a request elsewhere, since nothing was sent.
    let mut serving = None;
    if booted.stop.run_until_cancelled(until_serving(&replica)).await.is_some() {
        let listener = socket.listen(BACKLOG).with_context(|| format!("can't listen on {listen}"))?;
        let (front, stop, end) = (Front::new(replica.clone()), accepting.clone(), replica.stopping().clone());
        serving = Some(booted.tasks.spawn(async move { serve_with(listener, front, stop, grace, &end).await }));
        role.listening.store(true, Ordering::Release);
        tracing::info!(%listen, %boot, "serving");
    }

    booted.stop.cancelled().await;
    tracing::info!("draining");
    replica.drain();
    tokio::time::sleep(Duration::from_millis(booted.config.proxy.drain_delay_ms)).await;
    accepting.cancel();
    let drained = match serving {
        Some(serving) => serving.await.context("the listener's task")?,
        None => Drained::Clean,
    };
    let closed = outbox.close(FLUSH).await;
    tracing::info!(?drained, flushed = closed.drained, left = closed.unacknowledged, "drained");
    for token in [following, publishing, ops] {
        token.cancel();
    }
    clock.stop();
    booted.tasks.close();
    booted.tasks.wait().await;
    drop((role, replica));
    if let Ok(connection) = Arc::try_unwrap(connection) {
        connection.close().await;
    }
    let clean = drained == Drained::Clean && closed.drained;
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::from(LEFT_BEHIND) })
}

async fn until_serving(replica: &Replica) {
    while replica.serving_since_now().is_none() {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

enum Follower {
    Catalog,
    Credentials,
    Selector,
    Others,
    Unread,
}

#[async_trait]
impl Role for Proxy {
    fn name(&self) -> &str {
        &self.name
    }

    async fn dependencies(&self) -> Vec<Dependency> {
        let known = self.replica.known();
        let snapshot = self.replica.snapshot();
        let loaded = |yes: bool| if yes { "current" } else { "loading" };
        let catalog = Known::has(&known.catalog);
        let blocked = snapshot.blocked_by().map(|edit| format!("stopped: {edit}"));
        let credentials = Known::has(&known.credentials);
        let selector = Known::has(&known.selector);
        let outbox = self.replica.outbox().status();
        let room = outbox.bytes < outbox.max_bytes;
        let counting = self.outbox_full == OutboxFull::Count;
        let outbox_state = match (room, counting) {
            (true, _) => "open",
            (false, false) => "full",
            (false, true) => "full: requests go unrecorded",
        };
        let clock = self.clock.now();
        let listening = self.listening.load(Ordering::Acquire);
        vec![
            // Away, the log doesn't keep a replica from serving what it knows.
            Dependency { ready: true, ..super::log_dependency(self.connection.health()) },
            self.durability.dependency(),
            Dependency {
                position: Some(snapshot.position().to_string()),
                ..Dependency::new("catalogue", catalog, blocked.unwrap_or_else(|| loaded(catalog).to_owned()))
            },
            Dependency::new("credentials", credentials, loaded(credentials)),
            Dependency::new("selector_state", selector, loaded(selector)),
            Dependency::new("clock", clock.is_some(), if clock.is_some() { "set" } else { "not set yet" }),
            Dependency::new("listener", listening, if listening { "open" } else { "not open yet" }),
            Dependency {
                lag_ms: Some(age_ms(outbox.oldest_unacknowledged_at)),
                behind: Some(outbox.appended.saturating_sub(outbox.acknowledged)),
                ..Dependency::new("outbox", room || counting, outbox_state)
            },
        ]
    }

    fn draining(&self) -> bool {
        self.replica.is_draining()
    }

    fn metrics(&self) -> String {
        let outbox = self.replica.outbox().status();
        if let Some(now) = self.clock.now() {
            self.replica.metrics().look(self.replica.views(), now);
        }
        self.replica.metrics().render(Readings {
            outbox_bytes: outbox.bytes,
            outbox_pending: outbox.appended.saturating_sub(outbox.acknowledged),
            outbox_age_ms: age_ms(outbox.oldest_unacknowledged_at),
            outbox_stalls: outbox.write_stalls,
            config_position: self.replica.snapshot().position().0,
            permits: self.replica.gates().permits().counts(),
            sticky: self.replica.bindings().counts(),
        })
    }

    /// What this replica goes by now: the configuration's position and its view of every source.
    fn state(&self) -> Value {
        let now = self.clock.now().unwrap_or_default();
        let sources: Vec<Value> = self
            .replica
            .views()
            .all()
            .into_iter()
            .map(|(source, entry)| {
                let (in_flight, elsewhere) = (entry.in_flight(), entry.elsewhere());
                let view = entry.view.lock();
                let mut shown = shown(view.state(), now);
                shown.extend([
                    ("source".to_owned(), source.to_string().into()),
                    ("shared".to_owned(), view.is_shared().into()),
                    ("position".to_owned(), view.position().map(|p| p.to_string()).into()),
                    ("in_flight".to_owned(), in_flight.into()),
                    ("in_flight_elsewhere".to_owned(), elsewhere.into()),
                ]);
                Value::Object(shown)
            })
            .collect();
        json!({
            "config": self.replica.snapshot().position(),
            "boot": self.replica.outbox().boot().to_string(),
            "replicas": self.replica.replicas(),
            "in_flight": self.replica.metrics().in_flight(),
            "sources": sources,
        })
    }
}

fn shown(state: &SourceState, now: LogTime) -> Map<String, Value> {
    let mut shown = shown_scope(&state.whole, now);
    let models = state.models.iter().map(|(name, held)| (name.clone(), Value::Object(shown_scope(held, now))));
    shown.insert("models".to_owned(), Value::Object(models.collect()));
    shown.insert("disabled".to_owned(), state.disabled.is_some().into());
    shown
}

fn shown_scope(scope: &ScopeState, now: LogTime) -> Map<String, Value> {
    let totals = scope.window.totals(now);
    let breaker = match scope.breaker.phase(now) {
        Phase::Closed => "closed",
        Phase::Open(_) => "open",
        Phase::HalfOpen(_) => "half_open",
    };
    let strengths = [Strength::Soft, Strength::Hint, Strength::Hard];
    let blocks = strengths.into_iter().filter_map(|strength| Some((strength, scope.blocks.active(strength, now)?)));
    let blocks = blocks.map(|(strength, block)| {
        json!({ "strength": strength, "kind": block.kind.as_str(), "since": block.since, "until": block.until })
    });
    Map::from_iter([
        ("blocks".to_owned(), blocks.collect()),
        ("breaker".to_owned(), breaker.into()),
        ("ok".to_owned(), totals.ok.into()),
        ("fail".to_owned(), totals.fail.into()),
        ("busy".to_owned(), totals.busy.into()),
    ])
}

fn age_ms(oldest: Option<LogTime>) -> u64 {
    let age = oldest.map_or(Duration::ZERO, |at| system_time().since(at));
    u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
}
