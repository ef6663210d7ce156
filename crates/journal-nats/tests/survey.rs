//! What is found out about the servers and streams that promises are made of.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use tempfile::TempDir;
use waybill_journal_nats::{Durability, DurabilityError, NatsConfig, SetupConfig, connect, durability};
use waybill_services::{Finder, Launcher, Nats, NatsConfig as ServerConfig};

async fn server(dir: &TempDir, sync_always: bool) -> Nats {
    let config = ServerConfig { sync_always, ..ServerConfig::new(dir.path().join("nats")) };
    Nats::start(&Launcher::UtilLinux, &Finder::new(dir.path()), config).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_says_whether_it_syncs() {
    for (sync_always, expected) in
        [(true, Durability::Synced), (false, Durability::Periodic { every: Duration::from_secs(120) })]
    {
        let dir = TempDir::new().unwrap();
        let server = server(&dir, sync_always).await;
        assert_eq!(durability(&server.monitor_url()).await.unwrap(), expected);
        server.stop().await.unwrap();
        assert!(durability(&server.monitor_url()).await.is_err());
    }
    assert!(matches!(durability("127.0.0.1:1").await, Err(DurabilityError::Address(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_found_and_weaker_ones_named() {
    let dir = TempDir::new().unwrap();
    let server = server(&dir, false).await;
    let config = NatsConfig::new(vec![server.url()], "tester".to_owned(), "none".into(), "survey".to_owned());
    let connection = connect(config).await.unwrap();
    let before = connection.survey().await;
    assert!(before.streams.iter().all(|stream| stream.found.is_err()) && before.round_trip.is_none());
    connection.setup(&SetupConfig::single_node()).await.unwrap();
    let survey = connection.survey().await;
    assert!(survey.server.starts_with("2.") && survey.round_trip.is_some(), "{survey:?}");
    assert!(survey.streams.len() == 7 && survey.streams.iter().all(|stream| stream.found.is_ok()), "{survey:?}");
    assert!(survey.weaker_than(1).is_empty());
    let weaker = survey.weaker_than(3);
    assert_eq!(weaker.len(), 7);
    assert!(weaker.contains(&"WB_CONFIG has 1 of the 3 copies that are promised".to_owned()), "{weaker:?}");
    connection.close().await;
    server.stop().await.unwrap();
}
