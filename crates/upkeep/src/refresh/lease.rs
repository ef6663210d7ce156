//! One process at a time uses an account's refresh token, over the whole fleet.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use waybill_domain::refreshing::{Lease, lease_key};
use waybill_event::{LogTime, ProducerId};
use waybill_journal::log::{AppendError, ReadError};
use waybill_journal::{Bucket, Held, Keyed, settle};

/// How much longer the value is kept than it holds.
const KEPT_LONGER: Duration = Duration::from_secs(60);

/// Why a refresh token isn't to be used now.
#[derive(Debug, thiserror::Error)]
pub enum NotNow {
    /// Somebody else uses it, or died over it and may come back with the next one.
    #[error("somebody else refreshes it until {until}")]
    Until {
        /// Until when.
        until: LogTime,
    },
    /// The store can't say.
    #[error("the lease can't be had: {reason}")]
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

/// A claimed lease.
#[derive(Debug, Clone, Copy)]
pub struct Claimed {
    account: u64,
    revision: u64,
}

/// Claims leases in the name of one process.
pub struct Leases {
    keyed: Arc<dyn Keyed>,
    holder: ProducerId,
    /// How long others wait from a claim on.
    holds: Duration,
}

impl Leases {
    /// Leases in this store.
    #[must_use]
    pub fn new(keyed: Arc<dyn Keyed>, holder: ProducerId, holds: Duration) -> Self {
        Self { keyed, holder, holds }
    }

    /// Claims the use of the refresh token of these tokens. Its own lease from an earlier start a process takes over: what
    /// it had got then it would have found.
    ///
    /// # Errors
    /// [`NotNow`].
    pub async fn claim(&self, account: u64, revision: u64, now: LogTime) -> Result<Claimed, NotNow> {
        let key = lease_key(account);
        let found = self.keyed.get(Bucket::Permits, &key).await?;
        let held = found.as_ref().map_or(Held::Nothing, |entry| Held::Revision(entry.revision));
        let stands = found.and_then(|entry| serde_json::from_slice::<Lease>(&entry.value).ok());
        if let Some(lease) = stands
            && lease.holder != self.holder
            && lease.revision >= revision
            && lease.until > now
        {
            return Err(NotNow::Until { until: lease.until });
        }
        let token = u64::try_from(now.as_micros()).unwrap_or(0);
        let lease = Lease { holder: self.holder.clone(), token, revision, until: now + self.holds };
        let value = serde_json::to_vec(&lease).map_err(|e| NotNow::Store { reason: e.to_string() })?;
        let ttl = Some(self.holds + KEPT_LONGER);
        let keyed = self.keyed.as_ref();
        match settle::write(keyed, Bucket::Permits, &key, &Bytes::from(value), held, ttl).await {
            Ok(revision) => Ok(Claimed { account, revision }),
            Err(AppendError::Conflict) => Err(NotNow::Until { until: now + Duration::from_secs(1) }),
            Err(error) => Err(NotNow::Store { reason: error.to_string() }),
        }
    }

    /// What came of it is known. A lease that can't be given up lapses by itself.
    pub async fn give_up(&self, claimed: Claimed) {
        let Claimed { account, revision } = claimed;
        let deleted =
            settle::delete(self.keyed.as_ref(), Bucket::Permits, &lease_key(account), Held::Revision(revision)).await;
        if let Err(error) = deleted {
            tracing::debug!(%error, account, "the lease of a refresh couldn't be given up");
        }
    }
}

#[cfg(test)]
mod tests {
    use waybill_journal::memory::Memory;

    use super::*;

    const HOLDS: Duration = Duration::from_secs(140);

    fn at(seconds: i64) -> LogTime {
        LogTime::from_micros(seconds * 1_000_000)
    }

    fn fleet() -> [Leases; 2] {
        let memory = Memory::new(Arc::new(|| LogTime::from_micros(0)));
        ["upkeep-1", "upkeep-2"].map(|name| Leases::new(memory.journal().keyed, name.parse().unwrap(), HOLDS))
    }

    async fn refused(leases: &Leases, revision: u64, now: LogTime) -> LogTime {
        match leases.claim(7, revision, now).await {
            Err(NotNow::Until { until }) => until,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_refresh_token_is_used_by_one_at_a_time() {
        let [one, two] = fleet();
        let claimed = one.claim(7, 5, at(0)).await.unwrap();
        assert_eq!(refused(&two, 5, at(10)).await, at(140));
        two.claim(8, 5, at(10)).await.unwrap();
        one.give_up(claimed).await;
        two.claim(7, 5, at(11)).await.unwrap();
    }

    #[tokio::test]
    async fn others_wait_for_one_who_died_and_he_himself_does_not() {
        let [one, two] = fleet();
        one.claim(7, 5, at(0)).await.unwrap();
        assert_eq!(refused(&two, 5, at(139)).await, at(140));
        one.claim(7, 5, at(20)).await.unwrap();
        assert_eq!(refused(&two, 5, at(140)).await, at(160));
        two.claim(7, 5, at(160)).await.unwrap();
    }

    #[tokio::test]
    async fn a_lease_on_older_tokens_holds_nobody_back() {
        let [one, two] = fleet();
        one.claim(7, 5, at(0)).await.unwrap();
        two.claim(7, 6, at(1)).await.unwrap();
        assert_eq!(refused(&one, 6, at(2)).await, at(141));
    }
}
