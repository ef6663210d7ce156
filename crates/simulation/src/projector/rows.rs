//! The traffic fold over rows in memory: a store that keeps rows and checkpoint together under an epoch, as Postgres does,
//! and the small loop that reads, folds and commits. Gathering, deduplication and folding are the product's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use waybill_domain::dedup::Dedup;
use waybill_domain::history::{Placed, RequestState, TrafficRows};
use waybill_domain::loss::{Owner, declaration, declaration_id};
use waybill_event::control::LossReason;
use waybill_event::{Body, ProducerId, RequestId};
use waybill_journal::outbox::Clock;
use waybill_journal::{Expect, Journal, Record, Start, Stream};
use waybill_projector::read_models::{Counts, Gathered};
use waybill_read_model::Projection;

use crate::bug::Bug;
use crate::chance::Chance;
use crate::ground::Ground;

/// Before the losses that the log didn't take are declared again.
const DECLARE_AGAIN: Duration = Duration::from_millis(200);

/// What stands in the store.
#[derive(Debug, Default)]
pub struct Kept {
    /// The epoch of whoever took over last.
    pub epoch: u64,
    /// Sequence of the last message folded.
    pub position: u64,
    /// The rows.
    pub rows: TrafficRows,
    /// How often each event was folded.
    pub folded: BTreeMap<String, u32>,
    dedup: Dedup,
}

/// The store of the rows.
#[derive(Default)]
pub struct Store {
    held: Mutex<Kept>,
}

/// Somebody else folds under a higher epoch.
struct Fenced;

impl Store {
    /// Looks at what stands there.
    pub fn with<T>(&self, look: impl FnOnce(&Kept) -> T) -> T {
        look(&self.held.lock())
    }

    fn take_over(&self, ground: &Ground) -> (u64, u64, Dedup) {
        let mut held = self.held.lock();
        held.epoch += 1;
        let dedup = if ground.has(Bug::OrdinalNotStored) { Dedup::default() } else { held.dedup.clone() };
        (held.epoch, held.position, dedup)
    }

    /// Rows and checkpoint together, or nothing.
    fn commit(&self, ground: &Ground, epoch: u64, batch: &Gathered, dedup: &Dedup) -> Result<(), Fenced> {
        let mut held = self.held.lock();
        if epoch != held.epoch && !ground.has(Bug::EpochUnchecked) {
            return Err(Fenced);
        }
        if epoch < held.epoch {
            ground.violated("a deposed leader's write landed", &format!("rows up to {} under {epoch}", batch.last));
        }
        for placed in &batch.events {
            held.rows.apply(placed);
            *held.folded.entry(placed.event.identity.to_string()).or_default() += 1;
        }
        held.position = batch.last;
        held.dedup = dedup.clone();
        ground.trace.note(format_args!("rows up to {} under epoch {epoch}", held.position));
        Ok(())
    }

    fn open_requests(&self) -> Vec<(RequestId, Owner)> {
        let held = self.held.lock();
        let open = held.rows.requests.values().filter(|row| row.state == RequestState::Open);
        let owned =
            open.filter_map(|row| Some((row.request_id, Owner { replica: row.replica.clone()?, boot: row.boot? })));
        owned.collect()
    }
}

/// What folds traffic in one process.
pub struct Folder {
    /// What it stands on.
    pub ground: Arc<Ground>,
    /// The store.
    pub store: Arc<Store>,
    /// The log.
    pub journal: Journal,
    /// Who declares losses.
    pub producer: ProducerId,
    /// The time of the log.
    pub clock: Clock,
    /// How long the store takes.
    pub chance: Mutex<Chance>,
    /// Whether this process is the one that folds.
    pub folding: Arc<AtomicBool>,
}

impl Folder {
    /// Folds until the lease is lost, somebody else has taken over, or the process stops.
    pub async fn fold(&self, lost: &CancellationToken, stop: &CancellationToken) {
        self.folding.store(true, Ordering::Relaxed);
        tokio::select! {
            biased;
            () = lost.cancelled() => {}
            () = stop.cancelled() => {}
            () = self.fold_on() => {}
        }
        self.folding.store(false, Ordering::Relaxed);
    }

    async fn fold_on(&self) {
        let (epoch, mut position, mut dedup) = self.store.take_over(&self.ground);
        let mut declared = BTreeSet::new();
        let mut undeclared = true;
        let mut following = self.journal.log.follow(Stream::Traffic, Start::At(position + 1));
        loop {
            undeclared = undeclared && !self.declare_lost(&dedup, &mut declared).await;
            let told = if undeclared {
                let Ok(told) = timeout(DECLARE_AGAIN, following.next()).await else { continue };
                told
            } else {
                following.next().await
            };
            let Some(told) = told else { return };
            let Ok(message) = told else { continue };
            let mut batch = Gathered::default();
            batch.add(Projection::Traffic, &message);
            if !batch.unreadable.is_empty() {
                self.ground.violated("a message can't be read", &format!("{} of traffic", message.sequence));
            }
            let mut counts = Counts::default();
            batch.drop_known(&mut dedup, false, &mut counts);
            let takes = self.chance.lock().about(Duration::from_millis(2));
            sleep(takes).await;
            if self.store.commit(&self.ground, epoch, &batch, &dedup).is_err() {
                return;
            }
            // Who was stopped while somebody else led may find purged what it hadn't folded; it writes nothing of that.
            if counts.missing_events > 0 || counts.too_far > 0 {
                self.ground.violated("events of a drained boot never came", &format!("{counts:?} at {}", batch.last));
            }
            debug_assert!(batch.last > position, "messages come in order");
            position = batch.last;
            undeclared |= batch.events.iter().any(|placed| matches!(placed.event.draft.body, Body::OutboxDrained(_)));
        }
    }

    /// Declares the open requests of boots that have ended. Says whether the log has taken it all.
    async fn declare_lost(&self, dedup: &Dedup, declared: &mut BTreeSet<RequestId>) -> bool {
        for (request, owner) in self.store.open_requests() {
            if !dedup.is_retired(&owner.replica, owner.boot) || declared.contains(&request) {
                continue;
            }
            let event = declaration(request, &owner, LossReason::Drained, (self.clock)(), self.producer.clone());
            let payload = Bytes::from([b"[".as_slice(), &event.encode().unwrap(), b"]"].concat());
            let (subject, message_id) = ("wb.traffic.0.control".to_owned(), Some(declaration_id(request)));
            let record = Record { subject, message_id, payload };
            if self.journal.log.append(Stream::Traffic, record, Expect::Anything).await.is_err() {
                return false;
            }
            declared.insert(request);
        }
        true
    }
}

/// The rows of these events, folded from nothing.
#[must_use]
pub fn refold<'a>(events: impl IntoIterator<Item = &'a Placed>) -> TrafficRows {
    let mut rows = TrafficRows::default();
    for placed in events {
        rows.apply(placed);
    }
    rows
}
