//! Errors in both directions: the facts of what an upstream sent, and the one shape in which clients get ours.

mod bounded;
mod facts;
mod render;
mod tree;

pub use facts::{BodyShape, ErrorFacts};
pub use render::{PublicError, render_error, render_stream_error};

pub(crate) use facts::looks_like_html;
pub(crate) use tree::is_error;
