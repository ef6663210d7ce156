//! Finds or fetches a real nats-server and a real Postgres, and runs them as child processes that never outlive us.
//! Nothing here speaks their protocols beyond asking whether they are ready, and nothing here is used in production.

pub mod fetch;
pub mod nats;
pub mod ports;
pub mod postgres;
pub mod shim;
pub mod supervise;

mod files;

pub use fetch::{FetchError, Finder, Program};
pub use nats::{Nats, NatsCluster, NatsConfig, NatsError, NatsUser, authorization};
pub use postgres::{Postgres, PostgresConfig, PostgresError};
pub use shim::Launcher;
pub use supervise::{Child, Spec, SuperviseError};
