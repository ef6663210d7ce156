use std::collections::BTreeSet;

use waybill_event::config::{Change, Changed, Channel, ChannelModel, ConfigChange, Group, Limits};
use waybill_event::{Actor, ChannelId, Draft, Event, GroupId, Identity, Position};
use waybill_journal::Stream;
use waybill_projector::read_models::verify;
use waybill_read_model::{Batch, Projection, Unprojectable, Why};

use crate::ground::{Ground, PATIENCE, start_of_time, wait_until};
use crate::plan::{Traffic, message};

const TRAFFIC: Projection = Projection::Traffic;
const CONFIG: Projection = Projection::Config;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fold_from_scratch_equals_the_tables() {
    let ground = Ground::new().await;
    let mut traffic = Traffic::new();
    let mut rows = 0;
    for round in 0..4u64 {
        let runner = ground.runner();
        let mut last = 0;
        for payload in traffic.messages(120) {
            last = ground.traffic(payload).await;
        }
        // Ended in the middle of whatever it is doing, and begun again.
        runner.wait_for(TRAFFIC, "some folding", |status| status.position > last - round * 10 - 1).await;
        runner.end().await;
        ground.traffic(traffic.drained()).await;
        let runner = ground.runner();
        // Requests that the drained boots left open are declared lost, and that is folded too.
        let end = tokio::time::timeout(PATIENCE, ground.settled(&runner)).await.unwrap();
        assert_eq!(runner.status(TRAFFIC).trouble, None);
        runner.end().await;
        rows = ground.assert_verified(TRAFFIC, end).await;
    }
    assert!(rows > 1_000, "{rows}");
    let left = ground.store.unprojectable(TRAFFIC, None, 1_000).await.unwrap();
    let whys: BTreeSet<&str> = left.iter().map(|left| left.detail.split(' ').next().unwrap()).collect();
    assert!(left.iter().any(|left| left.why == Why::Unknown) && left.iter().any(|left| left.why == Why::Malformed));
    assert!(left.iter().all(|left| left.why != Why::Refused), "{whys:?}");
    ground.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_delivered_twice_changes_nothing() {
    let ground = Ground::new().await;
    let messages = Traffic::new().messages(60);
    for payload in &messages {
        ground.traffic(payload.clone()).await;
    }
    let once = ground.end(TRAFFIC).await;
    for payload in &messages {
        ground.traffic(payload.clone()).await;
    }
    let twice = ground.end(TRAFFIC).await;
    let runner = ground.runner();
    runner.caught_up(TRAFFIC, twice).await;
    let counts = runner.status(TRAFFIC).counts;
    assert!(counts.duplicates > 100, "{counts:?}");
    runner.end().await;
    ground.assert_verified(TRAFFIC, once).await;
    ground.assert_verified(TRAFFIC, twice).await;
    ground.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_runners_one_is_refused() {
    let ground = Ground::new().await;
    let mut traffic = Traffic::new();
    let older = ground.runner();
    for payload in traffic.messages(20) {
        ground.traffic(payload).await;
    }
    older.caught_up(TRAFFIC, ground.end(TRAFFIC).await).await;
    let newer = ground.runner();
    newer.wait_for(TRAFFIC, "taking over", |status| status.leading).await;
    for payload in traffic.messages(20) {
        ground.traffic(payload).await;
    }
    let end = ground.end(TRAFFIC).await;
    newer.caught_up(TRAFFIC, end).await;
    older.wait_for(TRAFFIC, "being refused", |status| !status.leading).await;
    assert!(older.status(TRAFFIC).epoch < newer.status(TRAFFIC).epoch);
    older.end().await;
    newer.end().await;
    ground.assert_verified(TRAFFIC, end).await;
    ground.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_a_fleet_leads_and_another_follows_it() {
    let ground = Ground::new().await;
    let mut traffic = Traffic::new();
    let mut fleet = ground.fleet();
    while !fleet.is_empty() {
        for payload in traffic.messages(10) {
            ground.traffic(payload).await;
        }
        let end = ground.end(TRAFFIC).await;
        let leader = || fleet.iter().position(|one| one.status(TRAFFIC).position >= end);
        wait_until("a leader", || leader().is_some(), || fleet.len().to_string()).await;
        let leader = fleet.swap_remove(leader().unwrap());
        assert!(fleet.iter().all(|one| !one.status(TRAFFIC).leading), "one leads, the other waits");
        leader.end().await;
        ground.assert_verified(TRAFFIC, end).await;
    }
    ground.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_while_postgres_is_away() {
    let mut ground = Ground::new().await;
    let mut traffic = Traffic::new();
    let runner = ground.runner();
    for payload in traffic.messages(20) {
        ground.traffic(payload).await;
    }
    runner.caught_up(TRAFFIC, ground.end(TRAFFIC).await).await;
    ground.postgres.kill9().await.unwrap();
    for payload in traffic.messages(60) {
        ground.traffic(payload).await;
    }
    let end = ground.end(TRAFFIC).await;
    let behind = |status: &waybill_projector::read_models::Status| {
        status.trouble.is_some() && status.lag_messages() > 10 && !status.behind.is_at_end()
    };
    runner.wait_for(TRAFFIC, "saying that it is behind", behind).await;
    ground.postgres.restart().await.unwrap();
    runner.caught_up(TRAFFIC, end).await;
    let status = runner.status(TRAFFIC);
    assert_eq!((status.trouble, status.behind.is_at_end()), (None, true));
    runner.end().await;
    ground.assert_verified(TRAFFIC, end).await;
    ground.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_postgres_refuses_is_put_aside() {
    let ground = Ground::new().await;
    let mut traffic = Traffic::new();
    // No index entry can be this long, however well it is compressed.
    let long: String = (0u64..3_000).map(|i| format!("{:x}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    let mut hit = false;
    for payload in traffic.messages(30) {
        let mut text = String::from_utf8(payload).unwrap();
        if !hit && text.contains(r#""model":"gpt-4o","stream""#) {
            text = text.replacen(r#""model":"gpt-4o","stream""#, &format!(r#""model":"{long}","stream""#), 1);
            hit = true;
        }
        ground.traffic(text.into_bytes()).await;
    }
    assert!(hit);
    let end = ground.end(TRAFFIC).await;
    let runner = ground.runner();
    runner.caught_up(TRAFFIC, end).await;
    runner.end().await;
    let left = ground.store.unprojectable(TRAFFIC, None, 1_000).await.unwrap();
    let refused: Vec<&Unprojectable> = left.iter().filter(|left| left.why == Why::Refused).collect();
    assert_eq!(refused.len(), 1);
    assert!(refused[0].detail.contains("index row"), "{}", refused[0].detail);
    ground.assert_verified(TRAFFIC, end).await;
    ground.finish().await;
}

fn edit(sequence: u64, change: ConfigChange) -> (String, Vec<u8>) {
    let (entity, id) = change.subject();
    let subject = format!("wb.config.{entity}.{id}");
    let draft = Draft { actor: Some(Actor::Operator), ..Draft::new(start_of_time(), change) };
    let identity = Identity::Derived { id: format!("edit-{sequence}"), producer: "admin-1".parse().unwrap() };
    (subject, Event { identity, draft }.encode().unwrap())
}

fn channel(change: Change, id: u64, models: u64, version: u64) -> ConfigChange {
    ConfigChange::Channel(Changed {
        change,
        changed: vec!["models".to_owned()],
        state: Channel {
            id: ChannelId::new(id),
            name: format!("c{id}"),
            provider: "openai".to_owned(),
            base_url: "https://api.example.com".to_owned(),
            base_url_revision: 1,
            credential: None,
            models: (0..models).map(|n| ChannelModel::named(format!("m{n}"))).collect(),
            groups: vec![GroupId::new(1), GroupId::new(2)],
            priority: 1,
            weight: 2,
            limits: Limits { max_concurrent: Some(3), requests_per_minute: None },
            multiplier_milli: 1000,
            allow_private: true,
            probe: Default::default(),
            enabled: version.is_multiple_of(2),
            version,
        },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edits_become_rows_and_an_unknown_one_stops_them() {
    let ground = Ground::new().await;
    let runner = ground.runner();
    let group = Group { id: GroupId::new(1), name: "default".to_owned(), enabled: true, version: 1 };
    let group = Changed { change: Change::Created, state: group, changed: Vec::new() };
    let mut edits = vec![ConfigChange::Group(group)];
    for version in 1..20 {
        let change = if version == 1 { Change::Created } else { Change::Edited };
        edits.extend((1..5).map(|id| channel(change, id, (version * id) % 7, version)));
    }
    edits.push(channel(Change::Deleted, 3, 2, 20));
    for (sequence, change) in (1..).zip(edits) {
        let (subject, payload) = edit(sequence, change);
        ground.append(Stream::Config, &subject, payload).await;
    }
    let known = ground.end(CONFIG).await;
    let unknown =
        br#"{"id":"x","producer":"admin-1","type":"tenant_created","v":1,"at":"2026-11-29T12:00:00Z","data":{}}"#;
    ground.append(Stream::Config, "wb.config.route.1", unknown.to_vec()).await;
    let (subject, payload) = edit(99, channel(Change::Edited, 1, 3, 21));
    ground.append(Stream::Config, &subject, payload).await;
    runner.wait_for(CONFIG, "stopping", |status| status.stopped_by.is_some()).await;
    let status = runner.status(CONFIG);
    assert_eq!((status.position, status.leading), (known, false));
    assert_eq!(status.stopped_by.unwrap().kind, "tenant_created");
    runner.end().await;
    assert_eq!(ground.assert_verified(CONFIG, known).await, 1 + 4 + 78 + 2 * (5 + 3 + 6));
    ground.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_are_known_by_now_are_folded() {
    let ground = Ground::new().await;
    ground.store.migrate().await.unwrap();
    ground.traffic(Traffic::new().messages(1).swap_remove(0)).await;
    ground.traffic(message(&[])).await;
    let first = ground.journal.log.read(Stream::Traffic, 1, 1).await.unwrap().swap_remove(0);
    let events = waybill_event::decode_batch(&first.payload).unwrap();
    let checkpoint = ground.store.take_over(TRAFFIC).await.unwrap();
    let to = waybill_read_model::Checkpoint { position: 1, ..checkpoint };
    let unknown = |(index, event): (u16, Event)| Unprojectable {
        position: Position::new(1, index),
        why: Why::Unknown,
        detail: "as an older program left it".to_owned(),
        event: String::from_utf8(event.encode().unwrap()).unwrap(),
        stored_at: first.stored_at,
    };
    let unreadable: Vec<Unprojectable> = (0..).zip(events.into_iter().map(Result::unwrap)).map(unknown).collect();
    let batch = Batch { projection: TRAFFIC, from: 0, to: &to, events: &[], unreadable, solved: &[] };
    ground.store.commit(batch).await.unwrap();
    let runner = ground.runner();
    runner.caught_up(TRAFFIC, 2).await;
    runner.end().await;
    assert_eq!(ground.store.unprojectable(TRAFFIC, None, 10).await.unwrap(), []);
    assert!(ground.assert_verified(TRAFFIC, 2).await > 0);
    ground.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_aged_out_unfolded_are_told() {
    let ground = Ground::new().await;
    for payload in Traffic::new().messages(30) {
        ground.traffic(payload).await;
    }
    ground.memory.remove_before(Stream::Traffic, 5);
    let end = ground.end(TRAFFIC).await;
    let runner = ground.runner();
    runner.caught_up(TRAFFIC, end).await;
    assert_eq!(runner.status(TRAFFIC).counts.missing_messages, 4);
    runner.end().await;
    let refused = verify(&*ground.journal.log, &ground.store, TRAFFIC, end).await.unwrap_err();
    assert_eq!(refused.to_string(), "the log of traffic begins at 5 only");
    ground.finish().await;
}
