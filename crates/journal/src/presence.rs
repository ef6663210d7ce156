//! Presence: each process's beat in the log's keyed state. The own beat, read back by the own watch, sets the clock; the
//! others' tell who is there and how busy they are.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use waybill_event::{Boot, ConfigPosition, ProducerId, Source, UsageWindow};

use crate::clock::LogClock;
use crate::keyed::{Bucket, Held, Keyed, Watched};

/// One beat a second, gone after five.
const BEAT: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(5);
/// Beats whose instants of sending are remembered until they are read back.
const REMEMBERED: usize = 16;
/// Sources that one beat tells of; the busiest, where there are more.
const TOLD: usize = 4_096;
/// Accounts whose usage windows one beat tells of; those told of last, where there are more.
const HEADROOM_TOLD: usize = 256;

/// What a process tells of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// The process.
    pub replica: ProducerId,
    /// Its start.
    pub boot: Boot,
    /// Its role.
    pub role: String,
    /// Number of the beat in this start, from 1.
    pub n: u64,
    /// What it reports.
    #[serde(flatten)]
    pub report: Report,
}

/// What a process reports with each beat.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Report {
    /// Requests in flight.
    pub in_flight: u64,
    /// Attempts in flight at each source that has any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", with = "by_name")]
    pub busy: BTreeMap<Source, u32>,
    /// What upstreams told this process of the usage windows of accounts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", with = "by_name")]
    pub headroom: BTreeMap<Source, Vec<UsageWindow>>,
    /// Position in `WB_CONFIG` in force.
    pub config: ConfigPosition,
    /// Bytes in its outbox.
    pub outbox_bytes: u64,
    /// Sequence in the traffic stream up to which the read models hold everything; only whoever folds them tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_folded: Option<u64>,
    /// Sequence in the traffic stream up to which the selector's state is folded; only whoever folds it tells it. What is
    /// written of it may be seconds older.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector_folded: Option<u64>,
}

/// What the others of a process's role have under way, as far as their beats tell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Others {
    /// How many there are.
    pub count: u32,
    /// Attempts in flight at each source, all of them together.
    pub busy: BTreeMap<Source, u32>,
}

/// A beat, and the own steady time at which it was heard.
struct Heard {
    beat: Beat,
    at: i64,
}

/// A process's presence and its picture of the others'.
pub struct Presence {
    keyed: Arc<dyn Keyed>,
    replica: ProducerId,
    boot: Boot,
    role: String,
    clock: LogClock,
    sent: Mutex<VecDeque<(u64, i64)>>,
    heard: Mutex<BTreeMap<String, Heard>>,
}

impl Presence {
    /// A presence that doesn't beat yet.
    #[must_use]
    pub fn new(
        keyed: Arc<dyn Keyed>,
        replica: ProducerId,
        boot: Boot,
        role: impl Into<String>,
        clock: LogClock,
    ) -> Self {
        let (sent, heard) = (Mutex::default(), Mutex::default());
        Self { keyed, replica, boot, role: role.into(), clock, sent, heard }
    }

    /// All processes that are there, this one included, by their names.
    #[must_use]
    pub fn fleet(&self) -> BTreeMap<String, Beat> {
        self.heard.lock().iter().map(|(name, heard)| (name.clone(), heard.beat.clone())).collect()
    }

    /// What the others of this role have under way. A beat that isn't followed by another one counts until it has
    /// expired, also while the store can't be reached.
    #[must_use]
    pub fn others(&self) -> Others {
        let life = i64::try_from(TTL.as_micros()).unwrap_or(i64::MAX);
        let now = self.clock.steady();
        let mut others = Others::default();
        for Heard { beat, at } in self.heard.lock().values() {
            if beat.role != self.role || beat.replica == self.replica || now.saturating_sub(*at) >= life {
                continue;
            }
            others.count = others.count.saturating_add(1);
            for (source, busy) in &beat.report.busy {
                let sum = others.busy.entry(*source).or_default();
                *sum = sum.saturating_add(*busy);
            }
        }
        others
    }

    /// Beats and watches until `stop`, then leaves. `report` is asked before each beat.
    pub async fn run(&self, report: impl Fn() -> Report + Send, stop: CancellationToken) {
        let beating = self.beat(report);
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = beating => {}
            () = self.watch() => {}
        }
        let left = self.keyed.delete(Bucket::Presence, self.replica.as_str(), Held::Anything);
        let _lapses_otherwise = tokio::time::timeout(BEAT, left).await;
    }

    async fn beat(&self, report: impl Fn() -> Report + Send) {
        let mut n = 0;
        loop {
            n += 1;
            let report = told(report());
            let beat = Beat { replica: self.replica.clone(), boot: self.boot, role: self.role.clone(), n, report };
            match serde_json::to_vec(&beat) {
                Ok(value) => self.tell(n, Bytes::from(value)).await,
                Err(error) => tracing::error!(%error, "a beat can't be written"),
            }
            tokio::time::sleep(BEAT).await;
        }
    }

    async fn tell(&self, n: u64, beat: Bytes) {
        {
            let mut sent = self.sent.lock();
            sent.push_back((n, self.clock.steady()));
            let surplus = sent.len().saturating_sub(REMEMBERED);
            sent.drain(..surplus);
        }
        let key = self.replica.as_str();
        if let Err(error) = self.keyed.write(Bucket::Presence, key, beat, Held::Anything, Some(TTL)).await {
            tracing::debug!(%error, "a beat was lost");
        }
    }

    async fn watch(&self) {
        let mut changes = self.keyed.watch(Bucket::Presence);
        while let Some(change) = changes.next().await {
            match change {
                Ok(Watched::Put(entry)) => {
                    let Ok(beat) = serde_json::from_slice::<Beat>(&entry.value) else { continue };
                    if beat.replica == self.replica && beat.boot == self.boot {
                        let sent = self.sent.lock().iter().find(|(n, _)| *n == beat.n).map(|(_, at)| *at);
                        if let Some(sent) = sent {
                            self.clock.observe(sent, entry.stored_at);
                        }
                    }
                    let at = self.clock.steady();
                    self.heard.lock().insert(entry.key, Heard { beat, at });
                }
                Ok(Watched::Gone { key, .. }) => {
                    self.heard.lock().remove(&key);
                }
                Ok(Watched::Current) => {}
                Err(error) => tracing::debug!(%error, "presence can't be watched just now"),
            }
        }
    }
}

/// A report that fits into a beat.
fn told(mut report: Report) -> Report {
    if report.busy.len() > TOLD {
        let mut busiest: Vec<(Source, u32)> = report.busy.into_iter().collect();
        busiest.sort_by_key(|(source, busy)| (std::cmp::Reverse(*busy), *source));
        report.busy = busiest.into_iter().take(TOLD).collect();
    }
    if report.headroom.len() > HEADROOM_TOLD {
        let newest = |windows: &[UsageWindow]| windows.iter().map(|window| window.seen_at).max();
        let mut latest: Vec<(Source, Vec<UsageWindow>)> = report.headroom.into_iter().collect();
        latest.sort_by_key(|(source, windows)| (std::cmp::Reverse(newest(windows)), *source));
        report.headroom = latest.into_iter().take(HEADROOM_TOLD).collect();
    }
    report
}

/// Sources as names of a JSON object's members.
mod by_name {
    use std::collections::BTreeMap;

    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::{Serialize, Serializer};
    use waybill_event::Source;

    pub fn serialize<T: Serialize, S: Serializer>(
        told: &BTreeMap<Source, T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(told.iter().map(|(source, told)| (source.to_string(), told)))
    }

    pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<Source, T>, D::Error> {
        let named = BTreeMap::<String, T>::deserialize(deserializer)?;
        named.into_iter().map(|(name, told)| Ok((name.parse().map_err(D::Error::custom)?, told))).collect()
    }
}

#[cfg(test)]
mod tests;
