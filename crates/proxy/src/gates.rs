//! The gates of limits, in their order: requests in flight, attempts a minute, what a session may spend. What a gate gave
//! is given back when what holds it is dropped; a later gate that says no gives back what an earlier one took. A no is a
//! reason to go on to the next candidate, and never evidence.

use std::num::NonZeroU32;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio_util::task::TaskTracker;
use waybill_domain::catalog::{Catalog, SourceEntity};
use waybill_event::config::{Limits, OnOutage, SessionWindow};
use waybill_event::selection::SkipReason;
use waybill_event::{LogTime, NanoUsd, Source};
use waybill_journal::permits::{self, About, Permits, RatePermit, Seen, ShareFloor, Slot, Subject};
use waybill_journal::spending::Spending;
use waybill_journal::sticky::SessionKey;

/// After how long it is worth coming back where something is full, if nothing more is known.
pub(crate) const COME_BACK: Duration = Duration::from_secs(1);

/// An upstream that was left in the middle of its answer needs a moment to see that.
const LEAVING: Duration = Duration::from_millis(100);

/// What an attempt, or a request, holds of limits. It goes back when this is dropped.
#[derive(Debug, Default)]
pub struct Held {
    slot: Option<Slot>,
}

/// What the gates of one subject gave, until it is clear that what it was asked for is done. Dropped before that, because
/// something else said no or the client has left, all of it goes back.
#[derive(Debug, Default)]
pub struct Given {
    held: Held,
    used: Option<RatePermit>,
}

impl Given {
    /// It is used: an attempt of the minute for good, the slot for as long as this is held.
    #[must_use]
    pub fn kept(mut self) -> Held {
        self.used = None;
        std::mem::take(&mut self.held)
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        if let Some(permit) = self.used.take() {
            permit.unused();
        }
    }
}

/// A gate's no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct No {
    /// Which gate.
    pub why: SkipReason,
    /// After how long it is worth coming back.
    pub retry_after: Duration,
}

/// Why an order wasn't carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passed {
    /// What stands in the history.
    pub why: SkipReason,
    /// After how long there may be room, where somebody is full.
    pub room_in: Option<Duration>,
}

impl From<No> for Passed {
    fn from(no: No) -> Self {
        Self { why: no.why, room_in: Some(no.retry_after) }
    }
}

impl From<SkipReason> for Passed {
    fn from(why: SkipReason) -> Self {
        Self { why, room_in: None }
    }
}

/// How a gate that is shut is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Not at all: there may be others. A slot that may be free is still claimed.
    None,
    /// For so long.
    Within(Duration),
}

/// The gates of this replica.
#[derive(Clone)]
pub struct Gates {
    permits: Permits,
    spending: Spending,
    tasks: TaskTracker,
}

/// The session that asks, and when, for limits of what a session may spend.
#[derive(Debug, Clone, Copy)]
pub struct Spender {
    /// The session.
    pub session: SessionKey,
    /// Now.
    pub now: LogTime,
}

impl Gates {
    /// Gates that take these permits. What is given back a moment later waits in `tasks`.
    #[must_use]
    pub const fn new(permits: Permits, spending: Spending, tasks: TaskTracker) -> Self {
        Self { permits, spending, tasks }
    }

    /// The upstream was left in the middle of its answer: to it the request may still be in flight for a moment.
    pub fn left_unfinished(&self, held: Held) {
        if held.slot.is_some() {
            self.tasks.spawn(async move {
                tokio::time::sleep(LEAVING).await;
                drop(held);
            });
        }
    }

    /// What is known of the limits of a source.
    #[must_use]
    pub fn seen(&self, source: Source) -> Seen {
        self.permits.seen(&Subject::from(source))
    }

    /// The permits themselves, for what is told of them.
    #[must_use]
    pub const fn permits(&self) -> &Permits {
        &self.permits
    }

    /// The catalogue has changed: those who wait at a limit go by what it is now.
    pub fn relimit(&self, catalog: &Catalog) {
        self.permits.relimit(|subject| {
            let key = |id| catalog.keys.get(&id);
            let limits = match subject.about()? {
                About::Source(source) => catalog.entity(source)?.limits(),
                About::Key(id) => key(id)?.limits,
                About::User(id) => key(id)?.user_limits,
            };
            limits.max_concurrent.and_then(NonZeroU32::new)
        });
    }

    /// Takes what an attempt at a source needs. `kept` is what an attempt before held: if that was at the same source its
    /// slot serves again.
    ///
    /// # Errors
    /// [`No`]; what was held has gone back.
    pub async fn enter(
        &self,
        kept: Held,
        entity: &SourceEntity,
        spender: Option<Spender>,
        on_outage: OnOutage,
        patience: Patience,
    ) -> Result<Given, No> {
        let limits = entity.limits();
        let given = if limits.is_unlimited() {
            Given::default()
        } else {
            self.take_with(kept, &Subject::from(entity.source()), limits, on_outage, patience).await?
        };
        if let Some(Spender { session, now }) = spender
            && let Some(SessionWindow { limit, seconds }) = entity.session_window()
        {
            let window = Duration::from_secs(seconds.into());
            if self.spending.spent(&session, entity.source(), window, now) >= limit {
                let retry_after = self.spending.room_in(&session, entity.source(), (window, limit), now);
                return Err(No { why: SkipReason::SessionWindow, retry_after: retry_after.max(COME_BACK) });
            }
        }
        Ok(given)
    }

    /// A session has spent something on a source.
    pub fn spent(&self, entity: &SourceEntity, Spender { session, now }: Spender, amount: NanoUsd) {
        if let Some(SessionWindow { seconds, .. }) = entity.session_window() {
            self.spending.add(&session, entity.source(), Duration::from_secs(seconds.into()), amount, now);
        }
    }

    /// Takes what a subject's limits ask for, one gate after the other.
    ///
    /// # Errors
    /// [`No`].
    pub async fn take(
        &self,
        subject: &Subject,
        limits: Limits,
        on_outage: OnOutage,
        patience: Patience,
    ) -> Result<Given, No> {
        self.take_with(Held::default(), subject, limits, on_outage, patience).await
    }

    async fn take_with(
        &self,
        kept: Held,
        subject: &Subject,
        limits: Limits,
        on_outage: OnOutage,
        patience: Patience,
    ) -> Result<Given, No> {
        let on_outage = policy(on_outage);
        let wait = match patience {
            Patience::None => Duration::ZERO,
            Patience::Within(wait) => wait,
        };
        let kept = kept.slot.filter(|slot| slot.subject() == subject);
        let slot = match limits.max_concurrent.and_then(NonZeroU32::new) {
            Some(_) if kept.is_some() => kept,
            Some(most) => match self.permits.slot_within(subject, most, on_outage, wait).await {
                Ok(slot) => Some(slot),
                Err(_) => return Err(No { why: SkipReason::Concurrency, retry_after: COME_BACK }),
            },
            None => None,
        };
        let used = match limits.requests_per_minute.and_then(NonZeroU32::new) {
            Some(most) => match self.permits.rate(subject, most, on_outage).await {
                Ok(permit) => Some(permit),
                // The slot goes back as it is dropped.
                Err(spent) => return Err(No { why: SkipReason::Rpm, retry_after: spent.retry_after }),
            },
            None => None,
        };
        Ok(Given { held: Held { slot }, used })
    }

    /// Waits for room at any of these, at most so long; the first one that has it, with what it gave.
    pub async fn first_free(
        &self,
        full: &[SourceEntity],
        spender: Option<Spender>,
        on_outage: OnOutage,
        wait: Duration,
    ) -> Option<(usize, Given)> {
        let ask = async |at: usize, entity: &SourceEntity| {
            loop {
                match self.enter(Held::default(), entity, spender, on_outage, Patience::Within(wait)).await {
                    Ok(given) => return (at, given),
                    Err(No { why: SkipReason::Concurrency, .. }) => {}
                    Err(No { retry_after, .. }) => tokio::time::sleep(retry_after).await,
                }
            }
        };
        let mut asked: FuturesUnordered<_> = full.iter().enumerate().map(|(at, entity)| ask(at, entity)).collect();
        tokio::time::timeout(wait, asked.next()).await.ok().flatten()
    }
}

/// The policy as permits have it.
const fn policy(on_outage: OnOutage) -> permits::OnOutage {
    match on_outage {
        OnOutage::Share => permits::OnOutage::Share { floor: ShareFloor::Available },
        OnOutage::StrictShare => permits::OnOutage::Share { floor: ShareFloor::Strict },
        OnOutage::Closed => permits::OnOutage::Closed,
        OnOutage::Open => permits::OnOutage::Open,
    }
}
