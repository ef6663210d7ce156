//! The measurements. Each goes round by round over all subjects, so that what disturbs the machine disturbs them alike;
//! what counts is the median over the rounds.

use std::time::Duration;

use anyhow::Result;

use crate::load;
use crate::peers::Peers;
use crate::request::Kind;
use crate::subject::Subject;
use crate::upstream::CHUNKS;

/// Time for the last of what was opened to have its memory.
const SETTLE: Duration = Duration::from_millis(150);
/// Requests a second at which latency is measured.
pub(crate) const RATE: u32 = 500;
/// Open streams whose memory is measured.
pub(crate) const HELD: usize = 2_000;

/// A CPU measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) kind: Kind,
    pub(crate) at_once: usize,
    pub(crate) requests: usize,
    pub(crate) rounds: usize,
}

impl Load {
    /// What the CPU time is divided by: requests, or chunks of streams.
    fn units(self) -> usize {
        if self.kind == Kind::Stream { self.requests * CHUNKS } else { self.requests }
    }
}

/// Values of all rounds, one list for each subject.
pub(crate) type Rounds = Vec<Vec<f64>>;

/// CPU time per request, or per chunk for streams, in µs.
///
/// # Errors
/// A request isn't answered with a success.
pub(crate) async fn cpu(peers: &Peers, subjects: &[Subject], load: Load) -> Result<Rounds> {
    let mut values: Rounds = vec![Vec::new(); subjects.len()];
    // The first round warms up and doesn't count.
    for round in 0..=load.rounds {
        for step in 0..subjects.len() {
            let number = (round + step) % subjects.len();
            let (Some(subject), Some(values)) = (subjects.get(number), values.get_mut(number)) else { continue };
            let request = subject.request(load.kind);
            let before = subject.cpu();
            let sending = load::closed(subject.address, request, load.at_once, load.requests);
            // Streams have a pace of their own, so that their peers sleep as much whoever stands between them.
            if load.kind == Kind::Stream {
                peers.at_ease(sending).await?
            } else {
                peers.awake(sending).await?
            }
            let used = subject.settled().await.saturating_sub(before);
            if round > 0 {
                values.push(micros(used) / count(load.units()));
            }
        }
    }
    Ok(values)
}

/// Latency at a fixed rate, in µs: the middle and the 99th percentile of each round.
pub(crate) struct Latency {
    pub(crate) p50: Rounds,
    pub(crate) p99: Rounds,
    /// CPU time per request at this rate.
    pub(crate) cpu: Rounds,
}

/// Latency of small requests.
///
/// # Errors
/// A request isn't answered with a success.
pub(crate) async fn latency(peers: &Peers, subjects: &[Subject], rounds: usize, time: Duration) -> Result<Latency> {
    let mut found = Latency {
        p50: vec![vec![]; subjects.len()],
        p99: vec![vec![]; subjects.len()],
        cpu: vec![vec![]; subjects.len()],
    };
    for round in 0..rounds {
        for step in 0..subjects.len() {
            let number = (round + step) % subjects.len();
            let Some(subject) = subjects.get(number) else { continue };
            let request = subject.request(Kind::Small);
            let before = subject.cpu();
            let times = peers.at_ease(load::paced(subject.address, request, RATE, time)).await?;
            let used = subject.settled().await.saturating_sub(before);
            let put = |rounds: &mut Rounds, value| rounds.get_mut(number).map(|values| values.push(value));
            put(&mut found.p50, micros(percentile(&times, 50)));
            put(&mut found.p99, micros(percentile(&times, 99)));
            put(&mut found.cpu, micros(used) / count(times.len()));
        }
    }
    Ok(found)
}

/// Memory of one open stream, in KB.
///
/// # Errors
/// A stream can't be opened.
pub(crate) async fn held(subject: &Subject) -> Result<f64> {
    let request = subject.request(Kind::Held);
    let before = subject.resident()?;
    let open = load::hold(subject.address, &request, HELD).await?;
    tokio::time::sleep(SETTLE).await;
    let grown = subject.resident()?.saturating_sub(before);
    drop(open);
    // Their ends are work for the subject, which the next measurement shouldn't see.
    tokio::time::sleep(Duration::from_secs(2)).await;
    Ok(kilobytes(grown) / count(HELD))
}

pub(crate) fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or_default()
}

/// The middle of some values; 0 of none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (sorted.get(middle), sorted.len() % 2) {
        (None, _) => 0.0,
        (Some(high), 1) => *high,
        (Some(high), _) => (sorted.get(middle - 1).copied().unwrap_or(*high) + high) / 2.0,
    }
}

/// A time in µs.
pub(crate) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Bytes in KB.
#[expect(clippy::cast_precision_loss, reason = "sizes of memory are far below 2^52")]
pub(crate) fn kilobytes(bytes: u64) -> f64 {
    bytes as f64 / 1024.0
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn count(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_values() {
        let check = |values: &[f64], expected: f64| assert!((median(values) - expected).abs() < 1e-9, "{values:?}");
        check(&[], 0.0);
        check(&[3.0], 3.0);
        check(&[9.0, 1.0, 2.0], 2.0);
        check(&[4.0, 1.0, 2.0, 3.0], 2.5);
    }
}
