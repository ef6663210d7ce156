//! Dispatch of one attempt to one source, and what is observed of it. No choice of a source, no second attempt and no
//! judgement of an answer is here.

pub mod cases;
pub mod dispatch;
pub mod exchange;
pub mod guard;
pub mod models;
pub mod observe;
pub mod reply;
pub mod target;
pub mod token;
pub mod try_chat;

mod fault;
mod resolve;
mod track;

pub use dispatch::{BuildError, DispatchConfig, Dispatcher, Limits, Outbound};
pub use exchange::Exchange;
pub use reply::Reply;
pub use target::{Target, TargetFault};
pub use token::{Granted, TokenFault};
pub use try_chat::Tried;
