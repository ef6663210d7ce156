//! A leader's lease: at most one process holds a key, for as long as it renews it. It gives liveness, somebody leads;
//! safety, nobody else writes, is the epoch's of what the leader writes.
//!
//! Whether it is held is judged by the holder's own monotonic clock, from the instant at which the last confirmed write
//! was sent: the store can't end it earlier.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use waybill_event::{Boot, ProducerId};

use crate::keyed::{Bucket, Held, Keyed};
use crate::log::AppendError;
use crate::settle;

/// How a lease is kept.
#[derive(Debug, Clone)]
pub struct LeaseConfig {
    /// What is led; the key is `leader.<name>`.
    pub name: String,
    /// Who wants to lead.
    pub holder: ProducerId,
    /// In which of its starts.
    pub boot: Boot,
    /// Life of the key in the store; whole seconds.
    pub ttl: Duration,
    /// How often it is renewed, and how often a taken one is asked for.
    pub beat: Duration,
    /// How much earlier than the store the holder takes it for ended.
    pub margin: Duration,
}

impl LeaseConfig {
    /// A life of 5 s, a beat of 1 s, a margin of 1 s.
    #[must_use]
    pub fn new(name: impl Into<String>, holder: ProducerId, boot: Boot) -> Self {
        Self {
            name: name.into(),
            holder,
            boot,
            ttl: Duration::from_secs(5),
            beat: Duration::from_secs(1),
            margin: Duration::from_secs(1),
        }
    }

    fn key(&self) -> String {
        format!("leader.{}", self.name)
    }
}

/// What stands under the key.
#[derive(Debug, Serialize, Deserialize)]
struct Claim {
    holder: ProducerId,
    boot: Boot,
    /// Rises with each write, so that no two writes bear the same value.
    beat: u64,
}

struct Leader {
    keyed: Arc<dyn Keyed>,
    config: LeaseConfig,
    beats: u64,
}

/// A lease that is held.
struct Term {
    revision: u64,
    /// Until when it is surely ours.
    ends: Instant,
}

/// Leads again and again until `stop`: waits for the lease, runs `work` with a token that is cancelled when the lease is
/// lost, and gives the lease back when `work` ends. `work` must end soon after its token is cancelled.
pub async fn lead<F, W>(keyed: Arc<dyn Keyed>, config: LeaseConfig, stop: CancellationToken, mut work: F)
where
    F: FnMut(CancellationToken) -> W,
    W: Future<Output = ()>,
{
    let mut leader = Leader { keyed, config, beats: 0 };
    while !stop.is_cancelled() {
        let term = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            term = leader.acquire() => term,
        };
        tracing::info!(fold = leader.config.name, "leading");
        let lost = CancellationToken::new();
        leader.keep(term, &lost, pin!(work(lost.clone()))).await;
        tracing::info!(fold = leader.config.name, "no longer leading");
        // Whoever could not go on gives another one the chance to lead.
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = sleep(leader.config.beat) => {}
        }
    }
}

impl Leader {
    async fn acquire(&mut self) -> Term {
        loop {
            match self.write(Held::Nothing).await {
                Ok(term) => return term,
                Err(AppendError::Conflict) => {}
                Err(error) => tracing::warn!(fold = self.config.name, %error, "the lease can't be asked for"),
            }
            sleep(self.config.beat / 2).await;
        }
    }

    async fn write(&mut self, held: Held) -> Result<Term, AppendError> {
        self.beats += 1;
        let claim = Claim { holder: self.config.holder.clone(), boot: self.config.boot, beat: self.beats };
        let value = serde_json::to_vec(&claim).map_err(|e| AppendError::Refused { reason: e.to_string() })?;
        let sent = Instant::now();
        let (key, ttl) = (self.config.key(), self.config.ttl);
        let revision =
            settle::write(self.keyed.as_ref(), Bucket::Permits, &key, &Bytes::from(value), held, Some(ttl)).await?;
        Ok(Term { revision, ends: sent + ttl.saturating_sub(self.config.margin) })
    }

    /// Renews the lease while the work goes on; ends with the work.
    async fn keep(
        &mut self,
        mut term: Term,
        lost: &CancellationToken,
        mut work: std::pin::Pin<&mut impl Future<Output = ()>>,
    ) {
        loop {
            let beat = self.config.beat;
            let renewed = tokio::select! {
                biased;
                () = &mut work => {
                    self.give_back(&term).await;
                    return;
                }
                () = sleep_until(term.ends) => None,
                renewed = async {
                    sleep(beat).await;
                    self.write(Held::Revision(term.revision)).await
                } => Some(renewed),
            };
            match renewed {
                Some(Ok(next)) => {
                    term = next;
                    continue;
                }
                // What is in the way may be an earlier renewal of ours that was never answered. When it was sent is not
                // known, so that it doesn't move the end.
                Some(Err(AppendError::Conflict)) => {
                    if let Some(revision) = self.ours().await {
                        term.revision = revision;
                        continue;
                    }
                }
                None => {}
                // Its end is known; until then it may still be confirmed.
                Some(Err(error)) => {
                    tracing::warn!(fold = self.config.name, %error, "the lease can't be renewed");
                    continue;
                }
            }
            tracing::warn!(fold = self.config.name, "the lease is lost");
            lost.cancel();
            work.await;
            return;
        }
    }

    /// The key's revision, if it is this process that holds it.
    async fn ours(&self) -> Option<u64> {
        let key = self.config.key();
        let found = tokio::time::timeout(self.config.beat, self.keyed.get(Bucket::Permits, &key));
        let found = found.await.ok()?.ok()??;
        let claim: Claim = serde_json::from_slice(&found.value).ok()?;
        (claim.holder == self.config.holder && claim.boot == self.config.boot).then_some(found.revision)
    }

    async fn give_back(&self, term: &Term) {
        let key = self.config.key();
        let giving = async {
            match self.keyed.delete(Bucket::Permits, &key, Held::Revision(term.revision)).await {
                // The work may have ended while a renewal was on its way.
                Err(AppendError::Conflict) => match self.ours().await {
                    Some(revision) => self.keyed.delete(Bucket::Permits, &key, Held::Revision(revision)).await,
                    None => Ok(()),
                },
                given => given,
            }
        };
        match tokio::time::timeout(self.config.ttl, giving).await {
            Ok(Ok(()) | Err(AppendError::Conflict)) => {}
            Ok(Err(error)) => tracing::debug!(fold = self.config.name, %error, "the lease lapses by itself"),
            Err(_) => tracing::debug!(fold = self.config.name, "the lease lapses by itself"),
        }
    }
}

#[cfg(test)]
mod tests;
