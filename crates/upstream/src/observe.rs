//! From what the protocol reads to what the classifier looks at.

mod recorded;
#[cfg(test)]
mod tests;

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use waybill_domain::observation::{Ending, ErrorBody, ErrorFields, Headers, Observation, Shape, TransportFault};
use waybill_wire::chat::{ShapeFault, StreamEnd, StreamWatch};
use waybill_wire::error::{BodyShape, ErrorFacts};

pub use recorded::recorded;

/// The header in which AWS names an exception.
const EXCEPTION: &str = "x-amzn-errortype";

/// An attempt that brought a complete answer.
#[must_use]
pub fn success(provider: &str, committed: bool) -> Observation {
    Observation { committed, ..Observation::new(provider, Ending::Success) }
}

/// An attempt that ended with an error status. `now_ms` is UTC in milliseconds since 1970, for waits that are told as a
/// moment.
#[must_use]
pub fn status(provider: &str, status: u16, headers: &HeaderMap, body: &[u8], now_ms: i64) -> Observation {
    let facts = ErrorFacts::read(status, content_type(headers), body);
    let ending = Ending::Status { status, shape: shape(&facts) };
    told(Observation::new(provider, ending), Some(&facts), headers, now_ms)
}

/// A refusal whose body was read already.
#[must_use]
pub fn refused(provider: &str, facts: &ErrorFacts) -> Observation {
    let ending = Ending::Status { status: facts.status, shape: shape(facts) };
    told(Observation::new(provider, ending), Some(facts), &HeaderMap::new(), 0)
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
    told(Observation::new(provider, Ending::Wrong2xx { status, shape }), facts, headers, now_ms)
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
    let seen = Observation::new(provider, Ending::Wrong2xx { status, shape });
    let seen = Observation { streamed: true, committed: watch.committed(), ..seen };
    told(seen, facts, headers, now_ms)
}

/// An attempt whose connection failed.
#[must_use]
pub fn transport(provider: &str, fault: TransportFault, committed: bool) -> Observation {
    Observation { committed, ..Observation::new(provider, Ending::Transport(fault)) }
}

/// What the answer itself told, beside how it ended.
fn told(seen: Observation, facts: Option<&ErrorFacts>, headers: &HeaderMap, now_ms: i64) -> Observation {
    let text = |(name, value): (&'_ http::HeaderName, &'_ http::HeaderValue)| {
        Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
    };
    let mut kept = Headers::default();
    headers.iter().filter_map(text).for_each(|(name, value)| kept.push(&name, &value));
    let carried = facts.into_iter().flat_map(|facts| &facts.headers);
    carried.for_each(|(name, value)| kept.push(name, value));
    let body = facts.map(|facts| ErrorBody::new(facts.trees.clone())).unwrap_or_default();
    let mut error = facts.map(error_fields).unwrap_or_default();
    // AWS names its exception in a header, with an address behind it.
    error.reasons.extend(kept.get(EXCEPTION).and_then(|name| name.split([':', '#']).next()).map(str::to_owned));
    Observation { error, headers: kept, body, at_ms: now_ms, ..seen }
}

/// The error fields that the classifier matches on.
#[must_use]
pub fn error_fields(facts: &ErrorFacts) -> ErrorFields {
    ErrorFields {
        status: facts.status_inner,
        code: facts.code.clone(),
        reasons: facts.reasons.clone(),
        kind: facts.kind.clone(),
        param: facts.param.clone(),
        message: facts.message.clone(),
        at: facts.at.clone(),
        message_at: facts.message_at.clone(),
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

/// The content type, where it is text.
pub(crate) fn content_type(headers: &HeaderMap) -> Option<&str> {
    headers.get(CONTENT_TYPE)?.to_str().ok()
}

/// What an error said, as the end of a sentence.
pub(crate) fn words(facts: &ErrorFacts) -> String {
    facts.evidence().map_or_else(String::new, |message| format!(": {message}"))
}
