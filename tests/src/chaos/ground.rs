//! A fleet under load, and how its rest is waited for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use sqlx::postgres::{PgPool, PgPoolOptions};
use waybill_read_model::Projection;
use waybill_testkit::upstream::Call;
use waybill_testkit::{Asked, FleetOptions, Front, Load, Stream, until, wait_until};

use super::logged::Logged;
use super::refold::Refold;
use super::{Scale, mix};
use crate::Bench;

/// How long anything may take to be itself again. A machine that is busy with other things needs minutes until a node has
/// read its store.
pub(super) const RECOVERED: Duration = Duration::from_secs(240);
/// How long a fleet may take until it rests: an owner that is killed again and again is declared lost last.
const REST: Duration = Duration::from_secs(300);
/// Time open requests get at a stop.
const GRACE: Duration = Duration::from_secs(20);

/// A fleet, what stands in front of it, and what its log was seen to hold.
pub struct Ground {
    /// The fleet and its upstream.
    pub bench: Bench,
    /// What clients talk to.
    pub front: Arc<Front>,
    /// How large the runs are.
    pub scale: Scale,
    pub(super) log: Logged,
    pub(super) refold: Refold,
    /// Names of sources by their ids.
    names: BTreeMap<String, String>,
}

impl Ground {
    /// Three proxies, two projectors, upkeep, admin, Postgres, and a log of so many nodes.
    pub async fn start(nats_nodes: u16, scale: Scale, drain_delay: Duration) -> Self {
        let options = FleetOptions { projectors: 2, nats_nodes, drain_delay, grace: GRACE, ..FleetOptions::default() };
        let bench = Bench::start(options).await;
        mix::configure(&bench).await;
        let sources = bench.admin().get("/sources").await;
        let sources = sources.get("sources").and_then(Value::as_array).cloned().unwrap_or_default();
        let text = |source: &Value, field: &str| Some(source.get(field)?.as_str()?.to_owned());
        let names = sources.iter().filter_map(|source| Some((text(source, "source")?, text(source, "name")?)));
        let names = names.collect();
        let front = Arc::new(Front::of(&bench.fleet));
        Self { front, scale, log: Logged::default(), refold: Refold::default(), names, bench }
    }

    /// The name of a source, e.g. of `channel:1`.
    pub(super) fn name_of(&self, source: &str) -> String {
        self.names.get(source).cloned().unwrap_or_else(|| source.to_owned())
    }

    /// Requests of a case, from now on.
    pub(super) fn load(&self, mix: impl Fn(usize) -> Asked + Send + 'static) -> Load {
        Load::start(Arc::clone(&self.front), &self.bench.key, self.scale.rate, mix)
    }

    /// The database, asked beside the product.
    ///
    /// # Panics
    /// When it can't be reached.
    pub(super) async fn tables(&self) -> PgPool {
        match PgPoolOptions::new().max_connections(1).connect(&self.bench.fleet.postgres_url()).await {
            Ok(pool) => pool,
            Err(error) => panic!("the tables: {error}"),
        }
    }

    /// The chat calls that have ended since they were last taken.
    pub(super) fn calls(&self) -> Vec<Call> {
        let chats = |call: &Call| call.path.ends_with("/chat/completions");
        self.bench.upstream.take_calls().into_iter().filter(chats).collect()
    }

    /// Waits until nothing is under way any more: outboxes are empty, the tables hold all of the log, and every request
    /// has an end.
    pub(super) async fn rest(&self) {
        let fleet = &self.bench.fleet;
        self.all_ready().await;
        let (tables, connection) = (fleet.tables(), fleet.log("operator").await);
        wait_until(REST, "the fleet rests", async || {
            for number in 1..=fleet.proxies().len() {
                let behind = self.outbox_behind(&format!("proxy-{number}")).await;
                until(behind == Some(0), || format!("the outbox of proxy-{number} is behind: {behind:?}"))?;
            }
            let end = connection.journal().log.bounds(Stream::Traffic).await.map_err(|error| error.to_string())?.last;
            let positions = tables.projections().await.map_err(|error| error.to_string())?;
            let held = positions.iter().find(|held| held.projection == Projection::Traffic.as_str());
            let held = held.map_or(0, |held| held.position);
            until(held == end, || format!("the tables are at {held} of {end}"))?;
            let owners = tables.owners_of_open_requests(10).await.map_err(|error| error.to_string())?;
            until(owners.is_empty(), || format!("requests are open, of {owners:?}"))
        })
        .await;
        tables.close().await;
        connection.close().await;
    }

    /// Waits until every role is ready.
    pub(super) async fn all_ready(&self) {
        let fleet = &self.bench.fleet;
        for process in fleet.processes().into_iter().filter(|process| process.ops_url.is_some()) {
            wait_until(RECOVERED, format_args!("{} is ready", process.name), async || {
                let readiness = fleet.readiness(&process.name).await;
                until(matches!(readiness, Some((200, _))), || format!("{readiness:?}"))
            })
            .await;
        }
    }

    async fn outbox_behind(&self, proxy: &str) -> Option<u64> {
        let (_, readiness) = self.bench.fleet.readiness(proxy).await?;
        let all = readiness.get("dependencies")?.as_array()?.clone();
        all.into_iter().find(|one| one.get("name").is_some_and(|name| name == "outbox"))?.get("behind")?.as_u64()
    }
}
