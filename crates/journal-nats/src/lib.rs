//! JetStream behind the log's port: streams, keyed state, the set-up of both, and what each role may do. No event is
//! interpreted here, and nobody else speaks to NATS.

mod connection;
mod consume;
mod convert;
mod keyed;
mod log;
mod permissions;
mod publish;
mod setup;

pub use connection::{ConnectError, Connection, Health, NatsConfig, connect};
pub use permissions::{Permissions, Role, role_permissions};
pub use setup::{SetupConfig, SetupError, setup};
