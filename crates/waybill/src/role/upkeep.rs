//! Upkeep: probes that bring disabled sources back.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use waybill_journal::outbox::{Outbox, OutboxConfig};
use waybill_journal_nats::Connection;
use waybill_upkeep::{
    Level, Pace, Parts, RefreshParts, RefreshStatus, Refresher, Retention, RetentionConfig, RetentionStatus, Rhythm,
    Upkeep,
};
use waybill_upstream::{DispatchConfig, Dispatcher};

use super::durability::{self, Durability};
use super::{Booted, Clock};
use crate::ops::{Dependency, Role};

/// Subject of this role's events.
const SUBJECT: &str = "wb.traffic.0.upkeep";
/// Longest interval between probes of one source.
const LONGEST: Duration = Duration::from_secs(3_600);
/// Time the log gets to take what is left in the outbox at a stop.
const FLUSH: Duration = Duration::from_secs(5);

struct Running {
    name: String,
    connection: Arc<Connection>,
    durability: Arc<Durability>,
    upkeep: Arc<Upkeep>,
    retention: Arc<Retention>,
    refresher: Arc<Refresher>,
    clock: Clock,
    stop: CancellationToken,
}

/// Runs the role until it is asked to stop.
///
/// # Errors
/// Its configuration can't be used, or the log can't be reached at the start.
pub async fn run(path: &Path) -> anyhow::Result<ExitCode> {
    let booted = Booted::read(path)?;
    let vault = booted.vault("upkeep")?;
    let connection = Arc::new(booted.connect().await?);
    let journal = connection.journal().clone();
    let clock = Clock::start(&booted, &journal, "upkeep");
    let config =
        OutboxConfig::new(booted.config.data_dir.join("outbox"), booted.producer.clone(), SUBJECT, clock.or_system());
    let (outbox, publisher) = Outbox::open(config, booted.boot).context("the outbox")?;
    let publishing = CancellationToken::new();
    booted.tasks.spawn(publisher.run(journal.log.clone(), publishing.clone()));
    let retention = Arc::new(Retention::new(journal.clone(), RetentionConfig::default()));
    let dispatcher = Dispatcher::new(&DispatchConfig::default())?;
    let refresher = Refresher::new(RefreshParts {
        journal: journal.clone(),
        outbox: outbox.clone(),
        clock: clock.or_system(),
        vault: vault.clone(),
        dispatcher: dispatcher.clone(),
        pace: Pace::default(),
        dice: waybill_journal::dice::system(),
        dir: booted.config.data_dir.join("refreshed"),
    });
    let refresher = Arc::new(refresher.context("the folder of refreshed tokens")?);
    let upkeep = Arc::new(Upkeep::new(Parts {
        journal,
        outbox: outbox.clone(),
        clock: clock.or_system(),
        vault,
        dispatcher,
        rhythm: Rhythm {
            first: Duration::from_millis(booted.config.upkeep.probe_interval_ms.max(100)),
            longest: LONGEST,
            ..Rhythm::default()
        },
    }));
    let durability = durability::watch(&booted, &connection)?;
    let role = Arc::new(Running {
        name: booted.config.name.clone(),
        connection: connection.clone(),
        durability,
        upkeep: upkeep.clone(),
        retention: retention.clone(),
        refresher: refresher.clone(),
        clock: clock.clone(),
        stop: booted.stop.clone(),
    });
    let ops = CancellationToken::new();
    booted.serve_ops(role.clone(), ops.clone())?;

    let (keeping, stop) = (retention.clone(), booted.stop.clone());
    booted.tasks.spawn(async move { keeping.run(stop).await });
    tokio::join!(upkeep.run(booted.stop.clone()), refresher.run(booted.stop.clone()));
    outbox.close(FLUSH).await;
    publishing.cancel();
    ops.cancel();
    clock.stop();
    booted.tasks.close();
    booted.tasks.wait().await;
    drop((role, upkeep, retention, refresher));
    if let Ok(connection) = Arc::try_unwrap(connection) {
        connection.close().await;
    }
    Ok(ExitCode::SUCCESS)
}

#[async_trait]
impl Role for Running {
    fn name(&self) -> &str {
        &self.name
    }

    async fn dependencies(&self) -> Vec<Dependency> {
        let status = self.upkeep.status();
        let clock = self.clock.now().is_some();
        let loaded = |yes: bool| if yes { "current".to_owned() } else { "loading".to_owned() };
        let fault = status.fault.as_ref().map(|(fault, _)| fault.clone());
        let blocked = status.catalog_blocked.clone();
        vec![
            super::log_dependency(self.connection.health()),
            self.durability.dependency(),
            Dependency {
                position: Some(status.catalog_position.to_string()),
                ..Dependency::new(
                    "catalogue",
                    status.catalog_current && blocked.is_none(),
                    blocked.or(fault).unwrap_or_else(|| loaded(status.catalog_current)),
                )
            },
            Dependency::new("selector_state", status.states_current, loaded(status.states_current)),
            Dependency::new("clock", clock, if clock { "set" } else { "not set yet" }),
            tokens(&self.refresher.status()),
            traffic_size(&self.retention.status()),
        ]
    }

    fn draining(&self) -> bool {
        self.stop.is_cancelled()
    }

    fn metrics(&self) -> String {
        let (status, traffic) = (self.upkeep.status(), self.retention.status());
        let tokens = self.refresher.status();
        let level = match traffic.level {
            Level::Fine => 0,
            Level::High => 1,
            Level::Urgent => 2,
        };
        let gauges = [
            ("disabled_sources", u64::try_from(status.disabled).unwrap_or(0)),
            ("checked_sources", u64::try_from(status.checked).unwrap_or(0)),
            ("checks_sent", status.checks),
            ("checks_failed", status.checks_failed),
            ("probes_under_way", u64::try_from(status.under_way).unwrap_or(0)),
            ("probes_sent", status.probes),
            ("sources_brought_back", status.brought_back),
            ("probes_unready", status.unready),
            ("probes_unrecorded", status.unrecorded),
            ("accounts", u64::try_from(tokens.accounts).unwrap_or(0)),
            ("accounts_expired", u64::try_from(tokens.expired).unwrap_or(0)),
            ("refreshes_under_way", u64::try_from(tokens.under_way).unwrap_or(0)),
            ("tokens_refreshed", tokens.refreshed),
            ("refreshes_failed", tokens.failed),
            ("refreshes_refused", tokens.refused),
            ("refreshes_unrecorded", tokens.unrecorded),
            ("traffic_bytes", traffic.bytes),
            ("traffic_max_bytes", traffic.max_bytes),
            ("traffic_alarm", level),
            ("traffic_held_up", u64::from(traffic.held_up.is_some())),
            ("traffic_purged_messages", traffic.purged),
        ];
        super::render_gauges("waybill_upkeep", &gauges)
    }
}

/// How accounts' tokens stand. An OAuth server that is away doesn't make the role unready.
fn tokens(status: &RefreshStatus) -> Dependency {
    let state = match (status.current, status.accounts, status.expired) {
        (false, ..) => "loading".to_owned(),
        (true, accounts, 0) => format!("{accounts} accounts to refresh"),
        (true, accounts, expired) => format!("{accounts} accounts to refresh, {expired} of them expired"),
    };
    Dependency::new("tokens", status.current, state)
}

/// How full the traffic stream is. Probes go on with a full one, so that it doesn't make the role unready.
fn traffic_size(status: &RetentionStatus) -> Dependency {
    let percent = status.bytes.saturating_mul(100).checked_div(status.max_bytes).unwrap_or(0);
    let state = match (status.level, &status.held_up) {
        (Level::Fine, _) => format!("{percent} % full"),
        (Level::High | Level::Urgent, None) => format!("{percent} % full: the oldest traffic is purged"),
        (Level::High | Level::Urgent, Some(why)) => format!("{percent} % full: {why}"),
    };
    let position = status.passed.map(|passed| passed.to_string());
    Dependency { position, ..Dependency::new("traffic_size", true, state) }
}
