//! One of the programs that are compared.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;

use crate::process;
use crate::request::Kind;

/// How long a program is looked at for whether it still does something.
const SETTLE: Duration = Duration::from_millis(150);
/// What a program that has nothing to do may use in that time.
const IDLE: Duration = Duration::from_millis(1);
/// Most that is waited for that.
const LONGEST_SETTLING: Duration = Duration::from_secs(5);

/// A server that forwards to the upstream, or the upstream itself.
pub(crate) struct Subject {
    /// As the tables name it.
    pub(crate) name: &'static str,
    /// Where it is.
    pub(crate) address: SocketAddr,
    /// Its processes; none for the upstream itself, which isn't measured.
    pub(crate) pids: Vec<u32>,
    token: String,
}

impl Subject {
    /// A subject, given the measured core.
    pub(crate) fn new(name: &'static str, address: SocketAddr, pids: Vec<u32>, token: &str) -> Self {
        for pid in &pids {
            process::pin_measured(*pid);
        }
        Self { name, address, pids, token: token.to_owned() }
    }

    /// A request for it.
    pub(crate) fn request(&self, kind: Kind) -> Bytes {
        kind.bytes(&self.address.to_string(), &self.token)
    }

    /// CPU time used so far.
    pub(crate) fn cpu(&self) -> Duration {
        process::cpu(&self.pids)
    }

    /// CPU time used once nothing is left to do of what was asked: what is done after the answers, such as the publishing
    /// of their events, belongs to them.
    pub(crate) async fn settled(&self) -> Duration {
        let end = Instant::now() + LONGEST_SETTLING;
        let mut used = self.cpu();
        loop {
            tokio::time::sleep(SETTLE).await;
            let now = self.cpu();
            if now.saturating_sub(used) < IDLE || Instant::now() > end {
                return now;
            }
            used = now;
        }
    }

    /// Resident memory, in bytes.
    ///
    /// # Errors
    /// It has died.
    pub(crate) fn resident(&self) -> Result<u64> {
        process::resident(&self.pids)
    }
}
