//! The permit to probe a disabled source: one prober per source over the whole fleet. The value under the permit's key
//! is the shared schedule too: it says until when nobody else need probe, and how many probes there were.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use waybill_domain::probing::{Hold, Purpose, key};
use waybill_event::{FailureKind, LogTime, ProducerId};
use waybill_journal::keyed::{Bucket, Held, Keyed};
use waybill_journal::log::{AppendError, ReadError};
use waybill_journal::settle;

use crate::schedule::{Rhythm, Wanted};

/// How much longer a value is kept than it holds, so that the number of probes outlives a late prober.
const KEPT_LONGER: Duration = Duration::from_secs(600);

/// A claimed permit.
#[derive(Debug, Clone)]
pub struct Permit {
    revision: u64,
    value: Hold,
}

impl Permit {
    /// Which probe of this disabling it is for, from 1.
    #[must_use]
    pub const fn tries(&self) -> u32 {
        self.value.tries
    }

    /// What the one before showed.
    #[must_use]
    pub const fn last(&self) -> Option<FailureKind> {
        self.value.last
    }
}

/// Why a source isn't to be probed now.
#[derive(Debug, thiserror::Error)]
pub enum NotNow {
    /// Somebody else probes it, or has just done so.
    #[error("it is probed by somebody else, or not due before {until}")]
    Until {
        /// Until when.
        until: LogTime,
    },
    /// The store can't say.
    #[error("the permit can't be had: {reason}")]
    Store {
        /// Why.
        reason: String,
    },
}

impl From<ReadError> for NotNow {
    fn from(error: ReadError) -> Self {
        Self::Store { reason: error.to_string() }
    }
}

/// Claims permits in the name of one process.
pub struct Permits {
    keyed: Arc<dyn Keyed>,
    holder: ProducerId,
    rhythm: Rhythm,
}

impl Permits {
    /// Permits in this store.
    #[must_use]
    pub fn new(keyed: Arc<dyn Keyed>, holder: ProducerId, rhythm: Rhythm) -> Self {
        Self { keyed, holder, rhythm }
    }

    /// Claims the permit for one probe that takes no longer than `life`.
    ///
    /// # Errors
    /// [`NotNow`].
    pub async fn claim(&self, wanted: &Wanted, now: LogTime, life: Duration) -> Result<Permit, NotNow> {
        let key = key(wanted.source, wanted.purpose);
        let found = self.keyed.get(Bucket::Permits, &key).await?;
        let (held, before) = match &found {
            None => (Held::Nothing, None),
            Some(entry) => (Held::Revision(entry.revision), serde_json::from_slice::<Hold>(&entry.value).ok()),
        };
        // An edit begins anew. A further disabling doesn't: a source that is brought back and disabled in turn would be
        // probed without a pause.
        let before = before.filter(|before| before.version == wanted.version && before.asked == wanted.asked);
        if let Some(before) = &before
            && before.until > now
        {
            return Err(NotNow::Until { until: before.until });
        }
        let last = before.as_ref().and_then(|before| before.last);
        let tries = before.map_or(1, |before| before.tries.saturating_add(1));
        let value = Hold {
            holder: self.holder.clone(),
            token: u64::try_from(now.as_micros()).unwrap_or(0),
            disabling: wanted.disabling.clone(),
            version: wanted.version,
            tries,
            until: now + life,
            asked: wanted.asked,
            under_way: true,
            last,
        };
        match self.write(&key, &value, held, life).await {
            Ok(revision) => Ok(Permit { revision, value }),
            Err(AppendError::Conflict) => Err(NotNow::Until { until: now + self.rhythm.first }),
            Err(error) => Err(NotNow::Store { reason: error.to_string() }),
        }
    }

    /// The probe is over: nobody probes before the rhythm's next beat, which is returned. A permit that was lost
    /// meanwhile is left to whoever has it.
    pub async fn keep(&self, wanted: &Wanted, permit: Permit, showed: FailureKind, now: LogTime) -> LogTime {
        let pause = match wanted.purpose {
            Purpose::Disabled => self.rhythm.after(permit.value.tries),
            Purpose::Check { every } => every,
        };
        let until = now + pause;
        let token = u64::try_from(now.as_micros()).unwrap_or(0);
        let value = Hold { until, token, under_way: false, last: Some(showed), ..permit.value };
        let held = Held::Revision(permit.revision);
        if let Err(error) = self.write(&key(wanted.source, wanted.purpose), &value, held, pause).await {
            tracing::debug!(%error, source = %wanted.source, "a probe's permit couldn't be kept");
        }
        until
    }

    /// The source is back: the permit is no longer needed.
    pub async fn give_up(&self, wanted: &Wanted, permit: &Permit) {
        let held = Held::Revision(permit.revision);
        if let Err(error) =
            settle::delete(self.keyed.as_ref(), Bucket::Permits, &key(wanted.source, wanted.purpose), held).await
        {
            // It expires by itself.
            tracing::debug!(%error, source = %wanted.source, "a probe's permit couldn't be given up");
        }
    }

    async fn write(&self, key: &str, value: &Hold, held: Held, holds: Duration) -> Result<u64, AppendError> {
        let bytes = serde_json::to_vec(value).map_err(|e| AppendError::Refused { reason: e.to_string() })?;
        let ttl = Some(holds + KEPT_LONGER);
        settle::write(self.keyed.as_ref(), Bucket::Permits, key, &Bytes::from(bytes), held, ttl).await
    }
}

#[cfg(test)]
mod tests {
    use waybill_event::{Source, SourceKind};
    use waybill_journal::memory::Memory;

    use super::*;

    const LIFE: Duration = Duration::from_secs(45);
    const AUTH: FailureKind = FailureKind::AuthInvalid;

    fn at(seconds: i64) -> LogTime {
        LogTime::from_micros(seconds * 1_000_000)
    }

    fn wanted(disabling: &str, version: u64) -> Wanted {
        let source = Source { kind: SourceKind::Channel, id: 1 };
        Wanted { source, purpose: Purpose::Disabled, disabling: disabling.into(), since: at(0), version, asked: None }
    }

    fn fleet() -> [Permits; 2] {
        let memory = Memory::new(Arc::new(|| LogTime::from_micros(0)));
        ["upkeep-1", "upkeep-2"]
            .map(|name| Permits::new(memory.journal().keyed, name.parse().unwrap(), Rhythm::default()))
    }

    async fn refused(permits: &Permits, wanted: &Wanted, now: LogTime) -> LogTime {
        match permits.claim(wanted, now, LIFE).await {
            Err(NotNow::Until { until }) => until,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn one_prober_at_a_time_over_the_whole_fleet() {
        let [one, two] = fleet();
        let wanted = wanted("a", 1);
        let permit = one.claim(&wanted, at(0), LIFE).await.unwrap();
        assert_eq!(permit.tries(), 1);
        assert_eq!(refused(&two, &wanted, at(10)).await, at(45));
        assert_eq!(one.keep(&wanted, permit, AUTH, at(2)).await, at(62));
        assert_eq!(refused(&two, &wanted, at(50)).await, at(62));
        let second = two.claim(&wanted, at(62), LIFE).await.unwrap();
        assert_eq!(second.tries(), 2, "the fleet counts together");
        assert_eq!(two.keep(&wanted, second, AUTH, at(63)).await, at(183));
    }

    #[tokio::test]
    async fn a_prober_that_died_holds_nobody_back_for_long() {
        let [one, two] = fleet();
        let wanted = wanted("a", 1);
        one.claim(&wanted, at(0), LIFE).await.unwrap();
        assert_eq!(two.claim(&wanted, at(45), LIFE).await.unwrap().tries(), 2);
    }

    #[tokio::test]
    async fn an_edit_begins_anew_and_a_further_disabling_does_not() {
        let [one, two] = fleet();
        let permit = one.claim(&wanted("a", 1), at(0), LIFE).await.unwrap();
        one.keep(&wanted("a", 1), permit, AUTH, at(1)).await;
        assert_eq!(refused(&two, &wanted("b", 1), at(30)).await, at(61));
        let asked = Wanted { asked: Some(at(30)), ..wanted("b", 1) };
        assert_eq!(two.claim(&asked, at(30), LIFE).await.unwrap().tries(), 1, "an operator's wish begins anew too");
        assert_eq!(two.claim(&wanted("b", 2), at(31), LIFE).await.unwrap().tries(), 1);
    }

    #[tokio::test]
    async fn a_check_has_a_permit_of_its_own_and_remembers_what_it_showed() {
        let [one, two] = fleet();
        one.claim(&wanted("a", 1), at(0), LIFE).await.unwrap();
        let every = Duration::from_secs(30);
        let check = Wanted { purpose: Purpose::Check { every }, ..wanted("", 1) };
        let permit = one.claim(&check, at(0), LIFE).await.unwrap();
        assert_eq!(permit.last(), None);
        assert_eq!(one.keep(&check, permit, AUTH, at(1)).await, at(31));
        assert_eq!(refused(&two, &check, at(20)).await, at(31));
        assert_eq!(two.claim(&check, at(31), LIFE).await.unwrap().last(), Some(AUTH));
    }

    #[tokio::test]
    async fn what_is_given_up_is_free() {
        let [one, two] = fleet();
        let permit = one.claim(&wanted("a", 1), at(0), LIFE).await.unwrap();
        one.give_up(&wanted("a", 1), &permit).await;
        assert_eq!(two.claim(&wanted("a", 1), at(0), LIFE).await.unwrap().tries(), 1);
    }
}
