use std::path::Path;

use waybill_services::{Finder, Nats, NatsConfig, Postgres, PostgresConfig};

use super::setting::launcher;

/// As on a machine without any of the two servers.
fn bare(dir: &Path) -> Finder {
    Finder { installed: false, cache: dir.join("cache"), ..Finder::new(dir) }
}

#[tokio::test]
async fn two_starters_fetch_once_and_what_was_fetched_runs() {
    let dir = tempfile::tempdir().unwrap();
    let finder = bare(dir.path());
    let (one, two) = tokio::join!(finder.postgres(None), finder.postgres(None));
    assert_eq!(one.unwrap(), two.unwrap());
    let config = PostgresConfig { durable: false, ..PostgresConfig::new(dir.path().join("pg")) };
    let postgres = Postgres::start(&launcher(), &finder, config).await.unwrap();
    let nats = Nats::start(&launcher(), &finder, NatsConfig::new(dir.path().join("nats"))).await.unwrap();
    assert!(postgres.version().major >= 15 && nats.version().major >= 2);
    nats.stop().await.unwrap();
    postgres.destroy().await.unwrap();
    let mut cached: Vec<String> = std::fs::read_dir(dir.path().join("cache"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    cached.sort();
    assert!(cached[0] == ".lock" && cached.len() == 3, "{cached:?}");
}
