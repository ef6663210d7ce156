//! Follows a chat stream frame by frame and knows at any point what it amounts to: nothing yet, content, an end, a cut.

#[cfg(test)]
mod tests;

use super::alike::Alike;
use super::answer::silence_has_a_reason;
use super::chunk::{Chunk, ChunkFacts, read};
use crate::error::ErrorFacts;
use crate::sse::{Frame, Kind};
use crate::usage::Usage;

/// What the newest frame was to the stream, so that the caller knows what to do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Comments, blank lines, role-only deltas: nothing that commits.
    Silent,
    /// The model said something.
    Content,
    /// Usage without choices: to be held back from clients that didn't ask for it.
    UsageOnly,
    /// `[DONE]`.
    Done,
    /// The upstream says that it failed; the facts are in [`StreamWatch::error`].
    Error,
    /// An event whose data isn't JSON.
    Malformed,
}

/// What a stream amounts to when its body has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// Content and an end signal (or silence that has a reason): a whole answer.
    Complete,
    /// An end signal, but the model said nothing.
    Empty,
    /// The body ended without a finish reason and without `[DONE]`.
    Cut,
    /// The upstream said in the stream that it failed, or sent what can't be read.
    Failed,
}

/// State of one chat stream. Frames go in, facts come out; of the content it keeps nothing.
#[derive(Debug, Default)]
pub struct StreamWatch {
    committed: bool,
    done: bool,
    malformed: bool,
    events: u64,
    finish_reason: Option<String>,
    usage: Option<Usage>,
    model: Option<String>,
    error: Option<Box<ErrorFacts>>,
    alike: Alike,
}

impl StreamWatch {
    /// A stream of which nothing was seen.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    #[cfg(test)]
    pub(super) const fn alike(&self) -> &Alike {
        &self.alike
    }

    /// Takes the next frame and says what it was.
    pub fn take(&mut self, frame: &Frame) -> Seen {
        match frame.kind {
            Kind::Blank | Kind::KeepAlive => return Seen::Silent,
            Kind::Event => self.events += 1,
        }
        let data = frame.data().trim_ascii();
        if data.is_empty() {
            return Seen::Silent;
        }
        if frame.event() == Some("error") {
            self.error = Some(Box::new(ErrorFacts::read(200, None, frame.data())));
            return Seen::Error;
        }
        if let Some(says_something) = self.alike.says_something(data) {
            self.committed |= says_something;
            return if says_something { Seen::Content } else { Seen::Silent };
        }
        let (facts, places) = read(data);
        if let Some(places) = places {
            self.alike.remember(data, &places);
        }
        match facts {
            ChunkFacts::Done => {
                self.done = true;
                Seen::Done
            }
            ChunkFacts::Error(error) => {
                self.error = Some(error);
                Seen::Error
            }
            ChunkFacts::Malformed => {
                // What a cut left over of an event isn't the upstream's fault in its spelling.
                self.malformed |= frame.complete;
                Seen::Malformed
            }
            ChunkFacts::Chunk(chunk) => self.take_chunk(chunk),
        }
    }

    fn take_chunk(&mut self, chunk: Chunk<'_>) -> Seen {
        if let Some(usage) = chunk.usage {
            self.usage = Some(usage.or_earlier(self.usage.unwrap_or_default()));
        }
        if self.finish_reason.is_none() {
            self.finish_reason = chunk.finish_reason.map(|why| why.into_owned());
        }
        if self.model.is_none() {
            self.model = chunk.model.map(|model| model.into_owned());
        }
        if chunk.commits {
            self.committed = true;
            Seen::Content
        } else if chunk.usage_only {
            Seen::UsageOnly
        } else {
            Seen::Silent
        }
    }

    /// Whether the model has said anything yet.
    #[must_use]
    pub fn committed(&self) -> bool {
        self.committed
    }

    /// Whether an end signal was seen: a finish reason or `[DONE]`.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.done || self.finish_reason.is_some()
    }

    /// Whether `[DONE]` was seen.
    #[must_use]
    pub fn done(&self) -> bool {
        self.done
    }

    /// Whether the silence so far is an answer: an end with a reason to be empty.
    #[must_use]
    pub fn silent_answer(&self) -> bool {
        silence_has_a_reason(self.finish_reason.as_deref())
    }

    /// Number of events with data so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The first finish reason given.
    #[must_use]
    pub fn finish_reason(&self) -> Option<&str> {
        self.finish_reason.as_deref()
    }

    /// Token counts as reported so far.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// The model that the upstream says it serves.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// The error that the upstream sent within the stream.
    #[must_use]
    pub fn error(&self) -> Option<&ErrorFacts> {
        self.error.as_deref()
    }

    /// What the stream amounts to if its body ends here.
    #[must_use]
    pub fn end(&self) -> StreamEnd {
        if self.error.is_some() {
            StreamEnd::Failed
        } else if self.ended() {
            if self.committed || self.silent_answer() { StreamEnd::Complete } else { StreamEnd::Empty }
        } else if self.malformed {
            StreamEnd::Failed
        } else {
            StreamEnd::Cut
        }
    }
}
