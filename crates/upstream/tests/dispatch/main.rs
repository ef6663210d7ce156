//! Dispatch against a server scripted by bytes: what goes out, what comes back, and which fact each failure becomes.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod answers;
mod cancel;
mod connecting;
mod faults;
mod models;
mod raw;
mod stale;
