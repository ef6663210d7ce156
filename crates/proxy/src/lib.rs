//! The data plane: the phases of a request, from authentication to the last byte. Policy and verdicts are `domain`'s;
//! sockets to upstreams are `upstream`'s.

pub mod follow;
pub mod gates;
pub mod headroom;
pub mod metrics;
pub mod probes;
pub mod recording;
pub mod replica;
pub mod router;
pub mod sessions;
pub mod tables;
pub mod tokens;
pub mod views;

mod answer;
mod attempt;
mod budgets;
mod chat;
mod course;
mod emit;
mod inbound;
mod models;
mod record;
mod relay;

pub use recording::{Durability, OutboxFull, Recording};
pub use replica::{Limits, Parts, Replica};
pub use router::{Front, router};
