//! Servers that die under followers, watches and an outbox.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use waybill_event::control::OutboxDrained;
use waybill_event::{Boot, Draft, LogTime, decode_batch};
use waybill_journal::outbox::{Outbox, OutboxConfig};
use waybill_journal::{AppendError, Bucket, Expect, Held, Log, Message, Record, Start, Stream, Watched, settle};
use waybill_journal_nats::{Connection, NatsConfig, SetupConfig, connect};
use waybill_services::{Finder, Launcher, Nats, NatsCluster, NatsConfig as ServerConfig};

const PATIENCE: Duration = Duration::from_secs(60);

async fn connected(url: &str) -> Connection {
    let urls = url.split(',').map(str::to_owned).collect();
    connect(NatsConfig::new(urls, "tester".to_owned(), "none".into(), "outages".to_owned())).await.unwrap()
}

async fn patient<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.unwrap()
}

/// Appends until it is taken, under one message id.
async fn append(log: &dyn Log, n: u64) -> u64 {
    let record = Record {
        subject: "wb.traffic.0.proxy".to_owned(),
        message_id: Some(format!("message-{n}")),
        payload: Bytes::from(n.to_string()),
    };
    patient(async {
        loop {
            match log.append(Stream::Traffic, record.clone(), Expect::Anything).await {
                Ok(appended) => return appended.sequence,
                Err(AppendError::Unknown { .. }) => tokio::time::sleep(Duration::from_millis(50)).await,
                Err(error) => panic!("{error}"),
            }
        }
    })
    .await
}

/// The values that a watch has told, once the last one under `key` is `value`.
async fn watched(watching: &mut waybill_journal::keyed::Watching, key: &str, value: &[u8]) -> BTreeMap<String, Bytes> {
    patient(async {
        let mut told = BTreeMap::new();
        loop {
            match watching.next().await.unwrap() {
                Ok(Watched::Put(entry)) => {
                    let done = entry.key == key && entry.value == value;
                    told.insert(entry.key, entry.value);
                    if done {
                        return told;
                    }
                }
                Ok(Watched::Gone { key, .. }) => {
                    told.remove(&key);
                }
                Ok(Watched::Current) | Err(_) => {}
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn followers_and_watches_go_on_when_the_only_node_comes_back() {
    let dir = TempDir::new().unwrap();
    let config = ServerConfig::new(dir.path().join("nats"));
    let mut server = Nats::start(&Launcher::UtilLinux, &Finder::new(dir.path()), config).await.unwrap();
    let connection = connected(&server.url()).await;
    connection.setup(&SetupConfig::single_node()).await.unwrap();
    let journal = connection.journal();
    let mut following = journal.log.follow(Stream::Traffic, Start::At(1));
    let mut newest = journal.log.follow(Stream::Traffic, Start::LastPerSubject);
    let mut watches = Bucket::ALL.map(|bucket| (bucket, journal.keyed.watch(bucket)));
    for n in 1..=20 {
        append(journal.log.as_ref(), n).await;
    }
    for (bucket, watching) in &mut watches {
        // So many revisions that a bucket which begins anew stays below them.
        for n in 0..10 {
            let value = Bytes::from(format!("before {n}"));
            journal.keyed.write(*bucket, "kept", value, Held::Anything, None).await.unwrap();
        }
        watched(watching, "kept", b"before 9").await;
    }
    server.kill9().await.unwrap();
    server.restart().await.unwrap();
    for n in 21..=40 {
        append(journal.log.as_ref(), n).await;
    }
    let told: Vec<u64> = patient(async {
        let mut told = Vec::new();
        while told.len() < 40 {
            if let Ok(message) = following.next().await.unwrap() {
                told.push(String::from_utf8_lossy(&message.payload).parse().unwrap());
            }
        }
        told
    })
    .await;
    assert_eq!(told, (1..=40).collect::<Vec<_>>());
    patient(async {
        let mut last = 0;
        while last < 40 {
            if let Ok(message) = newest.next().await.unwrap() {
                assert!(message.sequence > last, "{} after {last}", message.sequence);
                last = message.sequence;
            }
        }
    })
    .await;
    for (bucket, watching) in &mut watches {
        let value = Bytes::from_static(b"after");
        settle::write(journal.keyed.as_ref(), *bucket, "kept", &value, Held::Anything, None).await.unwrap();
        watched(watching, "kept", b"after").await;
    }
    connection.close().await;
    server.stop().await.unwrap();
}

fn event(n: u64) -> waybill_event::envelope::Encoded {
    let at = LogTime::from_micros(1_790_000_000_000_000);
    let replica = "marked".parse().unwrap();
    Draft::new(at, OutboxDrained { replica, boot: Boot::new(at, 1), last: n }).encode().unwrap()
}

fn ordinals(messages: &[Message]) -> Vec<u64> {
    let events = messages.iter().flat_map(|message| decode_batch(&message.payload).unwrap());
    events.map(|event| event.unwrap().identity.mark().unwrap().n).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outbox_loses_and_doubles_nothing_while_nodes_of_a_cluster_die() {
    let dir = TempDir::new().unwrap();
    let config = ServerConfig::new(dir.path().join("nats"));
    let mut cluster = NatsCluster::start(&Launcher::UtilLinux, &Finder::new(dir.path()), 3, config).await.unwrap();
    let connection = connected(&cluster.url()).await;
    let setup = SetupConfig { traffic_max_bytes: 256 << 20, ..SetupConfig::three_nodes() };
    connection.setup(&setup).await.unwrap();
    let log = Arc::clone(&connection.journal().log);
    let clock = Arc::new(|| LogTime::from_micros(1_790_000_000_000_000));
    let config = OutboxConfig::new(dir.path().join("outbox"), "proxy-1".parse().unwrap(), "wb.traffic.0.proxy", clock);
    let boot = Boot::new(LogTime::from_micros(1_790_000_000_000_000), 7);
    let (outbox, publisher) = Outbox::open(config, boot).unwrap();
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    tasks.spawn(publisher.run(Arc::clone(&log), stop.clone()));
    tasks.close();
    let mut following = log.follow(Stream::Traffic, Start::At(1));
    let mut appended = 0;
    for node in 0..3 {
        for _ in 0..100 {
            appended += 3;
            outbox.append(&[event(appended - 2), event(appended - 1), event(appended)]).unwrap();
            tokio::time::sleep(Duration::from_millis(2)).await;
            if appended % 300 == 150 {
                cluster.kill9(node).await.unwrap();
            }
        }
        patient(outbox.wait_acknowledged(appended)).await;
        cluster.restart(node).await.unwrap();
        cluster.ready().await.unwrap();
    }
    assert!(outbox.close(PATIENCE).await.drained);
    tasks.wait().await;
    let expected: Vec<u64> = (1..=appended + 1).collect();
    let told = patient(async {
        let mut messages: Vec<Message> = Vec::new();
        while ordinals(&messages).last() != Some(&(appended + 1)) {
            if let Ok(message) = following.next().await.unwrap() {
                messages.push(message);
            }
        }
        messages
    })
    .await;
    assert_eq!(ordinals(&told), expected);
    let read = patient(async {
        loop {
            if let Ok(read) = log.read(Stream::Traffic, 1, 10_000).await {
                return read;
            }
        }
    })
    .await;
    assert_eq!(ordinals(&read), expected);
    connection.close().await;
    cluster.stop().await.unwrap();
}
