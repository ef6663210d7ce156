//! A role that finds the log kept worse than its deployment promises isn't ready and says why: on real servers.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail where it stands")]

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use waybill_journal_nats::{NatsConfig, SetupConfig, connect};
use waybill_services::{Finder, Launcher, Nats, NatsCluster, NatsConfig as ServerConfig};

const PATIENCE: Duration = Duration::from_secs(30);

/// A projector as a process; it ends with this value. Postgres isn't needed for its readiness.
struct Projector {
    child: Child,
    ops: String,
    _dir: TempDir,
}

impl Projector {
    fn start(urls: &str, promise: &str, monitors: &[String]) -> Self {
        let dir = TempDir::new().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("password"), "none").unwrap();
        fs::write(path("postgres"), "postgres://nobody@127.0.0.1:1/none").unwrap();
        let urls: Vec<&str> = urls.split(',').collect();
        let text = format!(
            "name = \"projector-1\"\nops_listen = \"127.0.0.1:{port}\"\ndata_dir = {:?}\n[nats]\nurls = {urls:?}\n\
             user = \"tester\"\npassword_file = {:?}\npromise = {promise:?}\nmonitor_urls = {monitors:?}\n\
             [postgres]\nurl_file = {:?}\n",
            dir.path(),
            path("password"),
            path("postgres"),
        );
        fs::write(path("projector.toml"), text).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_waybill"))
            .args(["projector", "--config"])
            .arg(path("projector.toml"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, ops: format!("http://127.0.0.1:{port}"), _dir: dir }
    }

    /// What it says of the log's durability, once it has looked.
    async fn says(&self) -> (bool, String) {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let end = Instant::now() + PATIENCE;
        loop {
            if let Ok(answer) = http.get(format!("{}/readyz", self.ops)).send().await {
                let ready = answer.status().is_success();
                let told: Value = answer.json().await.unwrap();
                let all = told["dependencies"].as_array().unwrap();
                let one = all.iter().find(|one| one["name"] == "log_durability").unwrap();
                let state = one["state"].as_str().unwrap().to_owned();
                if !state.contains("not looked at yet") {
                    assert!(one["ready"] == true || !ready, "whoever isn't kept as promised isn't ready: {told}");
                    return (one["ready"] == true, state);
                }
            }
            assert!(Instant::now() < end, "it never said anything");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Projector {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

async fn set_up(url: &str, config: &SetupConfig) {
    let urls = url.split(',').map(str::to_owned).collect();
    let config_of = NatsConfig::new(urls, "tester".to_owned(), "none".into(), "durability".to_owned());
    let connection = connect(config_of).await.unwrap();
    let end = Instant::now() + PATIENCE;
    while let Err(error) = connection.setup(config).await {
        assert!(Instant::now() < end, "{error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    connection.close().await;
}

async fn check(url: &str, monitors: &[String], promise: &str, ready: bool, says: &str) {
    let projector = Projector::start(url, promise, monitors);
    let (found, state) = projector.says().await;
    assert_eq!(found, ready, "{promise}: {state}");
    assert!(state.contains(says), "{promise}: {state:?} doesn't say {says:?}");
}

async fn single(dir: &Path, sync_always: bool) -> Nats {
    let config = ServerConfig { sync_always, ..ServerConfig::new(dir) };
    let server = Nats::start(&Launcher::UtilLinux, &Finder::new(dir), config).await.unwrap();
    set_up(&server.url(), &SetupConfig::single_node()).await;
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_keeps_what_one_node_can() {
    let dir = TempDir::new().unwrap();
    let lax = single(&dir.path().join("lax"), false).await;
    let (url, monitors) = (lax.url(), [lax.monitor_url()]);
    check(&url, &[], "dev", true, "a power cut may lose").await;
    check(&url, &monitors, "single", false, "doesn't sync every write").await;
    check(&url, &[], "single", true, "isn't seen").await;
    lax.stop().await.unwrap();
    let strict = single(&dir.path().join("strict"), true).await;
    let (url, monitors) = (strict.url(), [strict.monitor_url()]);
    check(&url, &monitors, "single", true, "every write is synced at 1 of 1 nodes").await;
    check(&url, &monitors, "replicated", false, "promised: 3").await;
    strict.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_keep_what_three_can() {
    let dir = TempDir::new().unwrap();
    let config = ServerConfig { sync_always: true, ..ServerConfig::new(dir.path().join("nats")) };
    let cluster = NatsCluster::start(&Launcher::UtilLinux, &Finder::new(dir.path()), 3, config).await.unwrap();
    set_up(&cluster.url(), &SetupConfig { traffic_max_bytes: 64 << 20, ..SetupConfig::three_nodes() }).await;
    let monitors: Vec<String> = cluster.nodes().iter().map(Nats::monitor_url).collect();
    check(&cluster.url(), &monitors, "replicated", true, "copies: 3; every write is synced at 3 of 3 nodes").await;
    cluster.stop().await.unwrap();
}
