//! What tests do to the processes of a fleet, and what these say of themselves.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::{Fleet, Process};
use crate::process::{Descendants, signal, stands_still};
use crate::wait::{until, wait_until};

/// How long a process may take from its start to being ready.
const READY_DEADLINE: Duration = Duration::from_secs(30);
/// How long a process that may be frozen gets to answer.
const ASK: Duration = Duration::from_secs(2);

impl Fleet {
    /// A process by its name, as it runs now.
    ///
    /// # Panics
    /// When there is none of that name.
    #[must_use]
    pub fn process(&self, name: &str) -> Process {
        let addresses = self.addresses();
        match addresses.processes.iter().find(|process| process.name == name) {
            Some(process) => process.clone(),
            None => panic!("there is no process {name}, only {:?}", addresses.processes),
        }
    }

    /// All processes as they run now.
    #[must_use]
    pub fn processes(&self) -> Vec<Process> {
        self.addresses().processes
    }

    /// The id of `dev` itself.
    ///
    /// # Panics
    /// When the fleet isn't running.
    #[must_use]
    pub fn parent(&self) -> u32 {
        match &self.child {
            Some(child) => child.id(),
            None => panic!("the fleet isn't running"),
        }
    }

    /// Kills a process as a power cut would. Returns the id it had.
    pub fn kill9(&self, name: &str) -> u32 {
        let pid = self.process(name).pid;
        signal(pid, Signal::KILL);
        pid
    }

    /// Asks a process to stop, as an operator's tools do; `dev` starts it again when it has ended. Returns the id it had.
    pub fn terminate(&self, name: &str) -> u32 {
        let pid = self.process(name).pid;
        signal(pid, Signal::TERM);
        pid
    }

    /// How the ended starts of a process came to their ends, in `dev`'s words, e.g. `exit status: 0`.
    #[must_use]
    pub fn ends_of(&self, name: &str) -> Vec<String> {
        let log = std::fs::read_to_string(self.root().join("dev.log")).unwrap_or_default();
        let began = format!("! {name} ended (");
        let ends = log.lines().filter_map(|line| line.strip_prefix(&began)?.split_once(')'));
        ends.map(|(status, _)| status.to_owned()).collect()
    }

    /// The projector that leads a fold: `selector`, `config` or `traffic`.
    pub async fn fold_leader(&self, fold: &str) -> Option<String> {
        let leads = format!("waybill_fold_leading{{fold=\"{fold}\"}} 1");
        for process in self.processes().into_iter().filter(|process| process.name.starts_with("projector-")) {
            let Some(url) = process.ops_url else { continue };
            let asked = async { self.http.get(format!("{url}/metrics")).timeout(ASK).send().await?.text().await };
            if asked.await.is_ok_and(|metrics| metrics.lines().any(|line| line == leads)) {
                return Some(process.name);
            }
        }
        None
    }

    /// Kills a process and keeps it from being started again, until [`Fleet::give_back`].
    pub fn take_away(&self, name: &str) {
        signal(self.parent(), Signal::STOP);
        signal(self.process(name).pid, Signal::KILL);
    }

    /// Lets what was taken away be started again.
    pub fn give_back(&self) {
        signal(self.parent(), Signal::CONT);
    }

    /// Freezes a process and all that it has started; they stand still when this returns.
    ///
    /// # Panics
    /// When they don't within 5 s.
    pub fn sigstop(&self, name: &str) {
        let pids: Vec<u32> = Descendants::of(self.process(name).pid).pids().collect();
        pids.iter().for_each(|pid| signal(*pid, Signal::STOP));
        let deadline = Instant::now() + Duration::from_secs(5);
        while !pids.iter().all(|pid| stands_still(*pid)) {
            assert!(Instant::now() < deadline, "{name} doesn't stand still");
            std::thread::yield_now();
        }
    }

    /// Lets a frozen process and all that it has started go on.
    pub fn sigcont(&self, name: &str) {
        for pid in Descendants::of(self.process(name).pid).pids() {
            signal(pid, Signal::CONT);
        }
    }

    /// Waits until a process runs again under another id than `before` and is ready.
    ///
    /// # Panics
    /// When it isn't within 30 s.
    pub async fn restarted(&self, name: &str, before: u32) {
        wait_until(READY_DEADLINE, format_args!("{name} is started again"), async || {
            let now = self.process(name);
            until(now.pid != before, || format!("{now:?}"))
        })
        .await;
        self.ready(name).await;
    }

    /// Waits until a process is ready.
    ///
    /// # Panics
    /// When it isn't within 30 s.
    pub async fn ready(&self, name: &str) {
        wait_until(READY_DEADLINE, format_args!("{name} is ready"), async || match self.readiness(name).await {
            Some((200, _)) => Ok(()),
            other => Err(format!("{other:?}\n{}", self.diagnosis())),
        })
        .await;
    }

    /// What a process says of its readiness: the status and the document. `None` where it doesn't answer.
    pub async fn readiness(&self, name: &str) -> Option<(u16, Value)> {
        let url = format!("{}/readyz", self.ops_url(name));
        let answer = self.http.get(url).timeout(Duration::from_secs(5)).send().await.ok()?;
        Some((answer.status().as_u16(), answer.json().await.ok()?))
    }

    /// Whether a process says that it lives.
    pub async fn lives(&self, name: &str) -> bool {
        let url = format!("{}/healthz", self.ops_url(name));
        let answer = self.http.get(url).timeout(Duration::from_secs(5)).send().await;
        answer.is_ok_and(|answer| answer.status().is_success())
    }

    /// `/state` of a process.
    ///
    /// # Panics
    /// When it doesn't answer.
    pub async fn state(&self, name: &str) -> Value {
        let text = self.ops(name, "/state").await;
        match serde_json::from_str(&text) {
            Ok(state) => state,
            Err(error) => panic!("/state of {name}: {error}: {text}"),
        }
    }

    /// `/metrics` of a process.
    ///
    /// # Panics
    /// When it doesn't answer.
    pub async fn metrics(&self, name: &str) -> String {
        self.ops(name, "/metrics").await
    }

    /// Base URL of a process's health and metrics.
    ///
    /// # Panics
    /// When it has none.
    #[must_use]
    pub fn ops_url(&self, name: &str) -> String {
        match self.process(name).ops_url {
            Some(url) => url,
            None => panic!("{name} has no health of its own"),
        }
    }

    async fn ops(&self, name: &str, path: &str) -> String {
        let url = format!("{}{path}", self.ops_url(name));
        let asked = async { self.http.get(&url).send().await?.error_for_status()?.text().await };
        match asked.await {
            Ok(text) => text,
            Err(error) => panic!("{url}: {error}\n{}", self.diagnosis()),
        }
    }

    /// Waits until every proxy's catalogue has reached a position of the configuration.
    ///
    /// # Panics
    /// When one hasn't within 5 s.
    pub async fn everywhere(&self, position: u64) {
        for number in 1..=self.proxies().len() {
            let name = format!("proxy-{number}");
            let what = format!("{name} has configuration {position}");
            wait_until(Duration::from_secs(5), what, async || {
                let state = self.state(&name).await;
                until(state.get("config").and_then(Value::as_u64) >= Some(position), || state.to_string())
            })
            .await;
        }
    }

    /// What a proxy's `/state` says of a source, e.g. `channel:1`; null where it says nothing.
    pub async fn source_state(&self, proxy: &str, source: &str) -> Value {
        let state = self.state(proxy).await;
        let sources = state.get("sources").and_then(Value::as_array).cloned().unwrap_or_default();
        sources.into_iter().find(|s| s.get("source").and_then(Value::as_str) == Some(source)).unwrap_or_default()
    }
}
