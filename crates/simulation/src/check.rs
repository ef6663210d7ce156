//! What must hold after a run, whatever went wrong in it. Everything is judged from the log's content, from what clients
//! and upstreams saw, and by the product's own folds begun anew.

mod log;
mod plans;
mod probes;
mod reference;
mod requests;
mod state;
mod tables;

use crate::fleet::Fleet;

pub use state::Rested;

/// What a run amounted to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Events in the log, each counted once.
    pub events: u64,
    /// Events that stand there again.
    pub repeated: u64,
    /// Requests that clients sent.
    pub requests: u64,
    /// Requests that are in the log.
    pub admitted: u64,
    /// Calls of upstreams.
    pub calls: u64,
    /// Selection tables that came out as recorded when they were re-derived; any other one is a violation.
    pub tables: u64,
    /// Transitions of breakers, blocks and disablings.
    pub transitions: u64,
    /// Probes.
    pub probes: u64,
    /// Events that came too late to be evidence.
    pub late: u64,
    /// Terms of leaders of the selector's fold.
    pub epochs: u64,
    /// Lives of replicas.
    pub boots: u64,
    /// Messages of traffic that were purged.
    pub purged: u64,
}

/// Checks a run that has come to its end.
pub fn check(fleet: &Fleet, rested: &Rested) -> Figures {
    let ground = &fleet.ground;
    let log = log::Log::read(ground);
    log.check(ground, fleet);
    let wanted = tables::wanted(&log);
    let reference = reference::Reference::fold(ground, &log, &wanted, rested.end);
    state::check(ground, fleet, rested, &reference, &log);
    let tables = tables::check(ground, &log, &reference);
    plans::check(ground, &log);
    requests::check(ground, fleet, &log);
    let probes = probes::check(ground, fleet, &log);
    Figures {
        events: log.events.len() as u64,
        repeated: log.repeated,
        requests: fleet.proxies.iter().map(|proxy| proxy.seen.len() as u64).sum(),
        admitted: requests::admitted(&log),
        calls: fleet.calls.lock().len() as u64,
        tables,
        transitions: reference.transitions.len() as u64,
        probes,
        late: reference.late,
        epochs: ground.epochs.lock().get("_fold").copied().unwrap_or(0),
        boots: log.boots.len() as u64,
        purged: ground.purged_so_far(),
    }
}

impl Figures {
    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            events: self.events + other.events,
            repeated: self.repeated + other.repeated,
            requests: self.requests + other.requests,
            admitted: self.admitted + other.admitted,
            calls: self.calls + other.calls,
            tables: self.tables + other.tables,
            transitions: self.transitions + other.transitions,
            probes: self.probes + other.probes,
            late: self.late + other.late,
            epochs: self.epochs + other.epochs,
            boots: self.boots + other.boots,
            purged: self.purged + other.purged,
        }
    }
}
