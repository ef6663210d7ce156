//! From what the protocol reads to what the classifier looks at.

#[cfg(test)]
mod tests;

use std::time::Duration;

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use waybill_domain::observation::{Ending, ErrorFields, Observation, Shape, TransportFault};
use waybill_wire::chat::{ShapeFault, StreamEnd, StreamWatch};
use waybill_wire::error::{BodyShape, ErrorFacts};
use waybill_wire::retry::retry_hint;

/// An attempt that brought a complete answer.
#[must_use]
pub fn success(provider: &str, committed: bool) -> Observation {
    observation(provider, Ending::Success, None, committed)
}

/// An attempt that ended with an error status. `now_ms` is UTC in milliseconds since 1970, for dates in `retry-after`.
#[must_use]
pub fn status(provider: &str, status: u16, headers: &HeaderMap, body: &[u8], now_ms: i64) -> Observation {
    let facts = ErrorFacts::read(status, content_type(headers), body);
    let ending = Ending::Status { status, shape: shape(&facts) };
    Observation { wait: wait(&facts, headers, now_ms), ..observation(provider, ending, Some(&facts), false) }
}

/// An attempt whose 2xx answer isn't one.
#[must_use]
pub fn wrong_answer(provider: &str, status: u16, headers: &HeaderMap, fault: &ShapeFault, now_ms: i64) -> Observation {
    let (shape, facts) = match fault {
        ShapeFault::Empty => (Shape::Empty, None),
        ShapeFault::Html => (Shape::Html, None),
        ShapeFault::EventStream | ShapeFault::NotJson => (Shape::Text, None),
        ShapeFault::ErrorObject(facts) => (Shape::Error, Some(&**facts)),
        ShapeFault::WrongShape => (Shape::UnknownJson, None),
        ShapeFault::EmptyOutput(_) => (Shape::EmptyOutput, None),
    };
    let ending = Ending::Wrong2xx { status, shape };
    let wait = facts.and_then(|facts| wait(facts, headers, now_ms));
    Observation { wait, ..observation(provider, ending, facts, false) }
}

/// An attempt whose stream has ended, by its body's end or by an error within it.
#[must_use]
pub fn stream(provider: &str, status: u16, headers: &HeaderMap, watch: &StreamWatch, now_ms: i64) -> Observation {
    let facts = watch.error();
    let shape = match watch.end() {
        StreamEnd::Complete => return success(provider, watch.committed()),
        StreamEnd::Empty => Shape::EmptyOutput,
        StreamEnd::Cut => Shape::Cut,
        StreamEnd::Failed => facts.map_or(Shape::BrokenEvent, |_| Shape::Error),
    };
    let ending = Ending::Wrong2xx { status, shape };
    let wait = facts.and_then(|facts| wait(facts, headers, now_ms));
    Observation { wait, ..observation(provider, ending, facts, watch.committed()) }
}

/// An attempt whose connection failed.
#[must_use]
pub fn transport(provider: &str, fault: TransportFault, committed: bool) -> Observation {
    observation(provider, Ending::Transport(fault), None, committed)
}

fn observation(provider: &str, ending: Ending, facts: Option<&ErrorFacts>, committed: bool) -> Observation {
    let error = facts.map(error_fields).unwrap_or_default();
    Observation { provider: provider.to_owned(), ending, error, wait: None, committed }
}

/// The error fields that the classifier matches on.
#[must_use]
pub fn error_fields(facts: &ErrorFacts) -> ErrorFields {
    ErrorFields {
        status: facts.status_inner,
        code: facts.code.clone(),
        kind: facts.kind.clone(),
        param: facts.param.clone(),
        message: facts.message.clone(),
    }
}

fn shape(facts: &ErrorFacts) -> Shape {
    match facts.shape {
        BodyShape::Empty => Shape::Empty,
        BodyShape::Html => Shape::Html,
        BodyShape::Text | BodyShape::Binary => Shape::Text,
        BodyShape::Json => {
            let says = facts.code.is_some() || facts.kind.is_some() || facts.message.is_some();
            if says { Shape::Error } else { Shape::UnknownJson }
        }
    }
}

/// Headers before the body: they speak of this very answer.
fn wait(facts: &ErrorFacts, headers: &HeaderMap, now_ms: i64) -> Option<Duration> {
    retry_hint(headers, now_ms).or_else(|| facts.retry_in_ms.map(Duration::from_millis))
}

/// The content type, where it is text.
pub(crate) fn content_type(headers: &HeaderMap) -> Option<&str> {
    headers.get(CONTENT_TYPE)?.to_str().ok()
}

/// What an error said, as the end of a sentence.
pub(crate) fn told(facts: &ErrorFacts) -> String {
    facts.evidence().map_or_else(String::new, |message| format!(": {message}"))
}
