//! Announcements: events that say what the fold did. They go to the log one after the other, each until the log has
//! taken it, and never hold up the fold.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::time::sleep;
use waybill_domain::selector::{Transition, Unannounced};
use waybill_event::control::ConfigApplied;
use waybill_event::{ConfigPosition, Draft, Event, Identity, LogTime, Position, ProducerId, Source};
use waybill_journal::{AppendError, Expect, Log, Record, Stream};

/// Where announcements go.
const SUBJECT: &str = "wb.traffic.0.control";
/// Announcements that may wait; above that the fold waits for them.
const WAITING_MAX: usize = 4_096;
/// Between tries: doubled each time, from the first to the last.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// A transition that waits to be announced.
#[derive(Debug, Clone)]
struct Waiting {
    told: Unannounced,
    event: Event,
}

impl Waiting {
    fn is_by(&self, position: Position) -> bool {
        self.told.transition.position.is_none_or(|at| at <= position)
    }
}

/// What kind of transition was announced, by its event type, and of what: `source` or `model`.
pub(super) type Told = (&'static str, &'static str);

/// What the log has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    Transition(Told),
    Marker,
}

/// The announcements of one leader's term.
pub(super) struct Announcements {
    log: Arc<dyn Log>,
    producer: ProducerId,
    epoch: u64,
    waiting: VecDeque<Waiting>,
    /// Ids taken over from written values: the fold comes past them again.
    taken_over: BTreeSet<String>,
    /// Configuration to be adopted, newest only, and the newest that was asked for.
    marker: Option<(ConfigPosition, LogTime)>,
    marked: ConfigPosition,
    sending: Option<(Sent, BoxFuture<'static, ()>)>,
}

impl Announcements {
    pub(super) fn new(log: Arc<dyn Log>, producer: ProducerId, epoch: u64) -> Self {
        Self {
            log,
            producer,
            epoch,
            waiting: VecDeque::new(),
            taken_over: BTreeSet::new(),
            marker: None,
            marked: ConfigPosition::default(),
            sending: None,
        }
    }

    /// Announces a transition of the fold. One that was taken over from a written value is announced already.
    pub(super) fn announce(&mut self, transition: &Transition, rev: u64, config: ConfigPosition) {
        if self.taken_over.is_empty() || !self.taken_over.contains(&transition.event_id()) {
            self.push(transition, rev, config);
        }
    }

    /// Announces what a written value says that the leader before didn't get announced.
    pub(super) fn take_over(&mut self, transition: &Transition, rev: u64, config: ConfigPosition) {
        if self.taken_over.insert(transition.event_id()) {
            self.push(transition, rev, config);
        }
    }

    /// Asks for configuration to be adopted, unless that was asked for already.
    pub(super) fn mark(&mut self, position: ConfigPosition, adopted: ConfigPosition, now: LogTime) {
        if position > adopted && position > self.marked {
            self.marked = position;
            self.marker = Some((position, now));
        }
    }

    /// Whether the fold may go on.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < WAITING_MAX
    }

    /// How many transitions the log hasn't taken.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether there is nothing to send.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.marker.is_none() && self.sending.is_none()
    }

    /// Whether a transition at or before `position` waits.
    pub(super) fn lacks(&self, position: Position) -> bool {
        self.waiting.iter().any(|one| one.is_by(position))
    }

    /// The transitions at or before `position` that the log hasn't taken.
    pub(super) fn by(&self, position: Position) -> Vec<Unannounced> {
        self.waiting.iter().filter(|one| one.is_by(position)).map(|one| one.told.clone()).collect()
    }

    /// The transitions of a source that the log hasn't taken.
    pub(super) fn of(&self, source: Source) -> Vec<Transition> {
        let transitions = self.waiting.iter().map(|one| &one.told.transition);
        transitions.filter(|transition| transition.source() == source).cloned().collect()
    }

    /// Waits until the log has taken the next one; for ever when there is none. It may be dropped and called again.
    pub(super) async fn sent(&mut self) -> Sent {
        if self.sending.is_none() {
            self.sending = self.next();
        }
        let Some((what, sending)) = &mut self.sending else { return std::future::pending().await };
        sending.await;
        let what = *what;
        self.sending = None;
        if matches!(what, Sent::Transition(_)) {
            self.waiting.pop_front();
        }
        what
    }

    fn push(&mut self, transition: &Transition, rev: u64, config: ConfigPosition) {
        if let Some(event) = transition.announcement(self.producer.clone(), rev, config) {
            let told = Unannounced { transition: transition.clone(), rev, config };
            self.waiting.push_back(Waiting { told, event });
        }
    }

    fn next(&mut self) -> Option<(Sent, BoxFuture<'static, ()>)> {
        let (what, event) = match self.marker.take() {
            Some((position, now)) => (Sent::Marker, self.marker_event(position, now)),
            None => {
                let Waiting { told, event } = self.waiting.front()?;
                (Sent::Transition(told_of(&told.transition)), event.clone())
            }
        };
        let log = Arc::clone(&self.log);
        Some((what, send(log, event).boxed()))
    }

    fn marker_event(&self, position: ConfigPosition, now: LogTime) -> Event {
        let id = format!("config_applied:{position}@{}", self.epoch);
        let identity = Identity::Derived { id, producer: self.producer.clone() };
        let mut draft = Draft::new(now, ConfigApplied { position, epoch: self.epoch });
        draft.config = Some(position);
        Event { identity, draft }
    }
}

fn told_of(transition: &Transition) -> Told {
    (transition.event_type(), if transition.scope.model.is_some() { "model" } else { "source" })
}

/// Appends an event, again and again until the log has it.
async fn send(log: Arc<dyn Log>, event: Event) {
    let encoded = match event.encode() {
        Ok(encoded) => encoded,
        Err(error) => {
            tracing::error!(id = %event.identity, %error, "an announcement can't be written and is left out");
            return;
        }
    };
    let payload = Bytes::from([b"[".as_slice(), &encoded, b"]"].concat());
    // Model names stand in ids; a message id is a header, which takes no other characters.
    let message_id = Some(event.identity.to_string().escape_default().to_string());
    let record = Record { subject: SUBJECT.to_owned(), message_id, payload };
    let mut pause = BACKOFF.0;
    loop {
        match log.append(Stream::Traffic, record.clone(), Expect::Anything).await {
            Ok(_) => return,
            Err(error @ (AppendError::Refused { .. } | AppendError::Full)) => {
                tracing::error!(id = %event.identity, %error, "an announcement waits");
                pause = BACKOFF.1;
            }
            Err(error @ (AppendError::Conflict | AppendError::Unknown { .. })) => {
                tracing::warn!(id = %event.identity, %error, "an announcement is sent again");
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(BACKOFF.1);
    }
}
