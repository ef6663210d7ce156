//! What a server does before it acknowledges, as its monitoring page says: no client is told otherwise.

use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How long the monitoring page may take.
const MONITOR_DEADLINE: Duration = Duration::from_secs(5);
/// The largest page that is read.
const MAX_PAGE_BYTES: u64 = 1 << 20;

/// What a server does before it acknowledges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Every message is on the disk (`sync_interval: always`).
    Synced,
    /// Messages are written to the disk only every so often.
    Periodic {
        /// How often.
        every: Duration,
    },
}

/// Why a server's durability isn't known.
#[derive(Debug, thiserror::Error)]
pub enum DurabilityError {
    /// The monitoring address isn't one, e.g. `http://127.0.0.1:8222`.
    #[error("not a monitoring address: {0}")]
    Address(String),
    /// The page didn't come in time.
    #[error("the monitoring page didn't come in time")]
    TimedOut,
    /// The page can't be had.
    #[error("the monitoring page can't be had")]
    Io(#[from] std::io::Error),
    /// The page says nothing about it.
    #[error("the monitoring page can't be read")]
    Page(#[source] serde_json::Error),
}

#[derive(Deserialize)]
struct Page {
    config: PageConfig,
}

#[derive(Deserialize)]
struct PageConfig {
    #[serde(default)]
    sync_always: bool,
    /// Nanoseconds.
    #[serde(default)]
    sync_interval: u64,
}

/// Asks a server's monitoring page (`http://host:port`) how durable its acknowledgements are. Durations that were
/// configured without quotes show here too: the server takes them for another number.
///
/// # Errors
/// [`DurabilityError`].
pub async fn durability(monitor: &str) -> Result<Durability, DurabilityError> {
    let page = tokio::time::timeout(MONITOR_DEADLINE, page(monitor));
    let page = page.await.map_err(|_| DurabilityError::TimedOut)??;
    let page: Page = serde_json::from_slice(&page).map_err(DurabilityError::Page)?;
    Ok(if page.config.sync_always {
        Durability::Synced
    } else {
        Durability::Periodic { every: Duration::from_nanos(page.config.sync_interval) }
    })
}

async fn page(monitor: &str) -> Result<Vec<u8>, DurabilityError> {
    let address = monitor.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
    let address = address.filter(|address| address.contains(':'));
    let address = address.ok_or_else(|| DurabilityError::Address(monitor.to_owned()))?;
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /jsz HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(MAX_PAGE_BYTES).read_to_end(&mut answer).await?;
    let head = answer.windows(4).position(|window| window == b"\r\n\r\n").map_or(0, |at| at + 4);
    Ok(answer.split_off(head))
}
