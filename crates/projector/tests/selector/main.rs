//! The selector's runner over the journal in memory: adoption, transitions, takeover, paused leaders, faults.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "test code, which clippy only knows inside of test functions"
)]

mod log;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use waybill_domain::selector::{Checkpoint, SourceState};
use waybill_event::failure::Health;
use waybill_event::{Body, Boot, LogTime};
use waybill_journal::faulty::{Faults, Faulty};
use waybill_journal::memory::Memory;
use waybill_journal::{Bucket, Expect, Journal, Stream};
use waybill_projector::selector::{Config, Pace, Runner, Status};

use log::*;

const A: u64 = 1;
const B: u64 = 2;

fn runner(journal: Journal, memory: &Memory, name: &str) -> Runner {
    let memory = memory.clone();
    let clock = Arc::new(move || memory.now());
    Runner::new(
        journal,
        Config {
            producer: name.parse().unwrap(),
            boot: Boot::new(LogTime::from_micros(9_000), 1),
            clock,
            pace: Pace::default(),
        },
    )
}

fn memory() -> Memory {
    Memory::started_at(LogTime::from_micros(1_000_000_000))
}

/// Runs `then` while `runner` leads.
async fn led<T>(runner: &Runner, then: impl Future<Output = T>) -> T {
    let stop = CancellationToken::new();
    tokio::select! {
        () = runner.fold(std::future::pending(), &stop) => panic!("it ended by itself: {:?}", runner.status()),
        done = timeout(Duration::from_secs(600), then) => done.expect("within ten minutes of paused time"),
    }
}

/// Leads until `then` is done, then stops in order.
async fn led_and_stopped(runner: &Runner, then: impl Future<Output = ()>) {
    let stop = CancellationToken::new();
    let stopping = async {
        then.await;
        stop.cancel();
    };
    tokio::join!(runner.fold(std::future::pending(), &stop), stopping);
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waited = async {
        while !holds().await {
            sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(timeout(Duration::from_secs(60), waited).await.is_ok(), "never: {what}");
}

async fn value(journal: &Journal, id: u64) -> Option<SourceState> {
    let entry = journal.keyed.get(Bucket::Selector, &format!("channel.{id}")).await.unwrap()?;
    Some(serde_json::from_slice(&entry.value).unwrap())
}

async fn until_value(journal: &Journal, id: u64, what: &str, holds: impl Fn(&SourceState) -> bool) {
    until(what, async || value(journal, id).await.is_some_and(|value| holds(&value))).await;
}

async fn until_folded(runner: &Runner, journal: &Journal) {
    until("all is folded", async || {
        let end = journal.log.bounds(Stream::Traffic).await.unwrap().last;
        let status = runner.status();
        status.position == end && status.config_adopted == status.config_fed && status.unannounced == 0
    })
    .await;
}

async fn until_checkpointed(runner: &Runner, journal: &Journal) {
    until("the checkpoint is at the end", async || {
        let end = journal.log.bounds(Stream::Traffic).await.unwrap().last;
        checkpoint(journal).await.position.sequence == end && runner.status().unwritten == 0
    })
    .await;
}

async fn checkpoint(journal: &Journal) -> Checkpoint {
    let entry = journal.keyed.get(Bucket::Selector, "_fold").await.unwrap().unwrap();
    serde_json::from_slice(&entry.value).unwrap()
}

/// Ten failures of A, in two messages.
async fn break_a(log: &mut Writer, journal: &Journal, now: LogTime) {
    for _ in 0..2 {
        let events: Vec<_> = (0..5).map(|_| log.outcome(A, now, Health::Fail)).collect();
        log.append(journal, &events).await;
    }
}

#[tokio::test(start_paused = true)]
async fn configuration_is_adopted_where_its_marker_stands() {
    let memory = memory();
    let journal = memory.journal();
    let runner = runner(journal.clone(), &memory, "projector-1");
    edit(&journal, A, 1).await;
    led(&runner, async {
        until_value(&journal, A, "A is published", |value| value.config.0 == 1 && value.rev == 1).await;
        edit(&journal, B, 1).await;
        edit(&journal, A, 2).await;
        until_value(&journal, B, "B is published", |value| value.config.0 >= 2).await;
        until_value(&journal, A, "A's new key is known", |value| value.revisions.credential == 2).await;
        until_folded(&runner, &journal).await;
    })
    .await;
    let markers: Vec<u64> = events(&journal)
        .await
        .iter()
        .filter_map(|event| match &event.draft.body {
            Body::ConfigApplied(marker) => Some(marker.position.0),
            _ => None,
        })
        .collect();
    assert!(markers.first() == Some(&1) && markers.last() == Some(&3) && markers.is_sorted(), "{markers:?}");
    assert_eq!(value(&journal, A).await.unwrap().position.sequence, runner.status().position);
}

#[tokio::test(start_paused = true)]
async fn an_opening_is_written_at_once_and_announced_once() {
    let memory = memory();
    let journal = memory.journal();
    let runner = runner(journal.clone(), &memory, "projector-1");
    edit(&journal, A, 1).await;
    let mut log = Writer::new("proxy-1");
    led(&runner, async {
        until_value(&journal, A, "A is published", |_| true).await;
        let begun = memory.now();
        break_a(&mut log, &journal, begun).await;
        until_value(&journal, A, "A is open", |value| value.whole.breaker.opening().is_some()).await;
        assert!(memory.now().since(begun) < Duration::from_millis(50), "{:?}", memory.now().since(begun));
        until_folded(&runner, &journal).await;
    })
    .await;
    let opened = value(&journal, A).await.unwrap();
    let opening = opened.whole.breaker.opening().unwrap();
    let announced: Vec<_> = events(&journal)
        .await
        .into_iter()
        .filter_map(|event| match event.draft.body {
            Body::BreakerOpened(opened) if opened.scope.model.is_none() => Some((event.identity.to_string(), opened)),
            _ => None,
        })
        .collect();
    assert_eq!(announced.len(), 1);
    assert_eq!(announced[0].0, format!("breaker_opened:{}", opening.id));
    assert_eq!((announced[0].1.fail, announced[0].1.since), (10, opening.since));
    assert_eq!(opened.marks.iter().map(|mark| mark.n).collect::<Vec<_>>(), [10]);
}

#[tokio::test(start_paused = true)]
async fn what_is_stored_twice_counts_once() {
    let memory = memory();
    let journal = memory.journal();
    let runner = runner(journal.clone(), &memory, "projector-1");
    edit(&journal, A, 1).await;
    let mut log = Writer::new("proxy-1");
    led(&runner, async {
        until_value(&journal, A, "A is published", |_| true).await;
        let sent: Vec<_> = (0..4).map(|_| log.outcome(A, memory.now(), Health::Ok)).collect();
        log.append(&journal, &sent).await;
        log.append(&journal, &sent[2..]).await;
        journal
            .log
            .append(Stream::Traffic, record(b"no event at all", None), waybill_journal::Expect::Anything)
            .await
            .unwrap();
        log.append(&journal, &sent).await;
        until_folded(&runner, &journal).await;
        until_checkpointed(&runner, &journal).await;
    })
    .await;
    let Status { counts, .. } = runner.status();
    assert_eq!((counts.duplicates, counts.unreadable), (6, 1));
    assert_eq!(value(&journal, A).await.unwrap().whole.window.totals(memory.now()).all(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_leader_leaves_nothing_to_fold() {
    let memory = memory();
    let journal = memory.journal();
    let first = runner(journal.clone(), &memory, "projector-1");
    edit(&journal, A, 1).await;
    let mut log = Writer::new("proxy-1");
    led_and_stopped(&first, async {
        until_value(&journal, A, "A is published", |_| true).await;
        break_a(&mut log, &journal, memory.now()).await;
        until_folded(&first, &journal).await;
    })
    .await;
    let before = value(&journal, A).await.unwrap();
    assert!(!first.status().leading);

    let second = runner(journal.clone(), &memory, "projector-2");
    led(&second, until_value(&journal, A, "it is rewritten", |value| value.epoch == 2)).await;
    assert_eq!(second.status().counts.events, 0);
    let after = value(&journal, A).await.unwrap();
    assert_eq!(after, SourceState { epoch: 2, unannounced: Vec::new(), ..before });
}

#[tokio::test(start_paused = true)]
async fn a_full_log_holds_up_no_checkpoint_and_the_next_leader_announces() {
    let memory = memory();
    let journal = memory.journal();
    edit(&journal, A, 1).await;
    let mut log = Writer::new("proxy-1");
    let first = runner(journal.clone(), &memory, "projector-1");
    led(&first, async {
        until_value(&journal, A, "A is published", |_| true).await;
        break_a(&mut log, &journal, memory.now()).await;
        memory.set_max_bytes(Stream::Traffic, 1);
        until_value(&journal, A, "A is open", |value| value.whole.breaker.opening().is_some()).await;
        // Room is made up to the checkpoint only.
        until_checkpointed(&first, &journal).await;
    })
    .await;
    let opened =
        async || events(&journal).await.iter().filter(|e| matches!(e.draft.body, Body::BreakerOpened(_))).count();
    assert_eq!((opened().await, first.status().unannounced), (0, 2));

    memory.set_max_bytes(Stream::Traffic, 0);
    let second = runner(journal.clone(), &memory, "projector-2");
    led(&second, async {
        until("both openings are announced", async || opened().await == 2).await;
        until_folded(&second, &journal).await;
        until_checkpointed(&second, &journal).await;
    })
    .await;
    let third = runner(journal.clone(), &memory, "projector-3");
    led(&third, until_value(&journal, A, "it is rewritten", |value| value.epoch == 3)).await;
    assert_eq!(opened().await, 2, "nothing is announced again");
}

#[tokio::test(start_paused = true)]
async fn a_leader_killed_anywhere_is_followed_by_one_that_comes_to_the_same() {
    for killed_after in [0, 2, 3, 5, 1_500] {
        let memory = memory();
        let journal = memory.journal();
        edit(&journal, A, 1).await;
        edit(&journal, B, 1).await;
        let mut log = Writer::new("proxy-1");
        let first = runner(journal.clone(), &memory, "projector-1");
        led(&first, async {
            until_value(&journal, B, "B is published", |_| true).await;
            break_a(&mut log, &journal, memory.now()).await;
            // The runner gets so many turns to go on, and is dropped at whatever it was doing.
            for _ in 0..killed_after {
                tokio::task::yield_now().await;
            }
            if killed_after > 1_000 {
                sleep(Duration::from_millis(killed_after)).await;
            }
        })
        .await;
        let second = runner(journal.clone(), &memory, "projector-2");
        led(&second, async {
            let ok = log.outcome(B, memory.now(), Health::Ok);
            log.append(&journal, &[ok]).await;
            until_folded(&second, &journal).await;
            until_checkpointed(&second, &journal).await;
        })
        .await;
        let opened = value(&journal, A).await.unwrap();
        assert_eq!((opened.epoch, opened.whole.window.totals(memory.now()).fail), (2, 10), "{killed_after}");
        let announced: Vec<String> = events(&journal)
            .await
            .iter()
            .filter(|event| matches!(event.draft.body, Body::BreakerOpened(_)))
            .map(|event| event.identity.to_string())
            .collect();
        let ids: BTreeSet<&String> = announced.iter().collect();
        // The source's breaker, and the model's, once each.
        assert_eq!((announced.len(), ids.len()), (2, 2), "{killed_after}: {announced:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_paused_leader_is_refused_and_ends() {
    let memory = memory();
    let journal = memory.journal();
    edit(&journal, A, 1).await;
    let mut log = Writer::new("proxy-1");
    let (first, second) =
        (runner(journal.clone(), &memory, "projector-1"), runner(journal.clone(), &memory, "projector-2"));
    let stop = CancellationToken::new();
    let mut paused = Box::pin(first.fold(std::future::pending(), &stop));
    let published = until_value(&journal, A, "A is published", |value| value.epoch == 1);
    tokio::select! {
        () = &mut paused => panic!("it ended"),
        () = published => {}
    }
    // The first is not polled any more: it sleeps while the second leads.
    led(&second, async {
        until_value(&journal, A, "the second has taken over", |value| value.epoch == 2).await;
        break_a(&mut log, &journal, memory.now()).await;
        until_value(&journal, A, "A is open", |value| value.whole.breaker.opening().is_some()).await;
        until_folded(&second, &journal).await;
        // It wakes, folds the same events, and wants to write.
        assert!(timeout(Duration::from_secs(30), &mut paused).await.is_ok(), "it ends by itself");
        let still = value(&journal, A).await.unwrap();
        assert_eq!((still.epoch, still.whole.window.totals(memory.now()).fail), (2, 10));
        assert!(second.status().leading && !first.status().leading);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn lost_answers_and_cuts_change_nothing() {
    for seed in 0..4 {
        let memory = memory();
        let plain = memory.journal();
        let faulty = Faulty::over(plain.clone(), Faults::SOME, seed);
        let runner = runner(faulty.journal(), &memory, "projector-1");
        edit(&plain, A, 1).await;
        edit(&plain, B, 1).await;
        let mut log = Writer::new("proxy-1");
        led(&runner, async {
            until_value(&plain, B, "B is published", |_| true).await;
            for round in 0..40 {
                let health = if round % 3 == 0 { Health::Fail } else { Health::Ok };
                let sent = [log.outcome(A, memory.now(), health), log.outcome(B, memory.now(), Health::Ok)];
                log.append(&plain, &sent).await;
                sleep(Duration::from_millis(50)).await;
            }
            break_a(&mut log, &plain, memory.now()).await;
            until_folded(&runner, &plain).await;
            until_checkpointed(&runner, &plain).await;
        })
        .await;
        let (a, b) = (value(&plain, A).await.unwrap(), value(&plain, B).await.unwrap());
        let now = memory.now();
        let counts = |value: &SourceState| value.whole.window.totals(now).all();
        assert_eq!((counts(&a), counts(&b)), (50, 40), "seed {seed}");
        assert!(a.models["m"].breaker.opening().is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn an_edit_that_is_not_known_stops_adoption_and_nothing_else() {
    let memory = memory();
    let journal = memory.journal();
    let runner = runner(journal.clone(), &memory, "projector-1");
    edit(&journal, A, 1).await;
    let mut log = Writer::new("proxy-1");
    led(&runner, async {
        until_value(&journal, A, "A is published", |_| true).await;
        strange_edit(&journal).await;
        edit(&journal, B, 1).await;
        until("it is told", async || runner.status().stopped_by.is_some()).await;
        break_a(&mut log, &journal, memory.now()).await;
        until_value(&journal, A, "A is open", |value| value.whole.breaker.opening().is_some()).await;
    })
    .await;
    assert_eq!(value(&journal, B).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_source_is_removed_from_the_keyed_state() {
    let memory = memory();
    let journal = memory.journal();
    let runner = runner(journal.clone(), &memory, "projector-1");
    edit(&journal, A, 1).await;
    led(&runner, async {
        until_value(&journal, A, "A is published", |_| true).await;
        until_checkpointed(&runner, &journal).await;
        let before = checkpoint(&journal).await;
        delete(&journal, A).await;
        until("the deletion is adopted", async || runner.status().config_adopted.0 == 2).await;
        assert_eq!(checkpoint(&journal).await.position, before.position);
        assert!(value(&journal, A).await.is_some(), "who folds again from the checkpoint needs it");
        until("A is gone", async || value(&journal, A).await.is_none()).await;
        assert!(checkpoint(&journal).await.position > before.position);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_lease_goes_to_the_next_when_the_leader_stops_or_dies() {
    for stops in [true, false] {
        let memory = memory();
        let journal = memory.journal();
        edit(&journal, A, 1).await;
        let names = ["projector-1", "projector-2"];
        let (first, second) = (runner(journal.clone(), &memory, names[0]), runner(journal.clone(), &memory, names[1]));
        let (stop_first, stop_second) = (CancellationToken::new(), CancellationToken::new());
        let mut leading = Box::pin(first.run(&stop_first));
        tokio::select! {
            () = &mut leading => panic!("it ended"),
            () = until_value(&journal, A, "the first leads", |value| value.epoch == 1) => {}
        }
        let begun = memory.now();
        if stops {
            stop_first.cancel();
            leading.await;
        } else {
            drop(leading);
        }
        tokio::select! {
            () = second.run(&stop_second) => panic!("it ended"),
            () = until_value(&journal, A, "the second leads", |value| value.epoch == 2) => {}
        }
        let took = memory.now().since(begun);
        assert!(took < if stops { Duration::from_secs(1) } else { Duration::from_secs(7) }, "{stops}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_write_of_a_source_that_falls_silent_holds_no_checkpoint_up() {
    let slow = Faults { longest_delay: Duration::from_secs(3), ..Faults::NONE };
    for seed in 0..20 {
        let memory = memory();
        let journal = memory.journal();
        let slowed = Faulty::over(journal.clone(), Faults { longest_delay: Duration::ZERO, ..Faults::NONE }, seed);
        let runner = runner(slowed.journal(), &memory, &format!("projector-{seed}"));
        edit(&journal, A, 1).await;
        let mut log = Writer::new(&format!("proxy-{seed}"));
        led(&runner, async {
            until_folded(&runner, &journal).await;
            slowed.set(slow);
            break_a(&mut log, &journal, memory.now()).await;
            // While A's value is on its way, the log goes on without it.
            for _ in 0..60 {
                sleep(Duration::from_millis(150)).await;
                journal.log.append(Stream::Traffic, record(b"[]", None), Expect::Anything).await.unwrap();
            }
            until_checkpointed(&runner, &journal).await;
        })
        .await;
    }
}
