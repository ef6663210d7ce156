//! Recorded failures on the way that live ones go: bytes to the protocol's reading to an observation.

#[cfg(test)]
mod tests;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};
use waybill_domain::observation::{Ending, Fault, Limit, Observation, Phase, Shape, TransportFault};
use waybill_domain::verdict::rule::{Place, RecordedCase};
use waybill_event::failure::Sent;
use waybill_wire::answer::{AnyStream, read_answer, read_stream};
use waybill_wire::chat::{ShapeFault, StreamEnd};
use waybill_wire::headers::{is_encoded, is_encoded_so, is_event_stream};

use super::{status, told, wrong_answer};

/// What would have been observed, had a recorded failure happened just now.
#[must_use]
pub fn recorded(case: &RecordedCase) -> Observation {
    let seen = seen(case);
    let named = |word: &str, usual: &str| if word.is_empty() { usual.to_owned() } else { word.to_owned() };
    let streamed = seen.streamed || matches!(case.place, Some(Place::SseFirst | Place::SseMid));
    Observation {
        provider: named(&case.provider_hint, "generic"),
        protocol: named(&case.protocol, "openai-chat"),
        streamed,
        facts: facts(&case.facts),
        at_ms: case.observed_at.saturating_mul(1_000),
        committed: case.committed || seen.committed,
        ..seen
    }
}

fn seen(case: &RecordedCase) -> Observation {
    let provider = case.provider_hint.as_str();
    let word = case.facts.get("error").and_then(Value::as_str);
    if case.facts.get("client_connected") == Some(&Value::Bool(false)) {
        return Observation::new(provider, Ending::ClientGone);
    }
    let Some(code) = case.status.filter(|_| word.is_none()) else {
        return Observation::new(provider, without_answer(word.unwrap_or_default(), &case.facts));
    };
    let (headers, body) = (headers(&case.headers), body(&case.body));
    let now_ms = case.observed_at.saturating_mul(1_000);
    if !(200..300).contains(&code) {
        return status(provider, code, &headers, &body, now_ms);
    }
    let binary = case.protocol.contains("eventstream");
    let stream = matches!(case.place, Some(Place::SseFirst | Place::SseMid));
    if stream && (is_event_stream(&headers) || binary || case.place == Some(Place::SseMid)) {
        return match read_stream(&case.protocol, &body) {
            Ok(stream) => of_stream(provider, code, &headers, stream, now_ms),
            Err(_) => Observation::new(provider, Ending::Wrong2xx { status: code, shape: Shape::BrokenEvent }),
        };
    }
    if is_encoded(&headers) && !is_encoded_so(&headers, &body) {
        return wrong_answer(provider, code, &headers, &ShapeFault::NotJson, now_ms);
    }
    match read_answer(&body) {
        Ok(finish) => {
            let seen = Observation { finish, ..Observation::new(provider, Ending::Success) };
            told(seen, None, &headers, now_ms)
        }
        Err(fault) => wrong_answer(provider, code, &headers, &fault, now_ms),
    }
}

/// A stream that has ended.
fn of_stream(provider: &str, status: u16, headers: &HeaderMap, stream: AnyStream, now_ms: i64) -> Observation {
    let AnyStream { end, committed, finish, error } = stream;
    let ending = match end {
        StreamEnd::Complete => Ending::Success,
        StreamEnd::Empty => Ending::Wrong2xx { status, shape: Shape::EmptyOutput },
        StreamEnd::Cut => Ending::Wrong2xx { status, shape: Shape::Cut },
        StreamEnd::Failed => {
            Ending::Wrong2xx { status, shape: if error.is_some() { Shape::Error } else { Shape::BrokenEvent } }
        }
    };
    let seen = Observation { committed, streamed: true, finish, ..Observation::new(provider, ending) };
    told(seen, error.as_ref(), headers, now_ms)
}

fn headers(recorded: &Map<String, Value>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in recorded {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) {
            headers.append(name, value);
        }
    }
    headers
}

/// The bytes: a text stands for itself, a tree for its JSON, null for none.
fn body(recorded: &Value) -> Vec<u8> {
    match recorded {
        Value::Null => Vec::new(),
        Value::String(text) => text.clone().into_bytes(),
        tree => tree.to_string().into_bytes(),
    }
}

/// What the gateway knew, as words; of a list each.
fn facts(recorded: &Map<String, Value>) -> Vec<(String, String)> {
    let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let words = |(name, value): (&String, &Value)| -> Vec<(String, String)> {
        let items = value.as_array().map_or_else(|| vec![word(value)], |items| items.iter().map(word).collect());
        items.into_iter().map(|word| (name.clone(), word)).collect()
    };
    recorded.iter().flat_map(words).collect()
}

/// The endings without an answer, told by the words in which gateways write them down.
fn without_answer(word: &str, facts: &Map<String, Value>) -> Ending {
    let has = |parts: &[&str]| parts.iter().any(|part| word.contains(part));
    let phase = phase(facts.get("phase").and_then(Value::as_str), word);
    let sent = sent(phase, facts);
    let transport = |fault, phase, sent| {
        let received = facts.get("response_bytes").and_then(Value::as_u64).unwrap_or(0);
        Ending::Transport(TransportFault { phase, fault, sent, received, detail: word.to_owned() })
    };
    if has(&["client", "caller", "cancelled", "canceled"]) {
        return Ending::ClientGone;
    }
    if has(&["deadline"]) {
        return Ending::TimedOut { limit: Limit::Deadline, sent };
    }
    // What a gateway says of itself: it decides by its own words.
    if has(&["local", "candidate", "conver", "settle", "internal", "panic", "quota", "billing"]) {
        return Ending::Local;
    }
    if has(&["dns", "resolve"]) {
        return transport(Fault::Dns, Phase::Resolve, Sent::Nothing);
    }
    if has(&["refused_stream", "goaway", "unprocessed"]) {
        return transport(Fault::Closed, Phase::Head, Sent::Nothing);
    }
    if has(&["timeout", "timed_out"]) {
        return match phase {
            Phase::Resolve | Phase::Connect | Phase::Tls => transport(Fault::TimedOut, phase, Sent::Nothing),
            Phase::Head | Phase::Body => Ending::TimedOut { limit: limit(word), sent },
        };
    }
    if has(&["address", "private", "ssrf"]) {
        return transport(Fault::AddressRefused, Phase::Resolve, Sent::Nothing);
    }
    if has(&["refused"]) {
        return transport(Fault::Refused, Phase::Connect, Sent::Nothing);
    }
    if has(&["unreachable", "no_route"]) {
        return transport(Fault::Unreachable, Phase::Connect, Sent::Nothing);
    }
    if has(&["cert", "hostname", "tls_verif", "unknown_ca"]) {
        return transport(Fault::Tls, Phase::Tls, Sent::Nothing);
    }
    if has(&["too_large", "oversize"]) {
        return transport(Fault::TooLarge, Phase::Body, Sent::Response);
    }
    if has(&["protocol", "parse", "malformed", "invalid", "not_http"]) {
        return transport(Fault::Protocol, phase, sent);
    }
    let fault = if has(&["reset", "abort", "pipe"]) { Fault::Reset } else { Fault::Closed };
    transport(fault, phase, sent)
}

fn phase(named: Option<&str>, word: &str) -> Phase {
    let of = |text: &str| match text {
        text if text.contains("dns") || text.contains("resolve") => Some(Phase::Resolve),
        text if text.contains("tls") || text.contains("handshake") => Some(Phase::Tls),
        text if text.contains("connect") && !text.contains("connection") => Some(Phase::Connect),
        text if text.contains("body") || text.contains("stream") || text.contains("chunk") => Some(Phase::Body),
        text if text.contains("idle") || text.contains("event") => Some(Phase::Body),
        _ => None,
    };
    named.and_then(of).or_else(|| if named.is_some() { None } else { of(word) }).unwrap_or(Phase::Head)
}

fn sent(phase: Phase, facts: &Map<String, Value>) -> Sent {
    let said = |name: &str| facts.get(name).and_then(Value::as_bool);
    match phase {
        Phase::Resolve | Phase::Connect | Phase::Tls => Sent::Nothing,
        Phase::Body => Sent::Response,
        // A connection that had been idle too long: nothing came back, and one more try settles it.
        Phase::Head if said("reused_connection") == Some(true) && said("request_sent") != Some(true) => Sent::Nothing,
        Phase::Head if said("request_sent") == Some(false) => Sent::Nothing,
        Phase::Head => Sent::Request,
    }
}

fn limit(word: &str) -> Limit {
    match word {
        _ if word.contains("first") => Limit::FirstContent,
        _ if ["idle", "stall", "between", "inter"].iter().any(|part| word.contains(part)) => Limit::Idle,
        _ => Limit::Whole,
    }
}
