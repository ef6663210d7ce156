//! A base URL at which nobody listens.

use std::net::TcpListener;

/// A base URL whose port refuses connections: it was free a moment ago, and nobody was given it.
///
/// # Panics
/// When no port can be had.
#[must_use]
pub fn refusing_url() -> String {
    match TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr()) {
        Ok(address) => format!("http://{address}/v1"),
        Err(error) => panic!("no free port: {error}"),
    }
}
