//! Batches and reads on a real Postgres.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail loudly")]

use std::time::Duration;

use secrecy::ExposeSecret as _;
use sqlx::{Connection as _, PgConnection};
use tempfile::TempDir;
use waybill_domain::history::{Applied, Day, Placed, RequestState, TrafficRows, TransitionRow};
use waybill_event::traffic::FinalState;
use waybill_event::{GroupId, KeyId, LogTime, Position, RequestId, Source, decode_one};
use waybill_read_model::read::{ConfigHistoryQuery, RequestQuery};
use waybill_read_model::{Batch, Checkpoint, Committed, Deadlines, Dropped, Projection, ReadModel, StoreError};
use waybill_services::{Finder, Launcher, Postgres, PostgresConfig};

struct Ground {
    store: ReadModel,
    postgres: Postgres,
    checkpoint: [Checkpoint; 2],
    _dir: TempDir,
}

const TRAFFIC: Projection = Projection::Traffic;
const CONFIG: Projection = Projection::Config;

impl Ground {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = PostgresConfig { durable: false, max_connections: 20, ..PostgresConfig::new(dir.path()) };
        let postgres = Postgres::start(&Launcher::UtilLinux, &Finder::new(dir.path()), config).await.unwrap();
        let store = ReadModel::connect(postgres.url().expose_secret(), 5, Deadlines::default()).unwrap();
        store.migrate().await.unwrap();
        store.migrate().await.unwrap();
        let checkpoint = [store.take_over(CONFIG).await.unwrap(), store.take_over(TRAFFIC).await.unwrap()];
        Self { store, postgres, checkpoint, _dir: dir }
    }

    async fn commit(&mut self, projection: Projection, events: &[Placed]) -> Result<Committed, StoreError> {
        let held = &mut self.checkpoint[usize::from(projection == TRAFFIC)];
        let to = Checkpoint { position: held.position + 1, ..held.clone() };
        let batch = Batch { projection, from: held.position, to: &to, events, unreadable: Vec::new(), solved: &[] };
        let committed = self.store.commit(batch).await?;
        *held = to;
        Ok(committed)
    }

    async fn finish(self) {
        self.store.close().await;
        self.postgres.destroy().await.unwrap();
    }
}

fn time(text: &str) -> LogTime {
    text.parse().unwrap()
}

/// A request admitted `at`, told apart by `seed`.
fn id(at: &str, seed: u8) -> RequestId {
    RequestId::from_parts(time(at), [seed; 10])
}

fn placed(sequence: u64, at: LogTime, rest: &str) -> Placed {
    let text = format!(r#"{{"id":"e{sequence}","producer":"proxy-1","v":1,"at":"{at}",{rest}}}"#);
    let event = decode_one(text.as_bytes()).unwrap_or_else(|error| panic!("{error:?}: {text}"));
    Placed { event, position: Position::new(sequence, 0), stored_at: at + Duration::from_millis(3) }
}

fn admitted(sequence: u64, id: RequestId, key: u64, group: u64, model: &str) -> Placed {
    let data = format!(
        r#"{{"key":{key},"group":{group},"protocol":"openai_chat","client_model":"m","model":"{model}","stream":false,
           "body_bytes":10,"deadline_ms":1000,"candidates":[{{"kind":"channel","id":1}}],"candidate_count":1,
           "client_request_id":"order-{sequence}"}}"#
    );
    let at = id.admitted_at().min(time("2026-11-30T00:00:00Z"));
    placed(sequence, at, &format!(r#""type":"request_admitted","request":"{id}","rn":1,"data":{data}"#))
}

fn started(sequence: u64, id: RequestId, attempt: u32, source: u64) -> Placed {
    let data = format!(
        r#"{{"attempt":{attempt},"model":"m","upstream_model":"m","why":"first","priority":1,"place":0,
           "credential_revision":1,"timeout_ms":1000}}"#
    );
    let source = format!(r#"{{"kind":"channel","id":{source},"rev":1}}"#);
    let rest =
        format!(r#""type":"attempt_started","request":"{id}","rn":{},"source":{source},"data":{data}"#, attempt + 1);
    placed(sequence, id.admitted_at(), &rest)
}

fn finished(sequence: u64, id: RequestId, state: &str) -> Placed {
    let data = format!(
        r#"{{"state":"{state}","status":200,"attempts":1,"usage":{{"from":"absent"}},"first_content_ms":null,"took_ms":9}}"#
    );
    placed(sequence, id.admitted_at(), &format!(r#""type":"request_finished","request":"{id}","rn":9,"data":{data}"#))
}

fn group(sequence: u64, id: u64, name: &str, change: &str, version: u64) -> Placed {
    let state = format!(r#"{{"id":{id},"name":"{name}","enabled":true,"version":{version}}}"#);
    let actor = r#""actor":{"kind":"admin_token","id":1,"name":"root"}"#;
    let rest = format!(r#""type":"group_{change}",{actor},"data":{{"state":{state},"changed":["name"]}}"#);
    placed(sequence, time("2026-11-29T12:00:00Z"), &rest)
}

#[tokio::test]
async fn requests_are_found_by_what_is_asked() {
    let mut ground = Ground::new().await;
    let (a, b, c) = (id("2026-11-28T23:59:59.999Z", 1), id("2026-11-29T00:00:00Z", 2), id("2026-11-29T09:00:00Z", 3));
    let events = [
        admitted(1, a, 1, 1, "x"),
        admitted(2, b, 2, 1, "y"),
        admitted(3, c, 1, 2, "x"),
        started(4, a, 1, 7),
        started(5, c, 1, 8),
        started(6, c, 2, 7),
        finished(7, a, "succeeded"),
        finished(8, c, "failed"),
    ];
    assert_eq!(ground.commit(TRAFFIC, &events).await.unwrap().folded, 8);
    let all = RequestQuery { limit: 10, ..RequestQuery::default() };
    let prefix = |id: RequestId, digits: usize| Some(id.to_string().chars().take(digits).collect::<String>());
    let table: Vec<(&str, RequestQuery, Vec<RequestId>)> = vec![
        ("everything, newest first", all.clone(), vec![c, b, a]),
        ("a page", RequestQuery { limit: 2, ..all.clone() }, vec![c, b]),
        ("the next page", RequestQuery { after: Some(b), ..all.clone() }, vec![a]),
        ("a key", RequestQuery { key: Some(KeyId::new(1)), ..all.clone() }, vec![c, a]),
        ("a group", RequestQuery { group: Some(GroupId::new(1)), ..all.clone() }, vec![b, a]),
        ("a model", RequestQuery { model: Some("y".to_owned()), ..all.clone() }, vec![b]),
        ("open ones", RequestQuery { state: Some(RequestState::Open), ..all.clone() }, vec![b]),
        ("failed ones", RequestQuery { state: Some(RequestState::Ended(FinalState::Failed)), ..all.clone() }, vec![c]),
        ("a source", RequestQuery { source: Some("channel:7".parse().unwrap()), ..all.clone() }, vec![c, a]),
        ("the client's id", RequestQuery { client_request_id: Some("order-2".to_owned()), ..all.clone() }, vec![b]),
        ("from a time on", RequestQuery { from: Some(time("2026-11-29T00:00:00Z")), ..all.clone() }, vec![c, b]),
        ("before a time", RequestQuery { to: Some(time("2026-11-29T00:00:00Z")), ..all.clone() }, vec![a]),
        ("a whole id", RequestQuery { id_prefix: prefix(b, 36), ..all.clone() }, vec![b]),
        ("half an id", RequestQuery { id_prefix: prefix(c, 16), ..all.clone() }, vec![c]),
        ("no id", RequestQuery { id_prefix: Some("'; drop".to_owned()), ..all.clone() }, vec![]),
    ];
    for (what, query, expected) in table {
        let found = ground.store.requests(&query).await.unwrap();
        assert_eq!(found.iter().map(|row| row.request_id).collect::<Vec<_>>(), expected, "{what}");
    }
    ground.finish().await;
}

/// The end of an attempt at a source that failed.
fn failed(sequence: u64, id: RequestId, attempt: u32, source: u64, status: u16, next: &str) -> Placed {
    let data = format!(
        r#"{{"attempt":{attempt},"model":"m","upstream_model":"m","kind":"server_error","rule":"r","status":{status},"first_content_ms":null,"took_ms":5,
           "sent":"response","maybe_billed":false,"next":"{next}"}}"#
    );
    let source = format!(r#"{{"kind":"channel","id":{source},"rev":1}}"#);
    let rest = format!(
        r#""type":"attempt_finished","request":"{id}","rn":{},"source":{source},"data":{data}"#,
        attempt.saturating_add(20)
    );
    placed(sequence, id.admitted_at(), &rest)
}

#[tokio::test]
async fn moves_are_counted_by_reason_and_last_attempts_are_found() {
    let mut ground = Ground::new().await;
    let (a, b, old) = (id("2026-11-29T09:00:00Z", 1), id("2026-11-29T09:00:01Z", 2), id("2026-11-29T01:00:00Z", 3));
    // The second passes over channel 7, which is full, and over what has failed already.
    let skipping = |sequence, id| {
        let mut placed = started(sequence, id, 3, 8);
        if let waybill_event::Body::AttemptStarted(data) = &mut placed.event.draft.body {
            let skip = |source: &str, why| waybill_event::selection::Skip { source: source.parse().unwrap(), why };
            use waybill_event::selection::SkipReason::{Concurrency, Excluded};
            data.skips = vec![skip("channel:7", Concurrency), skip("channel:9", Excluded)];
        }
        placed
    };
    let events = [
        admitted(1, a, 1, 1, "x"),
        started(2, a, 1, 7),
        failed(3, a, 1, 7, 503, "same"),
        started(4, a, 2, 7),
        failed(5, a, 2, 7, 503, "elsewhere"),
        admitted(6, b, 1, 2, "x"),
        started(7, b, 1, 7),
        failed(8, b, 1, 7, 429, "elsewhere"),
        started(9, b, 2, 9),
        failed(10, b, 2, 9, 404, "stop"),
        skipping(11, b),
        admitted(12, old, 1, 1, "x"),
        started(13, old, 1, 7),
        failed(14, old, 1, 7, 500, "elsewhere"),
    ];
    assert_eq!(ground.commit(TRAFFIC, &events).await.unwrap().folded, 14);
    let sources = ["channel:7", "channel:9"].map(|source| source.parse::<Source>().unwrap());
    let since = time("2026-11-29T08:00:00Z");
    let moves = ground.store.moves(&sources, since, 10).await.unwrap();
    let mut told: Vec<_> = moves
        .iter()
        .map(|moved| {
            (moved.source.to_string(), moved.group.map(GroupId::get), moved.why.as_str(), moved.requests, &*moved.last)
        })
        .collect();
    told.sort();
    let seven = || "channel:7".to_owned();
    assert_eq!(
        told,
        [
            (seven(), Some(1), "5xx", 1, &[a][..]),
            (seven(), Some(1), "same_account", 1, &[a][..]),
            (seven(), Some(2), "429", 1, &[b][..]),
            (seven(), Some(2), "concurrency", 1, &[b][..]),
        ]
    );
    assert_eq!(ground.store.moves(&sources, since, 1).await.unwrap().len(), 1);
    assert_eq!(ground.store.moves(&[], since, 10).await.unwrap(), []);
    let ended = ground.store.ended(&sources, since, 2).await.unwrap();
    let of = |source: &Source| -> Vec<(RequestId, Option<u16>)> {
        ended[source].iter().map(|ended| (ended.request, ended.status)).collect()
    };
    assert_eq!(of(&sources[0]), [(b, Some(429)), (a, Some(503))]);
    assert_eq!(of(&sources[1]), [(b, Some(404))]);
    ground.finish().await;
}

/// A disabling since `since` whose cause stands in message `message`, after its attempt.
fn disabled(since: LogTime, message: u64) -> TransitionRow {
    TransitionRow {
        id: format!("t{message}"),
        kind: "source_disabled".to_owned(),
        subject: "d".to_owned(),
        source: "channel:7".parse().unwrap(),
        model: None,
        cause: None,
        cause_position: Some(Position::new(message, 1)),
        since,
        until: None,
        detail: serde_json::Value::Null,
        producer: "projector-1".parse().unwrap(),
        at: since,
        position: Position::new(message + 100, 0),
    }
}

#[tokio::test]
async fn the_cause_of_a_transition_is_found_though_its_requests_clock_was_ahead_of_the_logs() {
    let mut ground = Ground::new().await;
    let (ahead, behind) = (id("2026-11-29T09:00:00.005Z", 1), id("2026-11-29T08:59:00Z", 2));
    let events = [
        admitted(1, ahead, 1, 1, "x"),
        started(2, ahead, 1, 7),
        failed(3, ahead, 1, 7, 401, "elsewhere"),
        admitted(4, behind, 1, 1, "x"),
        started(5, behind, 1, 7),
        failed(6, behind, 1, 7, 403, "elsewhere"),
    ];
    ground.commit(TRAFFIC, &events).await.unwrap();
    let since = time("2026-11-29T09:00:00Z");
    // The third is caused by another message's outcome, of which no attempt is known.
    let rows = [disabled(since, 3), disabled(since, 6), disabled(since, 7)];
    let causes = ground.store.causes(rows[0].source, &rows).await.unwrap();
    let found: Vec<_> = causes.iter().map(|(id, cause)| (id.as_str(), cause.request, cause.status)).collect();
    assert_eq!(found, [("t3", ahead, Some(401)), ("t6", behind, Some(403))]);
    ground.finish().await;
}

#[tokio::test]
async fn a_history_holds_lines_and_names() {
    let mut ground = Ground::new().await;
    let a = id("2026-11-29T12:00:00Z", 1);
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../event/tests/golden/channel_created.v1.json"));
    let channel = decode_one(text.unwrap().trim().as_bytes()).unwrap();
    let stored_at = time("2026-11-29T13:00:00Z");
    let channel = Placed { event: channel, position: Position::new(1, 0), stored_at };
    ground.commit(CONFIG, &[channel]).await.unwrap();
    ground.commit(TRAFFIC, &[admitted(1, a, 1, 1, "x"), started(2, a, 1, 42)]).await.unwrap();
    ground.commit(TRAFFIC, &[finished(3, a, "succeeded")]).await.unwrap();
    let history = ground.store.history(a).await.unwrap().unwrap();
    let events: Vec<(&str, u64)> = history.lines.iter().map(|line| (line.event, line.position.sequence)).collect();
    assert_eq!(events, [("request_admitted", 1), ("attempt_started", 2), ("request_finished", 3)]);
    assert_eq!(history.names.get("channel:42").map(String::as_str), Some("primary"));
    assert_eq!(ground.store.history(id("2026-11-29T12:00:00Z", 2)).await.unwrap(), None);

    let source: Source = "channel:42".parse().unwrap();
    assert_eq!(ground.store.source(source).await.unwrap().unwrap().name, "primary");
    assert_eq!(ground.store.sources(false).await.unwrap().len(), 1);
    assert_eq!(ground.store.abilities(Some(GroupId::new(3))).await.unwrap().len(), 2);
    assert_eq!(ground.store.abilities(Some(GroupId::new(4))).await.unwrap(), []);
    assert_eq!(ground.store.transitions(Some(source), None, 10).await.unwrap(), []);
    ground.finish().await;
}

#[tokio::test]
async fn edits_are_listed_newest_first() {
    let mut ground = Ground::new().await;
    let edits = [
        group(1, 1, "default", "created", 1),
        group(2, 2, "other", "created", 1),
        group(3, 1, "standard", "edited", 2),
        group(4, 2, "other", "deleted", 2),
    ];
    ground.commit(CONFIG, &edits[..2]).await.unwrap();
    ground.commit(CONFIG, &edits[2..]).await.unwrap();
    let names = |rows: Vec<waybill_domain::history::GroupRow>| rows.into_iter().map(|row| row.name).collect::<Vec<_>>();
    assert_eq!(names(ground.store.groups(false).await.unwrap()), ["standard"]);
    assert_eq!(names(ground.store.groups(true).await.unwrap()), ["standard", "other"]);
    let query = ConfigHistoryQuery { limit: 10, ..ConfigHistoryQuery::default() };
    let positions = async |query: &ConfigHistoryQuery| -> Vec<u64> {
        ground.store.config_history(query).await.unwrap().iter().map(|row| row.position.0).collect()
    };
    assert_eq!(positions(&query).await, [4, 3, 2, 1]);
    let one = ConfigHistoryQuery { entity: Some("group".to_owned()), entity_id: Some("1".to_owned()), ..query.clone() };
    assert_eq!(positions(&one).await, [3, 1]);
    let page = ConfigHistoryQuery { before: Some(waybill_event::ConfigPosition(3)), limit: 1, ..query };
    assert_eq!(positions(&page).await, [2]);
    let stands: Vec<(String, u64)> =
        ground.store.projections().await.unwrap().into_iter().map(|p| (p.projection, p.position)).collect();
    assert_eq!(stands, [("config".to_owned(), 2), ("traffic".to_owned(), 0)]);
    ground.finish().await;
}

#[tokio::test]
async fn a_stale_writer_is_refused_and_writes_nothing() {
    let mut ground = Ground::new().await;
    let a = id("2026-11-29T12:00:00Z", 1);
    let newer = ground.store.take_over(TRAFFIC).await.unwrap();
    assert_eq!(newer.epoch, 2);
    let refused = ground.commit(TRAFFIC, &[admitted(1, a, 1, 1, "x")]).await.unwrap_err();
    assert!(matches!(refused, StoreError::Fenced { epoch: 1, position: 0, .. }), "{refused:?}");
    assert!(!refused.may_pass());
    assert_eq!(ground.store.history(a).await.unwrap(), None);
    // The same epoch, but another position: somebody folded on already.
    ground.checkpoint[1] = Checkpoint { position: 5, ..newer };
    assert!(matches!(ground.commit(TRAFFIC, &[]).await.unwrap_err(), StoreError::Fenced { position: 5, .. }));
    ground.finish().await;
}

#[tokio::test]
async fn a_writer_that_stops_in_the_middle_does_not_block_its_successor() {
    let ground = Ground::new().await;
    let deadlines = Deadlines { idle: Duration::from_secs(1), ..Deadlines::default() };
    let sleepy = ReadModel::connect(ground.postgres.url().expose_secret(), 1, deadlines).unwrap();
    let at = time("2026-11-29T12:00:00Z");
    let events: Vec<Placed> = (1..3_000)
        .map(|n| admitted(n, RequestId::from_parts(at + Duration::from_millis(n), [7; 10]), 1, 1, "x"))
        .collect();
    let held = ground.checkpoint[1].clone();
    let to = Checkpoint { position: 1, ..held };
    let batch = Batch { projection: TRAFFIC, from: 0, to: &to, events: &events, unreadable: Vec::new(), solved: &[] };
    let mut commit = std::pin::pin!(sleepy.commit(batch));
    let mut watcher = PgConnection::connect(ground.postgres.url().expose_secret()).await.unwrap();
    let writing = "select exists (select from pg_stat_activity where backend_xid is not null)";
    while !sqlx::query_scalar::<_, bool>(writing).fetch_one(&mut watcher).await.unwrap() {
        assert!(tokio::time::timeout(Duration::from_millis(1), &mut commit).await.is_err(), "it is over already");
    }
    // From here on nobody drives it, as if its process were stopped in the middle.
    let successor = ground.store.take_over(TRAFFIC).await.unwrap();
    assert_eq!((successor.epoch, successor.position), (2, 0));
    let refused = commit.await.unwrap_err();
    assert!(matches!(refused, StoreError::Fenced { .. } | StoreError::Unavailable(_)), "{refused:?}");
    assert_eq!(ground.store.checkpoint(TRAFFIC).await.unwrap().unwrap().position, 0);
    ground.finish().await;
}

#[tokio::test]
async fn a_difference_is_found_and_told() {
    let mut ground = Ground::new().await;
    let (a, b) = (id("2026-11-29T12:00:00Z", 1), id("2026-11-29T12:00:00Z", 2));
    let events = [admitted(1, a, 1, 1, "x"), admitted(2, b, 1, 1, "x")];
    ground.commit(TRAFFIC, &events).await.unwrap();
    let mut rows = TrafficRows::default();
    for placed in &events {
        assert_eq!(rows.apply(placed), Applied::Rows);
    }
    let same = ground.store.compare_traffic(&rows).await.unwrap();
    assert_eq!((same.same, same.different), (2, 0));
    rows.requests.get_mut(&a).unwrap().model = Some("y".to_owned());
    rows.requests.remove(&b);
    let other = ground.store.compare_traffic(&rows).await.unwrap();
    assert_eq!((other.same, other.different), (0, 2));
    let first = other.first.unwrap().to_string();
    assert!(first.ends_with(r#"the log says {"model":"y"}, the table holds {"model":"x"}"#), "{first}");
    ground.finish().await;
}

#[tokio::test]
async fn days_far_away_need_no_partition() {
    let mut ground = Ground::new().await;
    let far = RequestId::from_uuid("ffffffff-ffff-7fff-bfff-ffffffffffff".parse().unwrap());
    let foreign = RequestId::from_uuid("c9a646d3-9c61-4cb7-bfcd-ee2522c8f633".parse().unwrap());
    let mut events = [admitted(1, far, 1, 1, "x"), admitted(2, foreign, 1, 1, "x")];
    for placed in &mut events {
        placed.event.draft.at = time("2026-11-29T12:00:00Z");
        placed.stored_at = time("2026-11-29T12:00:00Z");
    }
    assert_eq!(ground.commit(TRAFFIC, &events).await.unwrap().unprojectable, []);
    assert!(ground.store.history(far).await.unwrap().is_some());
    assert!(ground.store.history(foreign).await.unwrap().is_some());
    let query = RequestQuery { id_prefix: Some("ffffffff".to_owned()), limit: 9, ..RequestQuery::default() };
    assert_eq!(ground.store.requests(&query).await.unwrap().len(), 1);
    ground.finish().await;
}

#[tokio::test]
async fn a_new_day_and_whoever_reads_several_tables_never_wait_for_each_other() {
    let mut ground = Ground::new().await;
    ground.commit(TRAFFIC, &[admitted(1, id("2026-11-28T12:00:00Z", 1), 1, 1, "x")]).await.unwrap();
    let mut reader = PgConnection::connect(ground.postgres.url().expose_secret()).await.unwrap();
    sqlx::raw_sql("begin; select from attempts;").execute(&mut reader).await.unwrap();
    let url = ground.postgres.url().expose_secret().to_owned();
    let reading = async {
        let mut watcher = PgConnection::connect(&url).await.unwrap();
        let waiting = "select exists (select from pg_locks where not granted)";
        while !sqlx::query_scalar::<_, bool>(waiting).fetch_one(&mut watcher).await.unwrap() {}
        sqlx::raw_sql("select from requests; commit;").execute(&mut reader).await
    };
    let b = id("2026-11-29T12:00:00Z", 2);
    let events = [admitted(2, b, 1, 1, "x"), started(3, b, 1, 7)];
    let (folded, read) = tokio::join!(ground.commit(TRAFFIC, &events), reading);
    read.unwrap();
    assert_eq!(folded.unwrap().unprojectable, []);
    let rows = "select (select count(*) from requests_2026_11_29) + (select count(*) from attempts_2026_11_29)";
    assert_eq!(sqlx::query_scalar::<_, i64>(rows).fetch_one(&mut reader).await.unwrap(), 2);
    ground.finish().await;
}

#[tokio::test]
async fn old_days_are_dropped_but_never_one_with_an_open_request() {
    let mut ground = Ground::new().await;
    let (a, b, c) = (id("2026-09-01T23:59:59Z", 1), id("2026-09-02T00:00:00Z", 2), id("2026-11-29T09:00:00Z", 3));
    ground.commit(TRAFFIC, &[admitted(1, a, 1, 1, "x"), started(2, a, 1, 7), finished(3, a, "failed")]).await.unwrap();
    ground.commit(TRAFFIC, &[admitted(4, b, 1, 1, "x"), started(5, b, 1, 7)]).await.unwrap();
    ground.commit(TRAFFIC, &[admitted(6, c, 1, 1, "x")]).await.unwrap();
    let (day_a, day_b) = (Day::of_request(a), Day::of_request(b));
    let leader = ground.checkpoint[1].clone();
    let drop_before = async |first: Day| ground.store.drop_days_before(first, &leader).await.unwrap();

    assert_eq!(drop_before(day_a).await, Dropped::default(), "the first day that is kept is kept");
    let first = Day::of_request(c).before(30);
    assert_eq!(drop_before(first).await, Dropped { days: vec![day_a], open: vec![day_b] });
    let all = RequestQuery { limit: 10, ..RequestQuery::default() };
    let ids = async |ground: &Ground| {
        let rows = ground.store.requests(&all).await.unwrap();
        rows.into_iter().map(|row| row.request_id).collect::<Vec<_>>()
    };
    assert_eq!(ids(&ground).await, [c, b]);
    assert!(ground.store.history(a).await.unwrap().is_none());

    ground.commit(TRAFFIC, &[finished(7, b, "succeeded")]).await.unwrap();
    let leader = ground.checkpoint[1].clone();
    let dropped = ground.store.drop_days_before(first, &leader).await.unwrap();
    assert_eq!(dropped, Dropped { days: vec![day_b], open: vec![] });
    assert_eq!(ids(&ground).await, [c]);

    // What comes late after all makes its day anew.
    ground.commit(TRAFFIC, &[finished(8, a, "failed")]).await.unwrap();
    assert_eq!(ids(&ground).await, [c, a]);
    let _successor = ground.store.take_over(TRAFFIC).await.unwrap();
    let refused = ground.store.drop_days_before(first, &leader).await;
    assert!(matches!(refused, Err(StoreError::Fenced { .. })), "{refused:?}");
    assert_eq!(ids(&ground).await, [c, a]);
    ground.finish().await;
}

#[tokio::test]
async fn an_absent_postgres_is_told_within_the_deadline() {
    let deadlines = Deadlines { connect: Duration::from_millis(100), ..Deadlines::default() };
    let store = ReadModel::connect("postgres://waybill:secret@127.0.0.1:1/waybill", 2, deadlines).unwrap();
    let error = store.ping().await.unwrap_err();
    assert!(error.may_pass(), "{error:?}");
    assert!(!format!("{store:?} {error:?}").contains("secret"));
    assert!(matches!(ReadModel::connect("nonsense", 2, deadlines), Err(StoreError::Address(_))));
}
