//! Whether the log is kept as the deployment promises: copies of the streams by what the log says, synced writes by what
//! the servers' monitoring pages say. A role that finds less than was promised is not ready.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use waybill_journal_nats::{Connection, Keeping, Kept};

use super::Booted;
use crate::ops::Dependency;

/// Copies of a stream that survive the loss of one.
const COPIES: usize = 3;
/// How often it is looked at until something is known, and afterwards.
const AT_FIRST: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_secs(15);
/// Time a monitoring page gets.
const DEADLINE: Duration = Duration::from_secs(2);

/// What the deployment promises of an acknowledged event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Promise {
    /// The death of a process loses none; a power cut may.
    #[default]
    Dev,
    /// The crash of the machine loses none: one node that syncs every write.
    Single,
    /// The loss of any one node loses none either: three copies, each node syncing every write.
    Replicated,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Found {
    /// Nothing yet.
    Nothing(String),
    /// What was promised, as far as could be seen.
    Kept(String),
    /// Less.
    Weaker(String),
}

/// How the log is kept, as far as is known.
pub struct Durability {
    found: Mutex<Found>,
}

/// Looks at the log from now on, until the role stops.
///
/// # Errors
/// No HTTP client can be built.
pub fn watch(booted: &Booted, connection: &Connection) -> anyhow::Result<Arc<Durability>> {
    let nats = &booted.config.nats;
    let found = match nats.promise {
        Promise::Dev => Found::Kept("dev: a power cut may lose what was acknowledged".to_owned()),
        Promise::Single | Promise::Replicated => Found::Nothing("not looked at yet".to_owned()),
    };
    let durability = Arc::new(Durability { found: Mutex::new(found) });
    if nats.promise == Promise::Dev {
        return Ok(durability);
    }
    let watch = Watch {
        promise: nats.promise,
        keeping: connection.keeping(),
        monitors: nats.monitor_urls.clone(),
        http: reqwest::Client::builder().no_proxy().timeout(DEADLINE).build()?,
        synced: BTreeMap::new(),
        durability: Arc::clone(&durability),
    };
    let stop = booted.stop.clone();
    booted.tasks.spawn(async move {
        let _stopped = stop.run_until_cancelled(watch.run()).await;
    });
    Ok(durability)
}

impl Durability {
    /// As a dependency of the role.
    #[must_use]
    pub fn dependency(&self) -> Dependency {
        let (ready, state) = match &*self.found.lock() {
            Found::Kept(how) => (true, how.clone()),
            Found::Nothing(why) | Found::Weaker(why) => (false, why.clone()),
        };
        Dependency::new("log_durability", ready, state)
    }
}

struct Watch {
    promise: Promise,
    keeping: Keeping,
    monitors: Vec<String>,
    http: reqwest::Client,
    /// Whether each node syncs every write, as it last said.
    synced: BTreeMap<String, bool>,
    durability: Arc<Durability>,
}

#[derive(Deserialize)]
struct Jsz {
    config: JetStream,
}

#[derive(Deserialize)]
struct JetStream {
    /// Left out by servers that don't.
    #[serde(default)]
    sync_always: bool,
}

impl Watch {
    async fn run(mut self) {
        loop {
            for url in self.monitors.clone() {
                match self.ask(&url).await {
                    Ok(always) => {
                        self.synced.insert(url, always);
                    }
                    // A node that is away says nothing new.
                    Err(error) => tracing::debug!(url, %error, "a monitoring page can't be read"),
                }
            }
            let found = match self.keeping.ask().await {
                Ok(kept) => Some(judge(self.promise, &kept, &self.monitors, &self.synced)),
                Err(error) => {
                    let unknown = Found::Nothing(format!("how the log is kept can't be asked: {error}"));
                    let is_known = !matches!(*self.durability.found.lock(), Found::Nothing(_));
                    (!is_known).then_some(unknown)
                }
            };
            if let Some(found) = found {
                self.tell(found);
            }
            let known = !matches!(*self.durability.found.lock(), Found::Nothing(_));
            tokio::time::sleep(if known { LATER } else { AT_FIRST }).await;
        }
    }

    async fn ask(&self, url: &str) -> reqwest::Result<bool> {
        let page = self.http.get(format!("{}/jsz", url.trim_end_matches('/'))).send().await?.error_for_status()?;
        Ok(page.json::<Jsz>().await?.config.sync_always)
    }

    fn tell(&self, found: Found) {
        let mut held = self.durability.found.lock();
        if *held != found {
            match &found {
                Found::Kept(how) => tracing::info!(how, "the log is kept as promised"),
                Found::Nothing(why) => tracing::warn!(why, "whether the log is kept as promised isn't known"),
                Found::Weaker(why) => tracing::error!(why, "the log isn't kept as promised"),
            }
            *held = found;
        }
    }
}

/// What was found against what was promised.
fn judge(promise: Promise, kept: &[Kept], monitors: &[String], synced: &BTreeMap<String, bool>) -> Found {
    let wanted = match promise {
        Promise::Dev => return Found::Kept("nothing is promised".to_owned()),
        Promise::Single => 1,
        Promise::Replicated => COPIES,
    };
    if let Some(one) = kept.iter().find(|one| !one.on_disk) {
        return Found::Weaker(format!("{} is kept in memory", one.stream));
    }
    if let Some(one) = kept.iter().find(|one| one.copies < wanted) {
        return Found::Weaker(format!("{} has copies: {}; promised: {wanted}", one.stream, one.copies));
    }
    if let Some((url, _)) = synced.iter().find(|(_, always)| !**always) {
        return Found::Weaker(format!("the server at {url} doesn't sync every write (sync_interval: always)"));
    }
    let copies = kept.iter().map(|one| one.copies).min().unwrap_or(0);
    match (monitors.len(), synced.len()) {
        (0, _) => Found::Kept(format!("copies: {copies}; whether writes are synced isn't seen: no monitor_urls")),
        (_, 0) => Found::Nothing("whether writes are synced isn't known: no monitoring page answers".to_owned()),
        (all, seen) => Found::Kept(format!("copies: {copies}; every write is synced at {seen} of {all} nodes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(copies: usize, on_disk: bool) -> Vec<Kept> {
        ["WB_CONFIG", "WB_TRAFFIC_0"].map(|name| Kept { stream: name.to_owned(), copies, on_disk }).to_vec()
    }

    #[track_caller]
    fn check(promise: Promise, kept: &[Kept], synced: &[Option<bool>], expected: Result<&str, &str>) {
        let monitors: Vec<String> = (1..=synced.len()).map(|n| format!("http://n{n}:8222")).collect();
        let said = monitors.iter().cloned().zip(synced).filter_map(|(url, said)| Some((url, (*said)?))).collect();
        let (found, expected) = match (judge(promise, kept, &monitors, &said), expected) {
            (Found::Kept(how), Ok(expected)) => (how, expected),
            (Found::Weaker(why) | Found::Nothing(why), Err(expected)) => (why, expected),
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        };
        assert!(found.contains(expected), "{found:?} doesn't say {expected:?}");
    }

    #[test]
    fn what_is_found_is_held_against_the_promise() {
        let always = Some(true);
        check(Promise::Single, &kept(1, true), &[always], Ok("1 of 1"));
        check(Promise::Single, &kept(1, true), &[], Ok("isn't seen"));
        check(Promise::Single, &kept(1, true), &[Some(false)], Err("n1:8222 doesn't sync"));
        check(Promise::Single, &kept(1, true), &[None], Err("isn't known"));
        check(Promise::Single, &kept(1, false), &[always], Err("in memory"));
        check(Promise::Replicated, &kept(1, true), &[always], Err("WB_CONFIG has copies: 1; promised: 3"));
        check(Promise::Replicated, &kept(3, true), &[always, always, always], Ok("3 of 3"));
        check(Promise::Replicated, &kept(3, true), &[always, None, always], Ok("2 of 3"));
        check(Promise::Replicated, &kept(3, true), &[always, always, Some(false)], Err("n3:8222"));
    }
}
