//! Load at a fixed rate: requests begin by the clock, whatever has become of those before.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::Connection;

/// Sends `rate` requests a second for as long as `time`; gives how long each took, sorted.
///
/// # Errors
/// One isn't answered with a success.
pub(crate) async fn paced(to: SocketAddr, request: Bytes, rate: u32, time: Duration) -> Result<Vec<Duration>> {
    let idle = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..16 {
        idle.lock().await.push(Connection::open(to).await?);
    }
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / rate);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let count = u32::try_from(time.as_millis()).unwrap_or(u32::MAX).saturating_mul(rate) / 1_000;
    let mut running = JoinSet::new();
    for _ in 0..count {
        ticks.tick().await;
        let (idle, request) = (idle.clone(), request.clone());
        running.spawn(async move {
            let kept = idle.lock().await.pop();
            let mut connection = match kept {
                Some(kept) => kept,
                None => Connection::open(to).await?,
            };
            let began = Instant::now();
            connection.ask(&request).await?;
            let took = began.elapsed();
            idle.lock().await.push(connection);
            anyhow::Ok(took)
        });
    }
    let mut times = Vec::new();
    while let Some(ended) = running.join_next().await {
        times.push(ended.context("a client")??);
    }
    times.sort_unstable();
    Ok(times)
}
