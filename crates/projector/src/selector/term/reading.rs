//! What a term reads: configuration, which is fed and marked, and the traffic stream, which is folded event by event.

use futures_util::StreamExt as _;
use tokio::time::{Instant, timeout_at};
use waybill_domain::selector::fleet::{Anomaly, Effects};
use waybill_event::{Body, ConfigPosition, DecodeError, Event, LogTime, Mark, Position, decode_batch, decode_one};
use waybill_journal::{Message, ReadError, Stream};

use super::{Opened, Term};
use crate::selector::takeover::{Lost, READ_WITHIN};

impl Term<'_> {
    /// Configuration that was there already is read before anything is folded, so that one marker covers it.
    pub(super) async fn read_known_edits(&mut self) -> Result<(), Lost> {
        let bounds = self.journal.log.bounds(Stream::Config).await?;
        let deadline = Instant::now() + READ_WITHIN;
        while !self.edits_stopped && self.fleet.fed() < ConfigPosition(bounds.last) {
            match timeout_at(deadline, self.edits.next()).await {
                Ok(Some(Ok(message))) => self.feed(&message),
                Ok(Some(Err(error))) => self.trouble(&error),
                Ok(None) | Err(_) => return Err(Lost::Silent),
            }
        }
        if self.edits_stopped && self.fleet.needs().is_some() {
            tracing::error!("configuration that was adopted before can't be read here");
        }
        self.mark();
        Ok(())
    }

    pub(super) fn edit(&mut self, edit: Option<Result<Message, ReadError>>) {
        match edit {
            Some(Ok(message)) => {
                self.feed(&message);
                self.mark();
            }
            Some(Err(error)) => self.trouble(&error),
            None => self.edits_stopped = true,
        }
    }

    fn feed(&mut self, message: &Message) {
        let fed = match decode_one(&message.payload) {
            Ok(event) => {
                self.fleet.feed_config(&event, ConfigPosition(message.sequence)).map_err(|unknown| unknown.to_string())
            }
            Err(error) => Err(format!("edit {} can't be read: {error}", message.sequence)),
        };
        if let Err(why) = fed {
            tracing::error!(why, "configuration stops here for the selector");
            self.edits_stopped = true;
            self.tell(|status| status.stopped_by = Some(why));
        }
    }

    fn mark(&mut self) {
        let now = (self.config.clock)();
        self.announcements.mark(self.fleet.fed(), self.fleet.adopted(), now);
    }

    pub(super) fn message(&mut self, message: Option<Result<Message, ReadError>>) {
        let message = match message {
            Some(Ok(message)) => message,
            Some(Err(ReadError::Gap { .. })) => return,
            Some(Err(error)) => return self.trouble(&error),
            None => return,
        };
        if message.sequence > self.expected {
            let missing = message.sequence - self.expected;
            tracing::error!(expected = self.expected, met = message.sequence, "messages are gone from the log");
            self.fleet.begin_after_gap();
            self.tell(|status| status.counts.missing_messages += missing);
        }
        self.expected = message.sequence + 1;
        let events = decode_batch(&message.payload).unwrap_or_else(|error| vec![Err(error)]);
        self.opened = Some(Opened { sequence: message.sequence, stored_at: message.stored_at, events, next: 0 });
    }

    /// Folds the message at hand, until it is done or waits for configuration.
    pub(super) fn fold_opened(&mut self) {
        let Some(mut opened) = self.opened.take() else { return };
        let begun = opened.next;
        if opened.events.is_empty() {
            self.fleet.pass_over(None, Position::new(opened.sequence, 0));
        }
        while let Some(event) = opened.events.get(opened.next) {
            let index = u16::try_from(opened.next).unwrap_or(u16::MAX);
            let position = Position::new(opened.sequence, index);
            if !self.fold(event, position, opened.stored_at) {
                break;
            }
            opened.next += 1;
        }
        let done = opened.next >= opened.events.len();
        let (sequence, stored_at) = (opened.sequence, opened.stored_at);
        let folded = u64::try_from(opened.next - begun).unwrap_or(0);
        if !done {
            self.opened = Some(opened);
        }
        self.tell(|status| {
            status.counts.events += folded;
            if done {
                status.counts.messages += 1;
                status.position = sequence;
                status.stored_at = Some(stored_at);
                status.end = status.end.max(sequence);
                status.trouble = None;
            }
        });
    }

    /// Folds one event. `false`: configuration must come first.
    fn fold(&mut self, event: &Result<Event, DecodeError>, position: Position, stored_at: LogTime) -> bool {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                tracing::error!(%position, %error, "an event can't be read and is passed over");
                let mark = match error {
                    DecodeError::Payload { id, .. } => id.parse::<Mark>().ok(),
                    DecodeError::Envelope(_) => None,
                };
                self.fleet.pass_over(mark.as_ref(), position);
                self.tell(|status| status.counts.unreadable += 1);
                return true;
            }
        };
        let adopted = self.fleet.adopted();
        let Ok(effects) = self.fleet.apply(event, position, stored_at) else { return false };
        let unknown = matches!(event.draft.body, Body::Unknown(_));
        if unknown || effects.duplicate || effects.anomaly.is_some() {
            self.count(unknown, &effects);
        }
        self.take_effects(effects);
        if self.fleet.adopted() != adopted {
            tracing::info!(config = %self.fleet.adopted(), %position, "configuration adopted");
        }
        true
    }

    fn count(&self, unknown: bool, effects: &Effects) {
        if let Some(anomaly) = &effects.anomaly {
            tracing::error!(?anomaly, "the log doesn't hold what it should");
        }
        self.tell(|status| {
            status.counts.unknown += u64::from(unknown);
            status.counts.duplicates += u64::from(effects.duplicate);
            match &effects.anomaly {
                Some(Anomaly::TooFar(_)) => status.counts.too_far += 1,
                Some(Anomaly::Missing { last, low_water }) => {
                    status.counts.missing_events += last.n.saturating_sub(*low_water);
                }
                None => {}
            }
        });
    }

    pub(super) fn take_effects(&mut self, effects: Effects) {
        let now = Instant::now();
        let config = self.fleet.adopted();
        for transition in &effects.transitions {
            let rev = self.fleet.source(transition.source()).map_or(0, |state| state.rev);
            self.announcements.announce(transition, rev, config);
        }
        for (source, urgency) in effects.touched {
            self.schedule.touch(source, urgency, now);
        }
        for source in effects.removed {
            self.remove(source);
        }
    }

    /// Following goes on by itself.
    pub(super) fn trouble(&self, error: &ReadError) {
        tracing::warn!(%error, "following the log goes on");
        self.tell(|status| status.trouble = Some(error.to_string()));
    }
}
