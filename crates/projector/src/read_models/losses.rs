//! Requests whose owners are lost: the leader of the traffic fold declares them, since its rows tell what is open and whose.
//!
//! A declaration is an event like any other, and is folded when it comes back. It has an id of its request's, so that it
//! doesn't matter how often it is declared, or by whom.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use waybill_domain::loss::{ABSENCE, Absences, Owner, Sign, declaration, declaration_id};
use waybill_event::control::LossReason;
use waybill_event::{ProducerId, RequestId};
use waybill_journal::outbox::Clock;
use waybill_journal::presence::Beat;
use waybill_journal::{AppendError, Bucket, Expect, Journal, Record, Stream, Watched};
use waybill_read_model::{Checkpoint, ReadModel, StoreError};

/// Where declarations go.
const SUBJECT: &str = "wb.traffic.0.control";
/// Owners looked at in one go.
const OWNERS: u32 = 1_000;
/// Requests declared in one go: the fold waits for them.
const AT_ONCE: u32 = 256;
/// Declarations under way at a time.
const UNDER_WAY: usize = 32;
/// Before what failed is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// How lost owners are found and declared.
#[derive(Clone)]
pub struct LossConfig {
    /// Who declares.
    pub producer: ProducerId,
    /// The time of the log, for the declarations.
    pub clock: Clock,
    /// How long a boot may show no sign of life.
    pub absence: Duration,
    /// How often silent boots are looked for.
    pub look_every: Duration,
}

impl LossConfig {
    /// Silent boots are given up after 15 minutes, and looked for every 30 s.
    #[must_use]
    pub const fn new(producer: ProducerId, clock: Clock) -> Self {
        Self { producer, clock, absence: ABSENCE, look_every: Duration::from_secs(30) }
    }
}

/// Who beats, as far as is known.
#[derive(Debug, Default)]
struct Picture {
    /// Whether everything that was there has been told.
    current: bool,
    present: BTreeMap<String, Owner>,
}

/// The boots that beat.
#[derive(Debug, Default)]
pub(super) struct Beating {
    picture: Mutex<Picture>,
}

impl Beating {
    /// Keeps the picture for as long as it is polled.
    pub(super) async fn watch(&self, journal: &Journal) -> Infallible {
        loop {
            let mut watching = journal.keyed.watch(Bucket::Presence);
            while let Some(told) = watching.next().await {
                match told {
                    Ok(Watched::Put(entry)) => {
                        if let Ok(beat) = serde_json::from_slice::<Beat>(&entry.value) {
                            let owner = Owner { replica: beat.replica, boot: beat.boot };
                            self.picture.lock().present.insert(entry.key, owner);
                        }
                    }
                    Ok(Watched::Gone { key, .. }) => {
                        self.picture.lock().present.remove(&key);
                    }
                    Ok(Watched::Current) => self.picture.lock().current = true,
                    // It goes on by itself; who isn't told to be gone counts as there meanwhile.
                    Err(error) => tracing::debug!(%error, "presence can't be watched just now"),
                }
            }
            *self.picture.lock() = Picture::default();
            sleep(AGAIN).await;
        }
    }

    /// All boots that beat; `None` while that isn't known.
    fn now(&self) -> Option<BTreeSet<Owner>> {
        let picture = self.picture.lock();
        picture.current.then(|| picture.present.values().cloned().collect())
    }
}

/// What one leader does about lost owners.
pub(super) struct Losses<'a> {
    config: &'a LossConfig,
    beating: &'a Beating,
    absences: Absences,
    began: Instant,
    /// When to look next; at once when an outbox was drained.
    next: Instant,
    /// Position of the last declaration: until it is folded, its request still looks open.
    declared: u64,
}

/// Where the fold stands when losses are looked for.
pub(super) struct Standing<'a> {
    pub(super) checkpoint: &'a Checkpoint,
    /// Whether everything in the log is folded, as far as is known.
    pub(super) at_end: bool,
}

/// Why looking for losses failed. It is done again.
#[derive(Debug, thiserror::Error)]
pub(super) enum LossError {
    #[error("open requests can't be asked for")]
    Store(#[from] StoreError),
    #[error("a lost request can't be declared")]
    Log(#[from] AppendError),
    #[error("a declaration can't be encoded")]
    Encode(#[from] serde_json::Error),
}

impl<'a> Losses<'a> {
    /// A new leader looks at once: the one before may have folded that an outbox was drained, and ended.
    pub(super) fn new(config: &'a LossConfig, beating: &'a Beating) -> Self {
        let now = Instant::now();
        Self { config, beating, absences: Absences::new(config.absence), began: now, next: now, declared: 0 }
    }

    /// An outbox was drained: its boot says nothing more.
    pub(super) fn drained(&mut self) {
        self.next = Instant::now();
    }

    /// Whether it is time to look.
    pub(super) fn is_due(&self, checkpoint: &Checkpoint) -> bool {
        Instant::now() >= self.next && checkpoint.position >= self.declared
    }

    /// Looks for lost owners and declares their open requests; returns how many.
    pub(super) async fn look(
        &mut self,
        journal: &Journal,
        store: &ReadModel,
        standing: Standing<'_>,
    ) -> Result<u64, LossError> {
        self.next = Instant::now() + AGAIN.min(self.config.look_every);
        let owners = store.owners_of_open_requests(OWNERS).await?;
        let beating = self.beating.now();
        let dedup = &standing.checkpoint.dedup;
        let sign = |owner: &Owner| {
            if dedup.is_retired(&owner.replica, owner.boot) {
                Sign::Retired
            } else if beating.as_ref().is_none_or(|beating| beating.contains(owner)) {
                Sign::Present
            } else {
                Sign::Silent
            }
        };
        let lost = self.absences.look(owners, self.began.elapsed(), sign);
        let mut declared = 0;
        for (owner, why) in lost {
            // What a silent boot wrote may still wait to be folded; what a drained one wrote is.
            if why == LossReason::Absent && !standing.at_end {
                continue;
            }
            declared += self.declare_all(journal, store, &owner, why).await?;
        }
        self.next = Instant::now() + self.config.look_every;
        Ok(declared)
    }

    async fn declare_all(
        &mut self,
        journal: &Journal,
        store: &ReadModel,
        owner: &Owner,
        why: LossReason,
    ) -> Result<u64, LossError> {
        let (mut declared, mut after) = (0, None);
        loop {
            let requests = store.open_requests_of(owner, after, AT_ONCE).await?;
            let Some(last) = requests.last().copied() else { return Ok(declared) };
            tracing::warn!(replica = %owner.replica, boot = %owner.boot, ?why, requests = requests.len(), "requests whose owner is lost");
            let count = requests.len() as u64;
            let declaring = requests.into_iter().map(|request| self.declare(journal, request, owner, why));
            let mut declaring = stream::iter(declaring).buffer_unordered(UNDER_WAY);
            let mut furthest = self.declared;
            while let Some(sequence) = declaring.next().await {
                furthest = furthest.max(sequence?);
            }
            drop(declaring);
            self.declared = furthest;
            declared += count;
            after = Some(last);
        }
    }

    async fn declare(
        &self,
        journal: &Journal,
        request: RequestId,
        owner: &Owner,
        why: LossReason,
    ) -> Result<u64, LossError> {
        let (at, producer) = ((self.config.clock)(), self.config.producer.clone());
        let event = declaration(request, owner, why, at, producer).encode()?;
        let payload = Bytes::from([b"[".as_slice(), &event, b"]"].concat());
        let message_id = Some(declaration_id(request));
        let record = Record { subject: SUBJECT.to_owned(), message_id, payload };
        Ok(journal.log.append(Stream::Traffic, record, Expect::Anything).await?.sequence)
    }
}
