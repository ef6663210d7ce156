//! Messages of the log as a batch of events to be folded.

use waybill_domain::catalog::UnknownEdit;
use waybill_domain::dedup::{Dedup, Seen};
use waybill_domain::history::Placed;
use waybill_event::{Body, ConfigPosition, LogTime, Position, decode_batch, decode_one};
use waybill_journal::{Message, Stream};
use waybill_read_model::{Projection, Unprojectable, Why};

use super::status::Counts;

/// The stream that a projection folds.
#[must_use]
pub const fn stream(projection: Projection) -> Stream {
    match projection {
        Projection::Config => Stream::Config,
        Projection::Traffic => Stream::Traffic,
    }
}

/// What a batch's messages hold.
#[derive(Debug, Default)]
pub struct Gathered {
    /// Sequence of the last message; 0 when there is none.
    pub last: u64,
    /// When the log took it.
    pub stored_at: Option<LogTime>,
    /// Messages.
    pub messages: usize,
    /// Events, in the order of the log.
    pub events: Vec<Placed>,
    /// What can't be read.
    pub unreadable: Vec<Unprojectable>,
    /// The edit before which the batch ends, because it can't be read here.
    pub stop: Option<UnknownEdit>,
}

impl Gathered {
    /// Adds a message, unless the batch has ended.
    pub fn add(&mut self, projection: Projection, message: &Message) {
        if self.stop.is_some() {
            return;
        }
        match projection {
            Projection::Traffic => self.add_traffic(message),
            Projection::Config => self.add_edit(message),
        }
        if self.stop.is_none() {
            self.last = message.sequence;
            self.stored_at = Some(message.stored_at);
            self.messages += 1;
        }
    }

    fn add_traffic(&mut self, message: &Message) {
        let items = match decode_batch(&message.payload) {
            Ok(items) => items,
            Err(error) => {
                self.unreadable.push(unreadable(message, 0, &error));
                return;
            }
        };
        for (index, item) in (0u16..).zip(items) {
            match item {
                Ok(event) => {
                    let position = Position::new(message.sequence, index);
                    self.events.push(Placed { event, position, stored_at: message.stored_at });
                }
                Err(error) => self.unreadable.push(unreadable(message, index, &error)),
            }
        }
    }

    fn add_edit(&mut self, message: &Message) {
        let position = ConfigPosition(message.sequence);
        match decode_one(&message.payload) {
            Ok(event) => match &event.draft.body {
                Body::Config(_) => self.events.push(Placed {
                    event,
                    position: Position::new(message.sequence, 0),
                    stored_at: message.stored_at,
                }),
                body => self.stop = Some(UnknownEdit { position, kind: body.kind(), version: body.version() }),
            },
            Err(error) => self.stop = Some(UnknownEdit { position, kind: words(&error), version: 0 }),
        }
    }

    /// Drops the events that were folded before, and remembers the others. `aged` tells that older events may be gone
    /// from the log, so that a boot may be met in its middle.
    pub fn drop_known(&mut self, dedup: &mut Dedup, aged: bool, counts: &mut Counts) {
        self.events.retain(|placed| {
            if let Body::OutboxDrained(drained) = &placed.event.draft.body
                && let Some(low) = dedup.low_water(&drained.replica, drained.boot)
            {
                // The note may itself be the boot's last event.
                let missing = drained.last.saturating_sub(low.saturating_add(1));
                if missing > 0 {
                    tracing::error!(replica = %drained.replica, boot = %drained.boot, missing, "events of a drained outbox never came");
                }
                counts.missing_events += missing;
            }
            if let Some(mark) = placed.event.identity.mark()
                && aged
                && dedup.low_water(&mark.producer, mark.boot).is_none()
            {
                dedup.begin_at(mark);
            }
            match dedup.admit(&placed.event) {
                Seen::New => true,
                Seen::Duplicate => {
                    counts.duplicates += 1;
                    false
                }
                Seen::TooFar => {
                    counts.too_far += 1;
                    tracing::error!(event = %placed.event.identity, position = %placed.position, "an event is too far ahead of its outbox to notice its repetition");
                    true
                }
            }
        });
    }
}

fn unreadable(message: &Message, index: u16, error: &waybill_event::DecodeError) -> Unprojectable {
    Unprojectable {
        position: Position::new(message.sequence, index),
        why: Why::Malformed,
        detail: words(error),
        event: piece(message, index),
        stored_at: message.stored_at,
    }
}

/// The event at an index of a message, or the whole message when it is no list.
fn piece(message: &Message, index: u16) -> String {
    serde_json::from_slice::<Vec<&serde_json::value::RawValue>>(&message.payload)
        .ok()
        .and_then(|items| items.get(usize::from(index)).map(|item| item.get().to_owned()))
        .unwrap_or_else(|| String::from_utf8_lossy(&message.payload).into_owned())
}

/// An error and its causes in one line.
pub(super) fn words(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
