//! JetStream behind the log's port: streams, keyed state, the set-up of both, and what each role may do. No event is
//! interpreted here, and nobody else speaks to NATS.

mod connection;
mod consume;
mod convert;
mod durability;
mod graves;
mod keeping;
mod keyed;
mod log;
mod permissions;
mod publish;
mod setup;
mod survey;

pub use connection::{ConnectError, Connection, Health, NatsConfig, connect};
pub use durability::{Durability, DurabilityError, durability};
pub use keeping::{Keeping, Kept};
pub use permissions::{Permissions, Role, role_permissions};
pub use setup::{SetupConfig, SetupError, setup};
pub use survey::{Found, Survey, Surveyed};
