//! CPU time of one thing done many times.

use std::hint::black_box;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CPU time that this thread has taken so far: what else runs on the machine doesn't count.
fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// CPU time of each of these for one turn, in nanoseconds: the least of some rounds, in which all take turns. What
/// disturbs a round makes it dearer, never cheaper.
pub fn least_ns<const N: usize>(rounds: u32, turns: u32, things: [&dyn Fn(); N]) -> [f64; N] {
    let mut least = [f64::INFINITY; N];
    for _ in 0..rounds {
        for (thing, least) in things.iter().zip(&mut least) {
            let begun = cpu();
            for _ in 0..turns {
                black_box(thing)();
            }
            let took = cpu().saturating_sub(begun);
            *least = least.min(took.as_secs_f64() * 1e9 / f64::from(turns));
        }
    }
    least
}
