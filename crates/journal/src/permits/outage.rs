//! How many permits a replica gives while the store can't be asked.

use super::{OnOutage, ShareFloor};

/// What a replica knows of a limit when the store is away.
#[derive(Debug, Clone, Copy)]
pub(super) struct Situation {
    pub(super) limit: u32,
    /// Replicas that lived when the store was last heard of, this one included.
    pub(super) replicas: u32,
    /// Permits that others (for rates: anybody) may have in use, as far as the store had told; none once all of them
    /// must have lapsed.
    pub(super) taken: u32,
    /// Whether more may be taken than is known, because the store never told all of it.
    pub(super) unsure: bool,
}

impl Situation {
    /// How many permits of its own a replica may have in use. All replicas together stay within the limit if they were
    /// cut off knowing the same; with [`ShareFloor::Available`] within one for each where the limit is smaller than that.
    pub(super) fn allowed(&self, on_outage: OnOutage) -> u32 {
        match on_outage {
            OnOutage::Open => u32::MAX,
            OnOutage::Closed => 0,
            OnOutage::Share { .. } if self.unsure => 0,
            OnOutage::Share { floor } => {
                let replicas = self.replicas.max(1);
                let share = self.limit.saturating_sub(self.taken) / replicas;
                let floored = floor == ShareFloor::Available && self.limit < replicas && self.taken == 0;
                if floored { 1 } else { share }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_limit() {
        let check = |(limit, replicas, taken), available: u32, strict: u32| {
            let situation = Situation { limit, replicas, taken, unsure: false };
            let allowed = |floor| situation.allowed(OnOutage::Share { floor });
            assert_eq!((allowed(ShareFloor::Available), allowed(ShareFloor::Strict)), (available, strict));
            assert_eq!((situation.allowed(OnOutage::Closed), situation.allowed(OnOutage::Open)), (0, u32::MAX));
            let unsure = Situation { unsure: true, ..situation };
            assert_eq!(unsure.allowed(OnOutage::Share { floor: ShareFloor::Available }), 0);
        };
        check((6, 3, 0), 2, 2);
        check((5, 3, 0), 1, 1);
        check((2, 3, 0), 1, 0);
        check((2, 3, 1), 0, 0);
        check((6, 3, 3), 1, 1);
        check((6, 3, 7), 0, 0);
        check((6, 0, 0), 6, 6);
    }
}
