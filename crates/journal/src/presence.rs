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
use waybill_event::{Boot, ConfigPosition, ProducerId};

use crate::clock::LogClock;
use crate::keyed::{Bucket, Held, Keyed, Watched};

/// One beat a second, gone after five.
const BEAT: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(5);
/// Beats whose instants of sending are remembered until they are read back.
const REMEMBERED: usize = 16;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Report {
    /// Requests in flight.
    pub in_flight: u64,
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

/// A process's presence and its picture of the others'.
pub struct Presence {
    keyed: Arc<dyn Keyed>,
    replica: ProducerId,
    boot: Boot,
    role: String,
    clock: LogClock,
    sent: Mutex<VecDeque<(u64, i64)>>,
    others: Mutex<BTreeMap<String, Beat>>,
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
        let (sent, others) = (Mutex::default(), Mutex::default());
        Self { keyed, replica, boot, role: role.into(), clock, sent, others }
    }

    /// All processes that are there, this one included, by their names.
    #[must_use]
    pub fn fleet(&self) -> BTreeMap<String, Beat> {
        self.others.lock().clone()
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
            let beat =
                Beat { replica: self.replica.clone(), boot: self.boot, role: self.role.clone(), n, report: report() };
            if let Ok(value) = serde_json::to_vec(&beat) {
                {
                    let mut sent = self.sent.lock();
                    sent.push_back((n, self.clock.steady()));
                    let surplus = sent.len().saturating_sub(REMEMBERED);
                    sent.drain(..surplus);
                }
                let (key, value) = (self.replica.as_str(), Bytes::from(value));
                if let Err(error) = self.keyed.write(Bucket::Presence, key, value, Held::Anything, Some(TTL)).await {
                    tracing::debug!(%error, "a beat was lost");
                }
            }
            tokio::time::sleep(BEAT).await;
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
                    self.others.lock().insert(entry.key, beat);
                }
                Ok(Watched::Gone { key, .. }) => {
                    self.others.lock().remove(&key);
                }
                Ok(Watched::Current) => {}
                Err(error) => tracing::debug!(%error, "presence can't be watched just now"),
            }
        }
    }
}

#[cfg(test)]
mod tests;
