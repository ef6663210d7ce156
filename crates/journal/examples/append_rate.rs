//! Measures what an append to the outbox costs its caller: `cargo run --release -p waybill-journal --example append_rate`.

#![expect(clippy::print_stdout, reason = "it reports to whoever runs it")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use waybill_event::control::OutboxDrained;
use waybill_event::envelope::Encoded;
use waybill_event::{Boot, Draft, LogTime};
use waybill_journal::memory::Memory;
use waybill_journal::outbox::{Outbox, OutboxConfig};

const APPENDS: usize = 50_000;
/// Events of a finished request, in one append.
const EVENTS: usize = 3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build()?;
    runtime.block_on(measure())
}

async fn measure() -> Result<(), Box<dyn std::error::Error>> {
    let at = LogTime::from_micros(1_790_000_000_000_000);
    let dir = std::env::temp_dir().join(format!("append-rate-{}", std::process::id()));
    let clock = Arc::new(move || at);
    let config = OutboxConfig::new(&dir, "proxy-1".parse()?, "wb.traffic.0.proxy", clock);
    let (outbox, publisher) = Outbox::open(config, Boot::new(at, 1))?;
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    tasks.spawn(publisher.run(Memory::started_at(at).journal().log, stop.clone()));
    tasks.close();
    let events = events(at)?;
    let mut took = Vec::with_capacity(APPENDS);
    let began = Instant::now();
    for n in 0..APPENDS {
        let start = Instant::now();
        outbox.append(&events)?;
        took.push(start.elapsed());
        // The pace of a busy replica: the publisher gets its turns.
        if n % 100 == 99 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    took.sort_unstable();
    let at = |share: f64| took.get((share * APPENDS as f64) as usize).copied().unwrap_or_default();
    println!("{EVENTS} events of {} bytes an append", events.iter().map(Encoded::size_bound).sum::<usize>() / EVENTS);
    println!("p50 {:?}, p99 {:?}, p99.9 {:?}; all in {:?}", at(0.5), at(0.99), at(0.999), began.elapsed());
    println!("{:?}", outbox.status());
    println!("{:?}", outbox.close(Duration::from_secs(10)).await);
    tasks.wait().await;
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}

/// Events of the size that a request's have.
fn events(at: LogTime) -> Result<Vec<Encoded>, Box<dyn std::error::Error>> {
    let mut draft = Draft::new(at, OutboxDrained { replica: "proxy-1".parse()?, boot: Boot::new(at, 1), last: 1 });
    draft.reason = Some("x".repeat(500));
    let encoded = draft.encode()?;
    Ok(vec![encoded; EVENTS])
}
