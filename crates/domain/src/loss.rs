//! Owners of open requests: which of them will not end what they began, and the declaration that says so.
//!
//! The traffic fold's leader asks. That everything of a boot is in the log is what the fold knows; that a boot has shown no
//! sign of life is what its leader has seen, on its own steady time.

use std::collections::BTreeMap;
use std::time::Duration;

use waybill_event::control::{LossReason, OwnerLost};
use waybill_event::{Boot, Draft, Event, Identity, LogTime, ProducerId, RequestId};

/// How long a boot may show no sign of life before its open requests are given up.
pub const ABSENCE: Duration = Duration::from_secs(15 * 60);

/// Who admitted a request: one boot of a replica.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The replica.
    pub replica: ProducerId,
    /// The boot.
    pub boot: Boot,
}

/// What is known of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// Everything it wrote is folded.
    Retired,
    /// It beats.
    Present,
    /// Nothing is heard of it.
    Silent,
}

/// Watches how long owners have been silent. A new leader begins anew: an owner is then given up later, never earlier.
#[derive(Debug)]
pub struct Absences {
    longest: Duration,
    since: BTreeMap<Owner, Duration>,
}

impl Absences {
    /// Nobody has been silent yet; who is for `longest` is lost, see [`ABSENCE`].
    #[must_use]
    pub const fn new(longest: Duration) -> Self {
        Self { longest, since: BTreeMap::new() }
    }

    /// Looks at all owners of open requests at `now`, on any steady clock, and tells which are lost. Owners that aren't
    /// among them any more are forgotten.
    pub fn look(
        &mut self,
        owners: impl IntoIterator<Item = Owner>,
        now: Duration,
        sign: impl Fn(&Owner) -> Sign,
    ) -> Vec<(Owner, LossReason)> {
        let mut lost = Vec::new();
        let mut silent = BTreeMap::new();
        for owner in owners {
            match sign(&owner) {
                Sign::Retired => lost.push((owner, LossReason::Drained)),
                Sign::Present => {}
                Sign::Silent => {
                    let since = self.since.get(&owner).copied().unwrap_or(now);
                    if now.saturating_sub(since) >= self.longest {
                        lost.push((owner.clone(), LossReason::Absent));
                    }
                    silent.insert(owner, since);
                }
            }
        }
        self.since = silent;
        lost
    }
}

/// The id of the declaration that a request's owner is lost: whoever declares it declares the same.
#[must_use]
pub fn declaration_id(request: RequestId) -> String {
    format!("lost:{request}")
}

/// The declaration that a request's owner is lost.
#[must_use]
pub fn declaration(request: RequestId, owner: &Owner, why: LossReason, at: LogTime, producer: ProducerId) -> Event {
    let body = OwnerLost { replica: owner.replica.clone(), boot: owner.boot, why };
    let draft = Draft { request: Some((request, 0)), ..Draft::new(at, body) };
    Event { identity: Identity::Derived { id: declaration_id(request), producer }, draft }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(replica: &str, boot: i64) -> Owner {
        Owner { replica: replica.parse().unwrap(), boot: Boot::new(LogTime::from_micros(boot * 1_000), 7) }
    }

    #[test]
    fn a_retired_owner_is_lost_at_once_and_a_present_one_never() {
        let mut absences = Absences::new(ABSENCE);
        let owners = [owner("proxy-1", 1), owner("proxy-1", 2)];
        let sign = |one: &Owner| if *one == owner("proxy-1", 1) { Sign::Retired } else { Sign::Present };
        let lost = absences.look(owners.clone(), Duration::ZERO, sign);
        assert_eq!(lost, [(owner("proxy-1", 1), LossReason::Drained)]);
        let much_later = absences.look([owner("proxy-1", 2)], ABSENCE * 5, sign);
        assert_eq!(much_later, []);
    }

    #[test]
    fn a_silent_owner_is_lost_after_the_whole_absence() {
        let mut absences = Absences::new(ABSENCE);
        let mut look = |at: Duration, sign: Sign| absences.look([owner("proxy-1", 1)], at, |_| sign).len();
        let start = Duration::from_secs(100);
        assert_eq!(look(start, Sign::Silent), 0);
        assert_eq!(look(start + ABSENCE / 2, Sign::Silent), 0);
        // One sign of life, and the time begins anew.
        assert_eq!(look(start + ABSENCE - Duration::from_secs(1), Sign::Present), 0);
        assert_eq!(look(start + ABSENCE, Sign::Silent), 0);
        assert_eq!(look(start + ABSENCE * 2 - Duration::from_secs(1), Sign::Silent), 0);
        assert_eq!(look(start + ABSENCE * 2, Sign::Silent), 1);
        // Until it is folded it is told again.
        assert_eq!(look(start + ABSENCE * 2 + Duration::from_secs(1), Sign::Silent), 1);
    }

    #[test]
    fn an_owner_without_open_requests_is_forgotten() {
        let mut absences = Absences::new(ABSENCE);
        absences.look([owner("proxy-1", 1)], Duration::ZERO, |_| Sign::Silent);
        absences.look([], ABSENCE / 2, |_| Sign::Silent);
        assert_eq!(absences.look([owner("proxy-1", 1)], ABSENCE, |_| Sign::Silent), []);
    }
}
