//! The admin role: commands on configuration, decided on its own fold of the log, and the API that reads what happened.
//! Serving (listeners, TLS, signals) isn't here, and no table either: reads go through the read model.

pub mod api;
pub mod bootstrap;
pub mod clock;
pub mod credentials;
pub mod edit;
pub mod feed;
pub mod fold;
pub mod live;
pub mod problem;
pub mod reads;
pub mod state;
pub mod status;
pub mod tokens;

mod probe;
mod request;

pub use api::router;
pub use bootstrap::{BootstrapError, bootstrap};
pub use clock::Clock;
pub use reads::{Reads, SharedReads};
pub use state::{Parts, State};
pub use status::Dependency;
