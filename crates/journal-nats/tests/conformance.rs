//! The conformance suite over real servers: one node, and a cluster of three, where compare-and-set answers differently.
#![expect(clippy::unwrap_used, reason = "tests")]

use tempfile::TempDir;
use waybill_journal::conformance::{Answers, Suite};
use waybill_journal_nats::{NatsConfig, SetupConfig, connect};
use waybill_services::{Finder, Launcher, Nats, NatsCluster, NatsConfig as ServerConfig};

fn client(url: String) -> NatsConfig {
    NatsConfig::new(
        url.split(',').map(str::to_owned).collect(),
        "tester".to_owned(),
        "none".into(),
        "conformance".to_owned(),
    )
}

async fn check(url: String, config: SetupConfig) {
    let connection = connect(client(url)).await.unwrap();
    connection.setup(&config).await.unwrap();
    // A second set-up changes nothing and fails at nothing.
    connection.setup(&config).await.unwrap();
    Suite::new(connection.journal(), Answers::Always).run().await;
    connection.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_node_conforms() {
    let dir = TempDir::new().unwrap();
    let finder = Finder::new(dir.path());
    let server = Nats::start(&Launcher::UtilLinux, &finder, ServerConfig::new(dir.path().join("nats"))).await.unwrap();
    check(server.url(), SetupConfig::single_node()).await;
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_three_conforms() {
    let dir = TempDir::new().unwrap();
    let finder = Finder::new(dir.path());
    let config = ServerConfig::new(dir.path().join("nats"));
    let cluster = NatsCluster::start(&Launcher::UtilLinux, &finder, 3, config).await.unwrap();
    let config = SetupConfig { traffic_max_bytes: 256 << 20, ..SetupConfig::three_nodes() };
    check(cluster.url(), config).await;
    cluster.stop().await.unwrap();
}
