//! One of the programs that are compared.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;

use crate::process;
use crate::request::Kind;

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

    /// Resident memory, in bytes.
    ///
    /// # Errors
    /// It has died.
    pub(crate) fn resident(&self) -> Result<u64> {
        process::resident(&self.pids)
    }
}
