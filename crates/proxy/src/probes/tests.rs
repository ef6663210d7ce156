//! Probe permits of several replicas, whose ways to the store lose answers, end and are cut.

mod properties;

use waybill_journal::memory::Memory;

use super::*;

const OPENING: &str = "model:channel:3:gpt \"x\"@proxy-1:0:7";

fn source() -> Source {
    "channel:3".parse().unwrap()
}

fn boot(number: u32) -> Boot {
    Boot::new(waybill_event::LogTime::from_micros(1), number)
}

#[tokio::test]
async fn one_of_two_replicas_probes_and_the_other_may_afterwards() {
    let journal = Memory::started_at(waybill_event::LogTime::from_micros(1)).journal();
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let start = |name: &str| Probes::start(&journal, &name.parse().unwrap(), boot(1), &tasks, &stop);
    let (one, two) = (start("proxy-1"), start("proxy-2"));
    assert!(one.seems_free(source(), OPENING, 1));
    let Claim::Granted(permit) = one.claim(source(), OPENING, 1).await else { panic!("it was free") };
    assert!(!one.seems_free(source(), OPENING, 1));
    assert!(matches!(one.claim(source(), OPENING, 1).await, Claim::Taken));
    assert!(matches!(two.claim(source(), OPENING, 1).await, Claim::Taken));
    assert!(two.seems_free(source(), OPENING, 2), "a second one");
    one.release(permit);
    let again = async {
        loop {
            if let Claim::Granted(permit) = two.claim(source(), OPENING, 1).await {
                return permit;
            }
            tokio::task::yield_now().await;
        }
    };
    drop(tokio::time::timeout(Duration::from_secs(5), again).await.unwrap());
    stop.cancel();
    tasks.close();
    tasks.wait().await;
}

#[tokio::test(start_paused = true)]
async fn a_permit_outlives_what_failed_so_that_all_have_heard_of_it() {
    let journal = Memory::started_at(waybill_event::LogTime::from_micros(1)).journal();
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let start = |name: &str| Probes::start(&journal, &name.parse().unwrap(), boot(1), &tasks, &stop);
    let (one, two) = (start("proxy-1"), start("proxy-2"));
    let Claim::Granted(failed) = two.claim(source(), OPENING, 1).await else { panic!("it was free") };
    two.release_failed(failed);
    let since = Instant::now();
    let again = async {
        loop {
            if let Claim::Granted(permit) = one.claim(source(), OPENING, 1).await {
                return permit;
            }
            tokio::time::sleep(LINGER / 25).await;
        }
    };
    drop(tokio::time::timeout(Duration::from_secs(5), again).await.unwrap());
    assert!(since.elapsed() >= LINGER && since.elapsed() < LIFE, "{:?}", since.elapsed());
    stop.cancel();
    tasks.close();
    tasks.wait().await;
}
