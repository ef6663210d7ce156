//! OpenAI chat completions: what stream events and whole answers say, without changing them.

pub mod answer;
pub mod chunk;
pub mod finished;
pub mod transcript;
pub mod watch;

mod alike;
mod body;
mod choice;

pub use answer::{AnswerFacts, ShapeFault, inspect_answer};
pub use chunk::{ChunkFacts, inspect_chunk};
pub use finished::Finished;
pub use transcript::{Repeated, Repetition, Transcript};
pub use watch::{Seen, StreamEnd, StreamWatch};
