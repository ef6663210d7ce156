//! When the fleet is at rest: everything that was written is in the log, folded, published and known everywhere.

use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::{Instant, sleep};
use waybill_domain::selector::{Checkpoint, FOLD_KEY, SourceState, value_key};
use waybill_event::{Position, Source};
use waybill_journal::outbox::Outbox;
use waybill_journal::{Bucket, Keyed as _, Log as _, Stream};
use waybill_proxy::Replica;

use super::Fleet;
use crate::projector::Projector;
use crate::proxy::Proxy;

impl Fleet {
    /// Waits until something holds. It is a violation when it never does.
    pub(super) async fn until(&self, within: Duration, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + within;
        while !holds(self) {
            if Instant::now() >= deadline {
                self.ground.violated("it never comes to an end", &format!("{what}: {}", self.standing()));
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    fn standing(&self) -> String {
        let outboxes = self.proxies.iter().filter_map(|proxy| proxy.up.as_ref()).map(|up| up.outbox.status());
        let pending: Vec<u64> = outboxes.map(|status| status.appended - status.acknowledged).collect();
        let folds: Vec<_> = self
            .projectors
            .iter()
            .filter_map(Projector::status)
            .map(|s| (s.leading, s.position, s.unwritten, s.unannounced, s.config_adopted, s.config_fed, s.trouble))
            .collect();
        let rows = self.store.with(|kept| kept.position);
        let mut own = Vec::new();
        for (name, up) in self.proxies.iter().filter_map(|proxy| Some((&proxy.name, proxy.up.as_ref()?))) {
            for (source, entry) in up.replica.views().all() {
                let view = entry.view.lock();
                own.extend(view.own_range().map(|own| (name, source.to_string(), own, view.position())));
            }
        }
        let (end, config) = (self.end(Stream::Traffic), self.end(Stream::Config));
        let checkpointed = self.checkpoint_is_at(end);
        format!(
            "end {end}, pending {pending:?}, rows {rows}, config {config}, folds {folds:?}, \
             checkpointed {checkpointed}, own {own:?}"
        )
    }

    fn end(&self, stream: Stream) -> u64 {
        let bounds = self.ground.memory.bounds(stream).now_or_never();
        bounds.expect("the store answers").expect("the store answers").last
    }

    /// Nothing is left to do for anybody.
    pub(super) fn is_at_rest(&self) -> bool {
        let drained = |outbox: &Outbox| {
            let status = outbox.status();
            status.appended == status.acknowledged && status.earlier_boots == 0
        };
        let config = self.end(Stream::Config);
        let proxy = |proxy: &Proxy| {
            proxy.up.as_ref().is_some_and(|up| {
                drained(&up.outbox) && up.replica.snapshot().position().0 == config && holds_nothing_own(&up.replica)
            })
        };
        let upkeep = self.upkeep.up.as_ref().is_some_and(|up| drained(&up.outbox));
        upkeep && self.proxies.iter().all(proxy) && self.is_folded() && self.is_known()
    }

    /// Every replica has heard of what is published. One that was cut off until now hears of it a moment later.
    fn is_known(&self) -> bool {
        self.proxies.iter().filter_map(|proxy| proxy.up.as_ref()).all(|up| {
            let snapshot = up.replica.snapshot();
            let views = up.replica.views().all();
            views.iter().filter(|(source, _)| snapshot.catalog().entity(*source).is_some()).all(|(source, entry)| {
                let published = self.published(*source);
                published.is_none_or(|published| entry.view.lock().position() >= Some(published))
            })
        })
    }

    /// Up to where a source's published value has folded.
    fn published(&self, source: Source) -> Option<Position> {
        let found = self.ground.memory.get(Bucket::Selector, &value_key(source)).now_or_never();
        let Some(Ok(Some(entry))) = found else { return None };
        serde_json::from_slice::<SourceState>(&entry.value).ok().map(|state| state.position)
    }

    /// Everything in the log is folded, written and checkpointed.
    pub(super) fn is_folded(&self) -> bool {
        let end = self.end(Stream::Traffic);
        let leading = self.projectors.iter().filter_map(Projector::status).find(|status| status.leading);
        let selector = leading.is_some_and(|status| {
            let whole = status.position == end && status.unwritten == 0 && status.unannounced == 0;
            whole && status.config_adopted == status.config_fed && status.config_fed.0 == self.end(Stream::Config)
        });
        selector && self.store.with(|kept| kept.position) == end && self.checkpoint_is_at(end)
    }

    fn checkpoint_is_at(&self, end: u64) -> bool {
        let found = self.ground.memory.get(Bucket::Selector, FOLD_KEY).now_or_never();
        let Some(Ok(Some(entry))) = found else { return false };
        let checkpoint = serde_json::from_slice::<Checkpoint>(&entry.value);
        checkpoint.is_ok_and(|checkpoint| checkpoint.position.sequence == end)
    }
}

/// Whether the shared values hold all of a replica's own events about sources that exist.
fn holds_nothing_own(replica: &Replica) -> bool {
    let snapshot = replica.snapshot();
    let exists = |source: Source| snapshot.catalog().entity(source).is_some();
    replica.views().all().iter().all(|(source, entry)| !exists(*source) || entry.view.lock().own_range().is_none())
}
