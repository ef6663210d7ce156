//! The size of the traffic stream, over the log in memory and paused time.
#![expect(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use tokio::time::{advance, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use waybill_domain::selector::{Checkpoint, FOLD_KEY};
use waybill_event::{Boot, LogTime, Position};
use waybill_journal::memory::Memory;
use waybill_journal::presence::{Beat, Report};
use waybill_journal::{AppendError, Bounds, Bucket, Expect, Held, Record, Start, Stream};
use waybill_upkeep::{Level, Retention, RetentionConfig, RetentionStatus};

const SUBJECT: &str = "wb.traffic.0.proxy";
/// Bytes of a message as the stream counts them.
const SIZE: usize = 1_000;
const HOUR: Duration = Duration::from_secs(3_600);

struct World {
    memory: Memory,
    retention: Arc<Retention>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl World {
    /// A stream that may hold so many messages, beginning at the full hour.
    fn new(messages: u64) -> Self {
        let memory = Memory::started_at("2026-11-29T12:00:00Z".parse().unwrap());
        memory.set_max_bytes(Stream::Traffic, messages * SIZE as u64);
        let retention = Arc::new(Retention::new(memory.journal(), RetentionConfig::default()));
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let (running, stopping) = (Arc::clone(&retention), stop.clone());
        tasks.spawn(async move { running.run(stopping).await });
        Self { memory, retention, tasks, stop }
    }

    async fn append(&self) -> Result<u64, AppendError> {
        let payload = Bytes::from(vec![b'x'; SIZE - SUBJECT.len()]);
        let record = Record { subject: SUBJECT.to_owned(), message_id: None, payload };
        let appended = self.memory.journal().log.append(Stream::Traffic, record, Expect::Anything).await;
        appended.map(|appended| appended.sequence)
    }

    /// So many messages in each of so many hours; the next hour has begun afterwards.
    async fn hours(&self, hours: u64, messages: u64) {
        for _ in 0..hours {
            for _ in 0..messages {
                self.append().await.unwrap();
            }
            advance(HOUR).await;
        }
    }

    async fn selector_passed(&self, sequence: u64) {
        let checkpoint = Checkpoint { position: Position::new(sequence, 3), ..Checkpoint::default() };
        let value = Bytes::from(serde_json::to_vec(&checkpoint).unwrap());
        self.memory.journal().keyed.write(Bucket::Selector, FOLD_KEY, value, Held::Anything, None).await.unwrap();
    }

    async fn read_models_passed(&self, sequence: Option<u64>) {
        let beat = Beat {
            replica: "projector-1".parse().unwrap(),
            boot: Boot::new(LogTime::from_micros(1), 1),
            role: "projector".to_owned(),
            n: 1,
            report: Report { traffic_folded: sequence, ..Report::default() },
        };
        let value = Bytes::from(serde_json::to_vec(&beat).unwrap());
        let keyed = self.memory.journal().keyed;
        keyed.write(Bucket::Presence, "projector-1", value, Held::Anything, None).await.unwrap();
    }

    async fn bounds(&self) -> Bounds {
        self.memory.journal().log.bounds(Stream::Traffic).await.unwrap()
    }

    /// Some looks at the size later.
    async fn later(&self) -> RetentionStatus {
        sleep(Duration::from_secs(10)).await;
        self.retention.status()
    }

    async fn end(self) {
        self.stop.cancel();
        self.tasks.close();
        timeout(Duration::from_secs(60), self.tasks.wait()).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn with_room_nothing_is_purged() {
    let world = World::new(100);
    world.hours(7, 11).await;
    world.selector_passed(77).await;
    world.read_models_passed(Some(77)).await;
    let status = world.later().await;
    assert_eq!((status.level, status.purged, status.passed), (Level::Fine, 0, Some(77)));
    assert_eq!(world.bounds().await.first, 1);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn whole_hours_go_until_there_is_room() {
    let world = World::new(100);
    world.hours(8, 11).await;
    world.selector_passed(88).await;
    world.read_models_passed(Some(88)).await;
    let status = world.later().await;
    // 88 % with 11 messages an hour: one hour makes it 77 %.
    assert_eq!((status.level, status.purged), (Level::Fine, 11));
    assert_eq!(world.bounds().await.first, 12);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn only_what_every_fold_has_passed_goes() {
    let world = World::new(100);
    world.hours(8, 11).await;
    // Nobody says how far the read models are: nothing may go.
    world.selector_passed(88).await;
    let status = world.later().await;
    assert_eq!((status.level, status.purged), (Level::High, 0));
    assert!(status.held_up.is_some_and(|why| why.contains("read models")), "told");
    // They are in the middle of the first hour.
    world.read_models_passed(Some(6)).await;
    let status = world.later().await;
    assert_eq!((status.purged, status.held_up), (0, None), "there is still time");
    // The hour is over with the eleventh message.
    world.read_models_passed(Some(11)).await;
    assert_eq!(world.later().await.purged, 11);
    // Whoever led stops, and the next one begins from the start: nothing more goes.
    world.read_models_passed(None).await;
    world.hours(1, 11).await;
    let status = world.later().await;
    assert_eq!((status.level, status.purged, status.passed), (Level::High, 11, None));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn when_it_is_urgent_a_part_of_the_hour_goes_but_nothing_unfolded() {
    let world = World::new(100);
    for _ in 0..95 {
        world.append().await.unwrap();
    }
    world.selector_passed(95).await;
    world.read_models_passed(Some(4)).await;
    let status = world.later().await;
    assert_eq!((status.level, status.purged), (Level::Urgent, 4));
    assert!(status.held_up.is_some_and(|why| why.contains("the folds are at 4")), "told");
    assert_eq!(world.bounds().await.first, 5);
    world.read_models_passed(Some(95)).await;
    let status = world.later().await;
    assert_eq!((status.level, &status.held_up), (Level::Fine, &None));
    assert_eq!(world.bounds().await.first, 21, "75 % are left: {status:?}");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_filled_under_load_loses_nothing_that_is_not_folded() {
    let world = World::new(100);
    let writing = async {
        let (mut written, mut full) = (0, 0);
        while written < 2_000 {
            match world.append().await {
                Ok(_) => written += 1,
                // A replica keeps it in its outbox and tries again.
                Err(AppendError::Full) => full += 1,
                Err(other) => panic!("{other}"),
            }
            sleep(Duration::from_millis(200)).await;
        }
        full
    };
    let folding = async {
        let mut following = world.memory.journal().log.follow(Stream::Traffic, Start::At(1));
        for expected in 1..=2_000 {
            let message = following.next().await.unwrap().unwrap();
            assert_eq!(message.sequence, expected);
            // The read models are a while behind, the selector stands still for longer now and then.
            world.read_models_passed(Some(expected.saturating_sub(15))).await;
            if expected % 100 < 60 {
                world.selector_passed(expected).await;
            }
        }
    };
    let (full, ()) = tokio::join!(writing, folding);
    let status = world.retention.status();
    assert!(status.purged > 1_800, "{status:?}");
    assert!(full < 200, "room was made in time but for now and then: {full}");
    world.end().await;
}
