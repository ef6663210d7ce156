//! The projector: three folds of the log, each led by one process of the fleet.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use secrecy::ExposeSecret;
use tokio_util::sync::CancellationToken;
use waybill_journal::presence::Report;
use waybill_journal_nats::Connection;
use waybill_projector::read_models::{LossConfig, ReadModels};
use waybill_projector::selector::{self, Pace, Runner};
use waybill_read_model::{Deadlines, Projection, ReadModel};

use super::durability::{self, Durability};
use super::{Booted, Clock, lead};
use crate::ops::{Dependency, Role};

/// Connections to Postgres: one a projection and one to spare.
const CONNECTIONS: u32 = 3;

struct Projector {
    name: String,
    connection: Arc<Connection>,
    durability: Arc<Durability>,
    selector: Arc<Runner>,
    read_models: Arc<ReadModels>,
    clock: waybill_journal::outbox::Clock,
    stop: CancellationToken,
}

/// How a fold stands, as all of them tell it.
struct Standing {
    fold: &'static str,
    leading: bool,
    position: u64,
    lag_ms: u64,
    behind_messages: u64,
    behind_events: u64,
    events: u64,
}

impl Projector {
    fn folds(&self) -> [Standing; 3] {
        let now = (self.clock)();
        let selector = self.selector.status();
        let read_model = |projection: Projection| {
            let status = self.read_models.status(projection);
            Standing {
                fold: projection.as_str(),
                leading: status.leading,
                position: status.position,
                lag_ms: millis(status.lag(now)),
                behind_messages: status.lag_messages(),
                behind_events: status.lag_events(),
                events: status.counts.events,
            }
        };
        let selector = Standing {
            fold: "selector",
            leading: selector.leading,
            position: selector.position,
            lag_ms: millis(selector.lag(now)),
            behind_messages: selector.lag_messages(),
            behind_events: selector.lag_events(),
            events: selector.counts.events,
        };
        [selector, read_model(Projection::Config), read_model(Projection::Traffic)]
    }
}

/// Runs the role until it is asked to stop.
///
/// # Errors
/// Its configuration can't be used, or the log can't be reached at the start.
pub async fn run(path: &Path) -> anyhow::Result<ExitCode> {
    let booted = Booted::read(path)?;
    let store =
        ReadModel::connect(booted.postgres_url("projector")?.expose_secret(), CONNECTIONS, Deadlines::default())?;
    let connection = Arc::new(booted.connect().await?);
    let journal = connection.journal().clone();
    let clock = Clock::start(&booted, &journal, "projector");
    let losses = LossConfig::new(booted.producer.clone(), clock.or_system());
    let config = selector::Config {
        producer: booted.producer.clone(),
        boot: booted.boot,
        clock: clock.or_system(),
        pace: Pace::default(),
    };
    let durability = durability::watch(&booted, &connection)?;
    let role = Arc::new(Projector {
        name: booted.config.name.clone(),
        selector: Arc::new(Runner::new(journal.clone(), config)),
        read_models: Arc::new(
            ReadModels::new(journal.clone(), store.clone(), losses).keeping(booted.config.projector.traffic_days),
        ),
        connection: connection.clone(),
        durability,
        clock: clock.or_system(),
        stop: booted.stop.clone(),
    });
    let (read_models, selector) = (role.read_models.clone(), role.selector.clone());
    clock.report(move || {
        let (traffic, selector) = (read_models.status(Projection::Traffic), selector.status());
        Report {
            traffic_folded: traffic.leading.then_some(traffic.position),
            selector_folded: selector.leading.then_some(selector.position),
            ..Report::default()
        }
    });
    let ops = CancellationToken::new();
    booted.serve_ops(role.clone(), ops.clone())?;

    let runner = role.selector.clone();
    lead(&booted, &journal, "selector", move |lost, stop| {
        let runner = runner.clone();
        async move { runner.fold(lost.cancelled(), &stop).await }
    });
    for projection in [Projection::Config, Projection::Traffic] {
        let read_models = role.read_models.clone();
        lead(&booted, &journal, projection.as_str(), move |lost, stop| {
            let read_models = read_models.clone();
            async move {
                tokio::select! {
                    () = read_models.fold(projection, lost.cancelled()) => {}
                    () = stop.cancelled() => {}
                }
            }
        });
    }
    booted.stop.cancelled().await;
    tracing::info!("stopping");
    ops.cancel();
    clock.stop();
    booted.tasks.close();
    booted.tasks.wait().await;
    store.close().await;
    if let Ok(connection) = Arc::try_unwrap(connection) {
        connection.close().await;
    }
    Ok(ExitCode::SUCCESS)
}

#[async_trait]
impl Role for Projector {
    fn name(&self) -> &str {
        &self.name
    }

    async fn dependencies(&self) -> Vec<Dependency> {
        let mut all = vec![super::log_dependency(self.connection.health()), self.durability.dependency()];
        let (selector, now) = (self.selector.status(), (self.clock)());
        all.push(Dependency {
            lag_ms: Some(millis(selector.lag(now))),
            behind: Some(selector.lag_messages()),
            position: Some(selector.position.to_string()),
            ..Dependency::new("selector", true, led(selector.leading, selector.trouble.as_deref()))
        });
        for (projection, name) in
            [(Projection::Config, "read_model_config"), (Projection::Traffic, "read_model_traffic")]
        {
            let status = self.read_models.status(projection);
            // Without Postgres the selector still folds: the role serves with it away, and says so.
            all.push(Dependency {
                lag_ms: Some(millis(status.lag(now))),
                behind: Some(status.lag_messages()),
                position: Some(status.position.to_string()),
                ..Dependency::new(name, status.stopped_by.is_none(), led(status.leading, status.trouble.as_deref()))
            });
        }
        all
    }

    fn draining(&self) -> bool {
        self.stop.is_cancelled()
    }

    fn metrics(&self) -> String {
        let mut registry = Registry::with_prefix("waybill");
        let families = [
            ("fold_leading", "Whether this process leads the fold"),
            ("fold_position", "Sequence of the last message folded"),
            ("fold_lag_milliseconds", "How long the oldest message that isn't folded has waited"),
            ("fold_behind_messages", "Messages not folded yet"),
            ("fold_behind_events", "About how many events these hold"),
        ]
        .map(|(name, help)| {
            let family = Family::<OfFold, Gauge>::default();
            registry.register(name, help, family.clone());
            family
        });
        let events = Family::<OfFold, Counter>::default();
        registry.register("fold_events", "Events folded by this process", events.clone());
        for fold in self.folds() {
            let labels = OfFold { fold: fold.fold.to_owned() };
            let leading = u64::from(fold.leading);
            let values = [leading, fold.position, fold.lag_ms, fold.behind_messages, fold.behind_events];
            for (family, value) in families.iter().zip(values) {
                family.get_or_create(&labels).set(i64::try_from(value).unwrap_or(i64::MAX));
            }
            events.get_or_create(&labels).inc_by(fold.events);
        }
        let transitions = Family::<OfTransition, Counter>::default();
        let help = "Transitions of breakers, blocks and disablings that this process has announced";
        registry.register("transitions", help, transitions.clone());
        for ((event_type, of), count) in self.selector.status().transitions {
            let labels = OfTransition { to: event_type.to_owned(), of: of.to_owned() };
            transitions.get_or_create(&labels).inc_by(count);
        }
        let counts = self.read_models.status(Projection::Traffic).counts;
        for (name, help, count) in [
            ("requests_declared_lost", "Requests whose owners this process declared lost", counts.declared_lost),
            ("traffic_days_dropped", "Days of traffic that this process dropped for their age", counts.dropped_days),
        ] {
            let gauge = Gauge::<i64>::default();
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
            registry.register(name, help, gauge);
        }
        super::render(&registry)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfTransition {
    to: String,
    of: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfFold {
    fold: String,
}

fn led(leading: bool, trouble: Option<&str>) -> String {
    match (leading, trouble) {
        (_, Some(trouble)) => trouble.to_owned(),
        (true, None) => "leading".to_owned(),
        (false, None) => "standing by".to_owned(),
    }
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
