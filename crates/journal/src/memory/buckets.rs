//! One bucket in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use waybill_event::LogTime;

use crate::keyed::{Entry, Held, Watched};
use crate::log::AppendError;

#[derive(Default)]
pub(super) struct BucketState {
    revision: u64,
    slots: BTreeMap<String, Slot>,
    /// The key that each revision that still stands was given to.
    by_revision: BTreeMap<u64, String>,
    expiries: BTreeSet<(LogTime, String)>,
}

/// What stands under a key; a removal leaves a slot without value.
struct Slot {
    value: Option<Bytes>,
    revision: u64,
    stored_at: LogTime,
    expires_at: Option<LogTime>,
}

/// Where a watch is.
pub(super) struct Watcher {
    after: u64,
    /// Revision up to which everything counts as there from the beginning; none once that was told.
    beginning: Option<u64>,
}

impl BucketState {
    pub(super) fn living(&self, key: &str) -> Option<Entry> {
        let slot = self.slots.get(key)?;
        let value = slot.value.clone()?;
        Some(Entry { key: key.to_owned(), value, revision: slot.revision, stored_at: slot.stored_at })
    }

    pub(super) fn write(
        &mut self,
        key: &str,
        value: Bytes,
        held: Held,
        ttl: Option<Duration>,
        now: LogTime,
    ) -> Result<u64, AppendError> {
        self.expire(now);
        self.check(key, held)?;
        let expires_at = ttl.map(|ttl| now + crate::keyed::whole_seconds(ttl));
        Ok(self.put(key, Some(value), expires_at, now))
    }

    pub(super) fn delete(&mut self, key: &str, held: Held, now: LogTime) -> Result<(), AppendError> {
        self.expire(now);
        self.check(key, held)?;
        if self.living(key).is_some() {
            self.put(key, None, None, now);
        }
        Ok(())
    }

    /// Removes what has expired, in the order in which it did.
    pub(super) fn expire(&mut self, now: LogTime) {
        while let Some((at, key)) = self.expiries.first().filter(|(at, _)| *at <= now).cloned() {
            self.put(&key, None, None, at);
        }
    }

    pub(super) fn next_expiry(&self) -> Option<LogTime> {
        self.expiries.first().map(|(at, _)| *at)
    }

    /// What a watch is told next, if there is something.
    pub(super) fn next(&self, watcher: &mut Option<Watcher>) -> Option<Watched> {
        let watcher = watcher.get_or_insert(Watcher { after: 0, beginning: Some(self.revision) });
        loop {
            let next = self.by_revision.range(watcher.after + 1..).next();
            if let Some(beginning) = watcher.beginning
                && next.is_none_or(|(revision, _)| *revision > beginning)
            {
                watcher.beginning = None;
                return Some(Watched::Current);
            }
            let (&revision, key) = next?;
            watcher.after = revision;
            match (self.living(key), watcher.beginning) {
                (Some(entry), _) => return Some(Watched::Put(entry)),
                (None, None) => return Some(Watched::Gone { key: key.clone(), revision }),
                // It was gone before the watch began.
                (None, Some(_)) => {}
            }
        }
    }

    fn check(&self, key: &str, held: Held) -> Result<(), AppendError> {
        let living = self.living(key).map(|entry| entry.revision);
        let holds = match held {
            Held::Anything => true,
            Held::Nothing => living.is_none(),
            Held::Revision(revision) => living == Some(revision),
        };
        if holds { Ok(()) } else { Err(AppendError::Conflict) }
    }

    fn put(&mut self, key: &str, value: Option<Bytes>, expires_at: Option<LogTime>, stored_at: LogTime) -> u64 {
        self.revision += 1;
        let revision = self.revision;
        let slot = Slot { value, revision, stored_at, expires_at };
        if let Some(old) = self.slots.insert(key.to_owned(), slot) {
            self.by_revision.remove(&old.revision);
            if let Some(at) = old.expires_at {
                self.expiries.remove(&(at, key.to_owned()));
            }
        }
        self.by_revision.insert(revision, key.to_owned());
        if let Some(at) = expires_at {
            self.expiries.insert((at, key.to_owned()));
        }
        revision
    }
}
