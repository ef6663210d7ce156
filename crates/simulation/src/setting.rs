//! What the run of a seed is like: how large the fleet is, and which kinds of trouble it meets. Most runs meet a few kinds
//! only, since many at once hide each other.

use std::time::Duration;

use waybill_event::config::{BreakerPolicy, SelectorPolicy};
use waybill_journal::faulty::Faults;
use waybill_proxy::{Durability, OutboxFull, Recording};

use crate::chance::Chance;

/// What a run is like.
#[derive(Debug, Clone)]
pub struct Setting {
    /// Replicas of the data plane.
    pub proxies: u64,
    /// Upstreams at the beginning.
    pub channels: u64,
    /// How long requests come.
    pub lasts: Duration,
    /// Between two requests.
    pub request_every: Duration,
    /// What goes wrong on every connection to the store.
    pub faults: Faults,
    /// How long the store remembers message ids.
    pub duplicate_window: Duration,
    /// Bytes that an outbox may hold.
    pub outbox_bytes: u64,
    /// What an outbox promises a request for its end.
    pub finish_reserve_bytes: u64,
    /// Bytes that the traffic stream may hold; 0 is unlimited.
    pub traffic_bytes: u64,
    /// Between two changes of an upstream's mood; none if they stay well.
    pub mood_every: Option<Duration>,
    /// Between two deaths of a replica.
    pub crash_every: Option<Duration>,
    /// Between two deaths of a projector or of upkeep.
    pub projector_crash_every: Option<Duration>,
    /// Between two stops of some process, as by SIGSTOP.
    pub freeze_every: Option<Duration>,
    /// Between two cuts of somebody's connection.
    pub cut_every: Option<Duration>,
    /// Between two jumps of the store's clock.
    pub jump_every: Option<Duration>,
    /// Between two edits.
    pub edit_every: Option<Duration>,
    /// How strictly requests are recorded.
    pub recording: Recording,
    /// The numbers that the fold begins with.
    pub policy: SelectorPolicy,
    /// Probes of one opening that may be under way at once, whatever the policy otherwise is.
    pub half_open_probes: u32,
    /// Whether clients ask for routes, and operators set numbers of requests and act by hand.
    pub routes: bool,
}

impl Setting {
    /// The setting of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut chance = Chance::of(seed, "setting");
        let ms = Duration::from_millis;
        let mut sometimes = |share: f64, least: u64, most: u64| {
            let every = ms(chance.among(least, most));
            chance.yes(share).then_some(every)
        };
        let mood_every = sometimes(0.9, 1_500, 6_000);
        let crash_every = sometimes(0.5, 4_000, 12_000);
        let projector_crash_every = sometimes(0.4, 5_000, 15_000);
        let freeze_every = sometimes(0.4, 5_000, 15_000);
        let cut_every = sometimes(0.5, 4_000, 12_000);
        let jump_every = sometimes(0.2, 8_000, 20_000);
        let edit_every = sometimes(0.7, 2_000, 6_000);
        let half_open_probes = if chance.yes(0.6) { 1 } else { u32::try_from(chance.among(2, 3)).unwrap_or(1) };
        Self {
            half_open_probes,
            routes: chance.yes(0.7),
            proxies: if chance.yes(0.1) { 5 } else { chance.among(1, 3) },
            channels: chance.among(2, 4),
            lasts: ms(chance.among(12_000, 25_000)),
            request_every: ms(chance.among(250, 900)),
            faults: faults(&mut chance),
            duplicate_window: ms(chance.one_of(&[120_000, 120_000, 2_000, 100])),
            outbox_bytes: chance.one_of(&[4 << 20, 4 << 20, 4 << 20, 96 << 10, 32 << 10]),
            mood_every,
            crash_every,
            projector_crash_every,
            freeze_every,
            cut_every,
            jump_every,
            edit_every,
            policy: policy(&mut chance, half_open_probes),
            recording: recording(&mut chance),
            finish_reserve_bytes: chance.one_of(&[16 << 10, 6 << 10]),
            traffic_bytes: chance.one_of(&[0, 0, 0, 80 << 10]),
        }
    }
}

fn faults(chance: &mut Chance) -> Faults {
    match chance.below(4) {
        0 => Faults { longest_delay: Duration::from_millis(2), ..Faults::NONE },
        1 => Faults { longest_delay: Duration::from_millis(20), ..Faults::SOME },
        2 => Faults { lost_answer: 0.05, unavailable: 0.02, cut: 0.02, longest_delay: Duration::from_millis(8) },
        _ => Faults { lost_answer: 0.02, unavailable: 0.0, cut: 0.0, longest_delay: Duration::from_millis(60) },
    }
}

fn recording(chance: &mut Chance) -> Recording {
    let usual = Recording::default();
    match chance.below(10) {
        0..2 => Recording { durability: Durability::Acked, ..usual },
        2 => Recording { outbox_full: OutboxFull::Count, ..usual },
        _ => usual,
    }
}

/// Numbers that a short run can get past: everything opens soon and for a short while.
pub fn policy(chance: &mut Chance, half_open_probes: u32) -> SelectorPolicy {
    let mut breaker = || {
        let open_ms = chance.among(500, 4_000);
        BreakerPolicy {
            window_ms: chance.one_of(&[4_000, 12_000, 60_000]),
            min_outcomes: chance.one_of(&[0, 3, 5]),
            max_fail_milli: chance.one_of(&[300, 500]),
            consecutive_fails: chance.one_of(&[0, 2, 3]),
            open_ms,
            open_growth_milli: chance.one_of(&[1_000, 2_000]),
            open_max_ms: open_ms * 4,
            slow_start_ms: chance.among(0, 5_000),
            half_open_probes,
            successes_to_close: u32::try_from(chance.one_of(&[1, 1, 2])).unwrap_or(1),
        }
    };
    let (source_breaker, model_breaker) = (breaker(), breaker());
    let late_after_ms = chance.one_of(&[1_000, 2_000, 5_000, 15_000]);
    SelectorPolicy { source_breaker, model_breaker, late_after_ms, ..SelectorPolicy::default() }
}
