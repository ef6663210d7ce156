//! What the log holds, read piece by piece: every event once, in its first place; and whether every outbox came in order.

use std::collections::BTreeMap;

use waybill_domain::history::Placed;
use waybill_event::{Body, Boot, Event, Identity, Mark, Position, ProducerId, decode_batch, decode_one};
use waybill_testkit::Stream;

use super::Ground;

/// Messages read at once.
const PAGE: usize = 1_000;

/// What was read so far.
#[derive(Debug, Default)]
pub struct Logged {
    traffic: u64,
    config: u64,
    boots: BTreeMap<(ProducerId, Boot), Ordinals>,
    /// Events of traffic, each once.
    pub events: u64,
    /// Events that stood there again, under the ordinal that they had.
    pub repeated: u64,
    /// What must not be and was.
    pub violations: Vec<String>,
}

/// What is known of a boot.
#[derive(Debug, Default)]
struct Ordinals {
    last: u64,
    /// Whether its last event says that all of it is told.
    closed: bool,
}

/// What was read at one time.
#[derive(Debug, Default)]
pub struct News {
    /// Edits, with their positions.
    pub edits: Vec<(u64, Event)>,
    /// Events of traffic that hadn't stood there before.
    pub events: Vec<Placed>,
}

impl Ground {
    /// Reads what the log holds beyond what was read before.
    ///
    /// # Panics
    /// When it can't be read.
    pub(super) async fn read_on(&mut self) -> News {
        let connection = self.bench.fleet.log("operator").await;
        let log = &connection.journal().log;
        let mut news = News::default();
        for (stream, from) in [(Stream::Config, self.log.config), (Stream::Traffic, self.log.traffic)] {
            let mut next = from + 1;
            loop {
                let page = match log.read(stream, next, PAGE).await {
                    Ok(page) => page,
                    Err(error) => panic!("reading {}: {error}", stream.name()),
                };
                let Some(last) = page.last().map(|message| message.sequence) else { break };
                for message in page {
                    self.log.add(stream, &message, &mut news);
                }
                next = last + 1;
            }
        }
        connection.close().await;
        news
    }
}

impl Logged {
    fn add(&mut self, stream: Stream, message: &waybill_journal::Message, news: &mut News) {
        let sequence = message.sequence;
        let expected = if stream == Stream::Config { &mut self.config } else { &mut self.traffic };
        if sequence != *expected + 1 {
            self.violations.push(format!("{} has no message {}", stream.name(), *expected + 1));
        }
        *expected = sequence;
        if stream == Stream::Config {
            match decode_one(&message.payload) {
                Ok(event) => news.edits.push((sequence, event)),
                Err(error) => self.violations.push(format!("edit {sequence} can't be read: {error}")),
            }
            return;
        }
        let events = match decode_batch(&message.payload) {
            Ok(events) => events,
            Err(error) => return self.violations.push(format!("message {sequence} can't be read: {error}")),
        };
        for (index, event) in (0_u16..).zip(events) {
            match event {
                Ok(event) if self.is_new(&event) => {
                    self.events += 1;
                    let position = Position::new(sequence, index);
                    news.events.push(Placed { event, position, stored_at: message.stored_at });
                }
                Ok(_) => self.repeated += 1,
                Err(error) => self.violations.push(format!("event {sequence}/{index} can't be read: {error}")),
            }
        }
    }

    /// Whether an event stands there for the first time. The ordinals of a boot rise by one from event to event.
    fn is_new(&mut self, event: &Event) -> bool {
        let Identity::Sequenced(mark) = &event.identity else { return true };
        let ordinals = self.boots.entry((mark.producer.clone(), mark.boot)).or_default();
        if mark.n <= ordinals.last {
            return false;
        }
        if mark.n != ordinals.last + 1 {
            self.violations.push(format!("after ordinal {} of its boot comes {mark}", ordinals.last));
        }
        ordinals.last = mark.n;
        ordinals.closed = closes(&event.draft.body, mark);
        true
    }

    /// The boots of a replica that were seen, in order, each with its last ordinal and whether that says that the outbox
    /// is drained.
    pub fn boots_of(&self, replica: &str) -> Vec<(u64, bool)> {
        let own = self.boots.iter().filter(|((producer, _), _)| producer.as_str() == replica);
        own.map(|(_, ordinals)| (ordinals.last, ordinals.closed)).collect()
    }
}

fn closes(body: &Body, mark: &Mark) -> bool {
    matches!(body, Body::OutboxDrained(drained) if drained.boot == mark.boot && drained.last == mark.n)
}
