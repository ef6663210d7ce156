//! Metrics of limits and of conversations, which are counted elsewhere and read at each scrape.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use waybill_event::selection::SkipReason;
use waybill_journal::permits::Counts;
use waybill_journal::sticky::StickyCounts;

use super::Word;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfGate {
    gate: Word,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfPermit {
    from: Word,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfOutcome {
    outcome: Word,
}

type Read = Counter<u64, AtomicU64>;

/// Metrics of limits and conversations.
#[derive(Default)]
pub(super) struct Limits {
    full: Family<OfGate, Counter>,
    clients: Family<OfGate, Counter>,
    permits: Family<OfPermit, Read>,
    round_trips: Read,
    outages: Read,
    over_lease: Read,
    over_lease_now: Gauge<u64, AtomicU64>,
    sticky: Family<OfOutcome, Read>,
    bindings: Gauge<u64, AtomicU64>,
}

impl Limits {
    pub(super) fn register(&self, r: &mut Registry) {
        r.register("sources_full", "Candidates passed over because a limit was reached, by gate", self.full.clone());
        r.register(
            "clients_limited",
            "Requests refused by a limit of their key or user, by gate",
            self.clients.clone(),
        );
        r.register("permits", "Permits given, by where they came from", self.permits.clone());
        r.register("permit_round_trips", "Calls of the store that requests waited for", self.round_trips.clone());
        r.register("permit_outages", "Times the store of permits couldn't be asked", self.outages.clone());
        r.register("over_lease", "Requests that ran on when their slot's lease had ended", self.over_lease.clone());
        r.register("over_lease_now", "Requests that do so now", self.over_lease_now.clone());
        r.register(
            "sticky",
            "Requests of conversations: where they belong (hit), moved (rebind), or elsewhere for once (miss)",
            self.sticky.clone(),
        );
        r.register("sticky_bindings", "Conversations that are bound elsewhere than they fall", self.bindings.clone());
    }

    pub(super) fn full(&self, gate: SkipReason) {
        self.full.get_or_create(&OfGate { gate: Word(gate.as_str()) }).inc();
    }

    pub(super) fn client(&self, gate: SkipReason) {
        self.clients.get_or_create(&OfGate { gate: Word(gate.as_str()) }).inc();
    }

    pub(super) fn read(&self, permits: &Counts, sticky: &StickyCounts) {
        let set = |counter: &Read, value: u64| counter.inner().store(value, Ordering::Relaxed);
        for (from, given) in [
            ("store", permits.claims),
            ("replica", permits.reused),
            ("share", permits.shared),
            ("open", permits.opened),
        ] {
            set(&self.permits.get_or_create(&OfPermit { from: Word(from) }), given);
        }
        set(&self.round_trips, permits.round_trips);
        set(&self.outages, permits.outages);
        set(&self.over_lease, permits.over_lease);
        self.over_lease_now.set(permits.over_lease_now);
        for (outcome, count) in [("hit", sticky.hit), ("rebind", sticky.rebind), ("miss", sticky.miss)] {
            set(&self.sticky.get_or_create(&OfOutcome { outcome: Word(outcome) }), count);
        }
        self.bindings.set(sticky.bindings);
    }
}
