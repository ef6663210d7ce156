//! What a key of the bucket says to somebody who only looks on.

use waybill_event::{ProducerId, Source};

use super::key::{Claim, Key};

/// What a living key has taken of a source's limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// A slot of the source, with the replica that holds it: a request is in flight, or was until a moment ago.
    Slot(Source, ProducerId),
    /// So many attempts of the last minute.
    Rate(Source, u32),
    /// A replica waits for a slot of the source.
    Waits(Source),
}

impl Taken {
    /// Reads a key and its value; nothing where it is about something else than a source.
    #[must_use]
    pub fn read(key: &str, value: &[u8]) -> Option<Self> {
        match Key::read(key)? {
            Key::Slot(subject, _) => Some(Self::Slot(subject.as_str().parse().ok()?, Claim::read(value)?.holder)),
            Key::Rate(subject, _) => Some(Self::Rate(subject.as_str().parse().ok()?, Claim::read(value)?.units)),
            Key::Demand(subject, _) => Some(Self::Waits(subject.as_str().parse().ok()?)),
            Key::Generation | Key::Recovering => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_sources_are_told_and_others_are_not() {
        let account: Source = "account:7".parse().unwrap();
        let claim = br#"{"holder":"proxy-1","boot":"00000000000000000001","n":3,"units":2}"#;
        assert!(Claim::read(claim).is_some());
        let check = |key: &str, expected: Option<Taken>| assert_eq!(Taken::read(key, claim), expected, "{key}");
        check("slot.account.7.0", Some(Taken::Slot(account, "proxy-1".parse().unwrap())));
        check("rate.account.7.12", Some(Taken::Rate(account, 2)));
        check("demand.account.7.proxy-1", Some(Taken::Waits(account)));
        check("slot.key.7.0", None);
        check("lease.upkeep", None);
        check("permits.generation", None);
        check("probe.account.7.disabled", None);
    }
}
