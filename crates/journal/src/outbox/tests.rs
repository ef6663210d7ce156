mod lingering;
mod reuse;

use std::path::Path;

use proptest::prelude::*;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use waybill_event::control::OutboxDrained;
use waybill_event::{Body, Draft, Event, decode_batch};

use super::*;
use crate::faulty::{Faults, Faulty};
use crate::log::{Log, Stream};
use crate::memory::Memory;

fn start() -> LogTime {
    LogTime::from_micros(1_790_000_000_000_000)
}

fn boot(n: u32) -> Boot {
    Boot::new(start() + Duration::from_secs(u64::from(n)), n)
}

fn config(dir: &Path) -> OutboxConfig {
    let config = OutboxConfig::new(dir, "proxy-1".parse().unwrap(), "wb.traffic.0.proxy", Arc::new(start));
    OutboxConfig { segment_bytes: 4096, ..config }
}

/// An event that can be told from others by `n`.
fn event(n: u64) -> Encoded {
    let replica = "marked".parse().unwrap();
    Draft::new(start(), OutboxDrained { replica, boot: boot(0), last: n }).encode().unwrap()
}

struct Running {
    cancelled: CancellationToken,
    tracker: TaskTracker,
}

fn run(publisher: Publisher, log: Arc<dyn Log>) -> Running {
    let running = Running { cancelled: CancellationToken::new(), tracker: TaskTracker::new() };
    running.tracker.spawn(publisher.run(log, running.cancelled.clone()));
    running.tracker.close();
    running
}

impl Running {
    async fn stop(self) {
        self.cancelled.cancel();
        self.tracker.wait().await;
    }
}

/// All events of the log as (boot, ordinal, mark or what was drained), in the log's order.
async fn logged(memory: &Memory) -> Vec<(Boot, u64, String)> {
    let mut all = Vec::new();
    for message in memory.read(Stream::Traffic, 1, 100_000).await.unwrap() {
        for event in decode_batch(&message.payload).unwrap() {
            let Event { identity, draft } = event.unwrap();
            let mark = identity.mark().unwrap().clone();
            let Body::OutboxDrained(drained) = draft.body else { panic!("another event") };
            let text = match drained.replica.as_str() {
                "marked" => format!("{}", drained.last),
                _ => format!("drained {} {}", drained.boot, drained.last),
            };
            all.push((mark.boot, mark.n, text));
        }
    }
    all
}

fn marks(boot: Boot, marks: std::ops::RangeInclusive<u64>) -> Vec<(Boot, u64, String)> {
    marks.map(|n| (boot, n, n.to_string())).collect()
}

#[tokio::test(start_paused = true)]
async fn a_clean_stop_leaves_an_empty_directory_and_its_notice_last() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Memory::started_at(start());
    let (outbox, publisher) = Outbox::open(config(dir.path()), boot(1)).unwrap();
    let running = run(publisher, memory.journal().log);
    for n in 1..=300 {
        assert_eq!(outbox.append(&[event(n)]).unwrap(), n..=n);
    }
    assert!(outbox.wait_acknowledged(300).await);
    assert_eq!(outbox.close(Duration::from_secs(5)).await, Closed { drained: true, unacknowledged: 0 });
    assert!(matches!(outbox.append(&[event(0)]), Err(OutboxError::Closed)));
    running.stop().await;
    let mut expected = marks(boot(1), 1..=300);
    expected.push((boot(1), 301, format!("drained {} 301", boot(1))));
    assert_eq!(logged(&memory).await, expected);
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["lock"]);
    assert_eq!(outbox.status().bytes, 0);
}

#[tokio::test(start_paused = true)]
async fn messages_are_cut_at_128_events_and_bear_their_range() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Memory::started_at(start());
    let (outbox, publisher) = Outbox::open(config(dir.path()), boot(1)).unwrap();
    let events: Vec<Encoded> = (1..=258).map(event).collect();
    assert_eq!(outbox.append(&events).unwrap(), 1..=258);
    let running = run(publisher, memory.journal().log);
    assert!(outbox.wait_acknowledged(258).await);
    running.stop().await;
    let messages = memory.read(Stream::Traffic, 1, 10).await.unwrap();
    let sizes: Vec<_> = messages.iter().map(|message| decode_batch(&message.payload).unwrap().len()).collect();
    assert_eq!(sizes, [128, 128, 2]);
    // The same range again is the same message.
    let record = crate::log::Record {
        subject: "wb.traffic.0.proxy".to_owned(),
        message_id: Some(format!("proxy-1:{}:1-128", boot(1))),
        payload: messages[0].payload.clone(),
    };
    let again = memory.append(Stream::Traffic, record, crate::log::Expect::Anything).await.unwrap();
    assert!(again.duplicate);
}

#[tokio::test(start_paused = true)]
async fn what_a_killed_boot_left_is_sent_first_and_announced() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Memory::started_at(start());
    for n in 1..=3 {
        // None of these boots gets to send anything.
        let (outbox, _publisher) = Outbox::open(config(dir.path()), boot(n)).unwrap();
        for mark in 1..=u64::from(n) * 40 {
            assert_eq!(outbox.append(&[event(mark)]).unwrap(), mark..=mark, "ordinals begin anew");
        }
    }
    let (outbox, publisher) = Outbox::open(config(dir.path()), boot(4)).unwrap();
    assert_eq!(outbox.status().earlier_boots, 3);
    assert!(outbox.status().bytes > 0);
    outbox.append(&[event(1)]).unwrap();
    let running = run(publisher, memory.journal().log);
    assert!(outbox.wait_acknowledged(4).await);
    running.stop().await;
    let mut expected = marks(boot(1), 1..=40);
    expected.extend(marks(boot(2), 1..=80));
    expected.extend(marks(boot(3), 1..=120));
    expected.push((boot(4), 1, "1".to_owned()));
    expected.extend((1..=3).map(|n| (boot(4), u64::from(n) + 1, format!("drained {} {}", boot(n), n * 40))));
    assert_eq!(logged(&memory).await, expected);
    let status = outbox.status();
    assert_eq!((status.bytes, status.earlier_boots, status.oldest_unacknowledged_at), (0, 0, None));
}

#[tokio::test(start_paused = true)]
async fn what_a_boot_left_stays_until_the_log_has_its_notice() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Memory::started_at(start());
    let (first, _publisher) = Outbox::open(config(dir.path()), boot(1)).unwrap();
    first.append(&[event(1)]).unwrap();
    drop((first, _publisher));
    let (second, publisher) = Outbox::open(config(dir.path()), boot(2)).unwrap();
    let running = run(publisher, memory.journal().log);
    while logged(&memory).await.is_empty() {
        tokio::task::yield_now().await;
    }
    memory.set_max_bytes(Stream::Traffic, 1);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!((second.status().earlier_boots, second.status().acknowledged), (0, 0), "the notice is written only");
    running.stop().await;
    drop(second);
    // The machine loses its power, and with it what the second boot had written.
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with(&boot(2).to_string()) {
            std::fs::remove_file(path).unwrap();
        }
    }
    memory.set_max_bytes(Stream::Traffic, 0);
    let (third, publisher) = Outbox::open(config(dir.path()), boot(3)).unwrap();
    let running = run(publisher, memory.journal().log);
    assert!(timeout(Duration::from_secs(5), third.wait_acknowledged(1)).await.unwrap());
    running.stop().await;
    let expected = [(boot(1), 1, "1".to_owned()), (boot(3), 1, format!("drained {} 1", boot(1)))];
    assert_eq!(logged(&memory).await, expected);
    let left = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.filter(|name| name.to_string_lossy().starts_with(&boot(1).to_string())).count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_torn_tail_is_cut_off() {
    for torn in 1..60 {
        let dir = tempfile::tempdir().unwrap();
        let memory = Memory::started_at(start());
        let (outbox, publisher) = Outbox::open(config(dir.path()), boot(1)).unwrap();
        outbox.append(&[event(1), event(2)]).unwrap();
        drop((outbox, publisher));
        let name = format!("{}.{:020}.seg", boot(1), 1);
        let path = dir.path().join(name);
        let bytes = std::fs::read(&path).unwrap();
        let written = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        std::fs::write(&path, &bytes[..written - torn]).unwrap();
        let (outbox, publisher) = Outbox::open(config(dir.path()), boot(2)).unwrap();
        let running = run(publisher, memory.journal().log);
        assert!(outbox.wait_acknowledged(1).await);
        running.stop().await;
        let expected = [(boot(1), 1, "1".to_owned()), (boot(2), 1, format!("drained {} 1", boot(1)))];
        assert_eq!(logged(&memory).await, expected, "torn by {torn}");
        assert_eq!(outbox.status().damages, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn damage_in_the_middle_costs_the_rest_of_one_file_and_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Memory::started_at(start());
    let (outbox, publisher) = Outbox::open(config(dir.path()), boot(1)).unwrap();
    for n in 1..=60 {
        outbox.append(&[event(n)]).unwrap();
    }
    drop((outbox, publisher));
    let mut paths: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "seg"));
    paths.sort();
    assert!(paths.len() >= 3, "{paths:?}");
    let second: u64 = paths[1].file_name().unwrap().to_str().unwrap().split('.').nth(1).unwrap().parse().unwrap();
    let mut bytes = std::fs::read(&paths[0]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x20;
    std::fs::write(&paths[0], bytes).unwrap();
    let (outbox, publisher) = Outbox::open(config(dir.path()), boot(2)).unwrap();
    let running = run(publisher, memory.journal().log);
    assert!(outbox.wait_acknowledged(1).await);
    running.stop().await;
    let ordinals: Vec<u64> = logged(&memory).await.iter().filter(|(b, ..)| *b == boot(1)).map(|(_, n, _)| *n).collect();
    let hole = ordinals.windows(2).find(|pair| pair[1] != pair[0] + 1).unwrap();
    assert_eq!(hole[1], second);
    assert_eq!(ordinals.last(), Some(&60));
    assert_eq!(outbox.status().damages, 1);
}

#[tokio::test(start_paused = true)]
async fn a_full_outbox_refuses_but_open_requests_finish() {
    let dir = tempfile::tempdir().unwrap();
    let config = OutboxConfig { max_bytes: 40_000, finish_reserve_bytes: 2_000, ..config(dir.path()) };
    let (outbox, publisher) = Outbox::open(config, boot(1)).unwrap();
    let open: Vec<Reservation> = (0..3).map(|_| outbox.reserve().unwrap()).collect();
    let mut taken = 0;
    while outbox.append(&[event(taken + 1)]).is_ok() {
        taken += 1;
    }
    assert!(matches!(outbox.append(&[event(0)]), Err(OutboxError::Full)));
    assert!(matches!(outbox.reserve(), Err(OutboxError::Full)));
    for reservation in &open {
        taken += 1;
        assert_eq!(outbox.append_reserved(reservation, &[event(taken)]).unwrap(), taken..=taken);
    }
    let status = outbox.status();
    assert!(status.bytes + status.reserved_bytes <= 40_000 && status.refusals == 3, "{status:?}");
    drop(open);
    assert_eq!(outbox.status().reserved_bytes, 0);
    // What the dropped reservations held is free again, and so is what the log has taken.
    taken += 1;
    outbox.append(&[event(taken)]).unwrap();
    let memory = Memory::started_at(start());
    let running = run(publisher, memory.journal().log);
    assert!(outbox.wait_acknowledged(taken).await);
    running.stop().await;
    assert_eq!(logged(&memory).await, marks(boot(1), 1..=taken), "what was refused has no ordinal");
    outbox.reserve().unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_does_not_finish_a_request_leaves_half_of_its_promise() {
    let dir = tempfile::tempdir().unwrap();
    let config = OutboxConfig { max_bytes: 40_000, finish_reserve_bytes: 2_000, ..config(dir.path()) };
    let (outbox, _publisher) = Outbox::open(config, boot(1)).unwrap();
    let open = outbox.reserve().unwrap();
    let mut taken = 0;
    while outbox.append(&[event(taken + 1)]).is_ok() {
        taken += 1;
    }
    let before = taken;
    while outbox.append_further(&open, &[event(taken + 1)]).is_ok() {
        taken += 1;
    }
    assert!(taken > before, "part of the promise is for them");
    assert!((1_000..2_000).contains(&outbox.status().reserved_bytes), "{:?}", outbox.status());
    taken += 1;
    assert_eq!(outbox.append_reserved(&open, &[event(taken)]).unwrap(), taken..=taken);
}

#[tokio::test(start_paused = true)]
async fn what_goes_beyond_memory_is_read_back_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Memory::started_at(start());
    let faulty = Faulty::over(memory.journal(), Faults { unavailable: 1.0, ..Faults::NONE }, 7);
    let config = OutboxConfig { memory_bytes: 3_000, ..config(dir.path()) };
    let (outbox, publisher) = Outbox::open(config, boot(1)).unwrap();
    let running = run(publisher, faulty.journal().log);
    for n in 1..=500 {
        outbox.append(&[event(n)]).unwrap();
        if n % 100 == 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    assert_eq!(outbox.status().acknowledged, 0);
    assert!(outbox.status().resends > 0);
    faulty.set(Faults::NONE);
    for n in 501..=600 {
        outbox.append(&[event(n)]).unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(outbox.wait_acknowledged(600).await);
    running.stop().await;
    assert_eq!(logged(&memory).await, marks(boot(1), 1..=600));
}

#[tokio::test(start_paused = true)]
async fn what_the_log_refuses_is_counted_and_sent_again() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Memory::started_at(start());
    let config = OutboxConfig { subject: "elsewhere".to_owned(), ..config(dir.path()) };
    let (outbox, publisher) = Outbox::open(config, boot(1)).unwrap();
    let running = run(publisher, memory.journal().log);
    outbox.append(&[event(1)]).unwrap();
    tokio::time::sleep(Duration::from_secs(20)).await;
    let status = outbox.status();
    assert!((4..=8).contains(&status.refused_by_log) && status.acknowledged == 0, "{status:?}");
    assert_eq!(outbox.close(Duration::from_secs(1)).await, Closed { drained: false, unacknowledged: 1 });
    running.stop().await;
    assert!(!outbox.wait_acknowledged(1).await);
}

#[tokio::test]
async fn a_directory_has_one_holder_and_boots_only_rise() {
    let dir = tempfile::tempdir().unwrap();
    let first = Outbox::open(config(dir.path()), boot(5)).unwrap();
    assert!(matches!(Outbox::open(config(dir.path()), boot(6)), Err(OpenError::Held { .. })));
    drop(first);
    assert!(matches!(Outbox::open(config(dir.path()), boot(5)), Err(OpenError::NotNewer { .. })));
    assert!(matches!(Outbox::open(config(dir.path()), boot(4)), Err(OpenError::NotNewer { .. })));
    Outbox::open(config(dir.path()), boot(6)).unwrap();
}

#[tokio::test]
async fn an_event_too_large_for_a_message_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (outbox, _publisher) = Outbox::open(config(dir.path()), boot(1)).unwrap();
    let mut draft = Draft::new(start(), OutboxDrained { replica: "marked".parse().unwrap(), boot: boot(0), last: 1 });
    draft.reason = Some("x".repeat(1_000_000));
    assert!(matches!(outbox.append(&[draft.encode().unwrap()]), Err(OutboxError::TooLarge { .. })));
    draft.reason = Some("x".repeat(500_000));
    assert_eq!(outbox.append(&[draft.encode().unwrap()]).unwrap(), 1..=1);
}

#[derive(Debug, Clone)]
enum Act {
    Append(usize),
    Faults(Faults),
    Pass(u64),
    Kill,
    Stop,
}

fn act() -> impl Strategy<Value = Act> {
    let faults = (0u8..3, 0u8..4).prop_map(|(lost, gone)| Faults {
        lost_answer: f64::from(lost) / 3.0,
        unavailable: f64::from(gone) / 3.0,
        cut: 0.0,
        longest_delay: Duration::from_millis(20),
    });
    prop_oneof![
        6 => (1usize..5).prop_map(Act::Append),
        1 => (60usize..150).prop_map(Act::Append),
        2 => faults.prop_map(Act::Faults),
        3 => (1u64..3_000).prop_map(Act::Pass),
        1 => Just(Act::Kill),
        1 => Just(Act::Stop),
    ]
}

/// Runs the acts, then lets everything drain. Every event appended must be in the log, those of one boot in order, at
/// first sight; whatever comes again must be the same.
async fn live(acts: Vec<Act>, seed: u64) {
    let dir = tempfile::tempdir().unwrap();
    let memory = Memory::started_at(start());
    let faulty = Faulty::over(memory.journal(), Faults::NONE, seed);
    let config = OutboxConfig { memory_bytes: 4_000, ..config(dir.path()) };
    let mut booted = 1;
    let mut expected: Vec<(Boot, u64, String)> = Vec::new();
    let mut mark = 0;
    let open = |n| Outbox::open(config.clone(), boot(n)).unwrap();
    let (mut outbox, publisher) = open(booted);
    let mut running = run(publisher, faulty.journal().log);
    for act in acts.into_iter().chain([Act::Faults(Faults::NONE)]) {
        match act {
            Act::Append(count) => {
                let events: Vec<Encoded> = (0..count as u64).map(|n| event(mark + n)).collect();
                let ordinals = outbox.append(&events).unwrap();
                expected.extend(ordinals.zip(mark..).map(|(n, mark)| (boot(booted), n, mark.to_string())));
                mark += count as u64;
            }
            Act::Faults(faults) => faulty.set(faults),
            Act::Pass(millis) => tokio::time::sleep(Duration::from_millis(millis)).await,
            Act::Kill | Act::Stop => {
                if matches!(act, Act::Stop) {
                    outbox.close(Duration::from_millis(300)).await;
                }
                running.stop().await;
                drop(outbox);
                booted += 1;
                let (next, publisher) = open(booted);
                outbox = next;
                running = run(publisher, faulty.journal().log);
            }
        }
    }
    assert!(outbox.close(Duration::from_secs(60)).await.drained);
    running.stop().await;
    let mut seen = std::collections::BTreeMap::new();
    let mut firsts: Vec<(Boot, u64, String)> = Vec::new();
    for (boot, n, text) in logged(&memory).await {
        match seen.insert((boot, n), text.clone()) {
            Some(before) => assert_eq!(before, text, "{boot}:{n} came again as another"),
            None => firsts.push((boot, n, text)),
        }
    }
    assert!(firsts.is_sorted_by_key(|(boot, n, _)| (*boot, *n)), "out of order");
    firsts.retain(|(_, _, text)| !text.starts_with("drained"));
    assert_eq!(firsts, expected);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn nothing_is_lost_whatever_fails(acts in prop::collection::vec(act(), 1..30), seed in any::<u64>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(live(acts, seed));
    }
}
