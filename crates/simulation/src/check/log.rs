//! The log as it is at the end: every event once, in its first place.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::FutureExt as _;
use waybill_domain::catalog::Snapshot;
use waybill_domain::history::Placed;
use waybill_event::{
    Body, Boot, ConfigPosition, Event, Identity, Mark, Position, ProducerId, decode_batch, decode_one,
};
use waybill_journal::{Log as _, Stream};

use crate::fleet::Fleet;
use crate::ground::Ground;

/// What the log holds.
pub struct Log {
    /// Events of traffic in the order of the log; repetitions of outbox events are left out.
    pub events: Vec<Placed>,
    /// Where in `events` each event of an outbox stands.
    pub by_mark: BTreeMap<Mark, usize>,
    /// Events that stood there again.
    pub repeated: u64,
    /// Edits.
    pub edits: Vec<Event>,
    /// The catalogue after each edit; at 0 before the first.
    pub catalogs: Vec<Snapshot>,
    /// The ordinals of each boot.
    pub boots: BTreeMap<(ProducerId, Boot), Ordinals>,
}

/// What is known of a boot.
#[derive(Debug, Default)]
pub struct Ordinals {
    count: u64,
    greatest: u64,
    drained: Option<u64>,
}

impl Log {
    /// Reads all of it.
    pub fn read(ground: &Arc<Ground>) -> Self {
        let mut log = Self {
            events: Vec::new(),
            by_mark: BTreeMap::new(),
            repeated: 0,
            edits: Vec::new(),
            catalogs: vec![Snapshot::default()],
            boots: BTreeMap::new(),
        };
        let edits = ground.memory.read(Stream::Config, 1, usize::MAX).now_or_never();
        for message in edits.expect("the store answers").expect("the store answers") {
            let event = decode_one(&message.payload).expect("an edit reads back");
            let mut next = log.catalogs.last().cloned().unwrap_or_default();
            next.apply(&event, ConfigPosition(message.sequence));
            log.catalogs.push(next);
            log.edits.push(event);
        }
        for message in ground.traffic() {
            let events = match decode_batch(&message.payload) {
                Ok(events) => events,
                Err(error) => {
                    ground.violated("a message can't be read", &format!("{}: {error}", message.sequence));
                    continue;
                }
            };
            for (index, event) in (0_u16..).zip(events) {
                match event {
                    Ok(event) => {
                        let position = Position::new(message.sequence, index);
                        log.add(ground, Placed { event, position, stored_at: message.stored_at });
                    }
                    Err(error) => {
                        ground.violated("an event can't be read", &format!("{}/{index}: {error}", message.sequence));
                    }
                }
            }
        }
        log
    }

    fn add(&mut self, ground: &Ground, placed: Placed) {
        if let Identity::Sequenced(mark) = &placed.event.identity {
            if let Some(first) = self.by_mark.get(mark) {
                self.repeated += 1;
                if self.events[*first].event != placed.event {
                    ground.violated("one ordinal names two events", &mark.to_string());
                }
                return;
            }
            self.by_mark.insert(mark.clone(), self.events.len());
            let boot = self.boots.entry((mark.producer.clone(), mark.boot)).or_default();
            boot.count += 1;
            boot.greatest = boot.greatest.max(mark.n);
        }
        if let Body::OutboxDrained(drained) = &placed.event.draft.body {
            self.boots.entry((drained.replica.clone(), drained.boot)).or_default().drained = Some(drained.last);
        }
        self.events.push(placed);
    }

    /// The event of an outbox.
    pub fn of_mark(&self, mark: &Mark) -> Option<&Placed> {
        self.by_mark.get(mark).map(|at| &self.events[*at])
    }

    /// Ordinals are without a gap, up to what the drained outbox says.
    pub fn check(&self, ground: &Ground, fleet: &Fleet) {
        let lossy: Vec<Boot> = fleet.proxies.iter().flat_map(|proxy| proxy.lossy.clone()).collect();
        for ((producer, boot), ordinals) in &self.boots {
            let Ordinals { count, greatest, drained } = ordinals;
            if count != greatest {
                ground.violated("ordinals are missing", &format!("{producer}:{boot}: {ordinals:?}"));
            }
            // A machine that lost its power doesn't know what it had sent.
            if *drained != Some(*greatest) && !lossy.contains(boot) {
                ground.violated("an outbox isn't drained", &format!("{producer}:{boot}: {ordinals:?}"));
            }
        }
    }
}
