//! The events of every request and the envelope of all, field by field: what serde would have written, in a fraction of
//! the work, since each name with its punctuation is one copy of known length. That both agree is a test.

use super::{escape, hexadecimal, integer};
use crate::body::Body;
use crate::envelope::Draft;
use crate::money::{Usage, UsageReport};
use crate::selection::Skip;
use crate::source::SourceKind;
use crate::traffic::{AttemptFinished, AttemptStarted, Evidence, RequestAdmitted, RequestFinished, SourceOutcome};
use crate::{LogTime, RequestId, Source};

type Out = Vec<u8>;

#[inline(always)]
fn put(piece: &'static str, out: &mut Out) {
    out.extend_from_slice(piece.as_bytes());
}

fn text(text: &str, out: &mut Out) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    escape(text, out);
    out.push(b'"');
}

/// A word that needs no escaping.
fn word(word: &str, out: &mut Out) {
    out.reserve(word.len() + 2);
    out.push(b'"');
    out.extend_from_slice(word.as_bytes());
    out.push(b'"');
}

fn number(number: impl Into<u64>, out: &mut Out) {
    integer(number.into(), false, out);
}

fn signed(number: i32, out: &mut Out) {
    integer(number.unsigned_abs().into(), number < 0, out);
}

fn flag(flag: bool, out: &mut Out) {
    put(if flag { "true" } else { "false" }, out);
}

fn number_or_null(found: Option<impl Into<u64>>, out: &mut Out) {
    match found {
        Some(found) => number(found, out),
        None => put("null", out),
    }
}

/// A member that is left out when there is nothing to say.
fn member<T>(name: &'static str, value: Option<T>, out: &mut Out, write: impl FnOnce(T, &mut Out)) {
    if let Some(value) = value {
        out.extend_from_slice(name.as_bytes());
        write(value, out);
    }
}

fn time(at: LogTime, out: &mut Out) {
    match at.text() {
        Some(digits) => {
            out.push(b'"');
            out.extend_from_slice(&digits);
            out.push(b'"');
        }
        None => text(&at.to_string(), out),
    }
}

fn request(id: RequestId, out: &mut Out) {
    let mut digits = [0; uuid::fmt::Hyphenated::LENGTH];
    word(id.as_uuid().as_hyphenated().encode_lower(&mut digits), out);
}

/// A source's members, without the braces.
fn source_members(source: Source, out: &mut Out) {
    match source.kind {
        SourceKind::Channel => put(r#""kind":"channel","id":"#, out),
        SourceKind::Account => put(r#""kind":"account","id":"#, out),
    }
    number(source.id, out);
}

fn source(source: Source, out: &mut Out) {
    out.push(b'{');
    source_members(source, out);
    out.push(b'}');
}

fn list<T: Copy>(items: &[T], out: &mut Out, write: fn(T, &mut Out)) {
    out.push(b'[');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write(*item, out);
    }
    out.push(b']');
}

fn skips(skips: &[Skip], out: &mut Out) {
    if skips.is_empty() {
        return;
    }
    put(r#","skips":"#, out);
    list(skips, out, |skip, out| {
        put(r#"{"source":"#, out);
        source(skip.source, out);
        put(r#","why":"#, out);
        word(skip.why.as_str(), out);
        out.push(b'}');
    });
}

/// Members of a usage, each with a comma before it; `first` stands for the first one's.
fn usage_members(usage: Usage, first: &'static [u8], out: &mut Out) {
    let counts = [
        (r#""prompt_tokens":"#, usage.prompt_tokens),
        (r#""completion_tokens":"#, usage.completion_tokens),
        (r#""cached_tokens":"#, usage.cached_tokens),
        (r#""reasoning_tokens":"#, usage.reasoning_tokens),
    ];
    let mut separator = first;
    for (name, count) in counts {
        if let Some(count) = count {
            out.extend_from_slice(separator);
            out.extend_from_slice(name.as_bytes());
            number(count.0, out);
            separator = b",";
        }
    }
}

/// The envelope without the identity and the payload: an open object.
pub(crate) fn envelope(draft: &Draft, kind: &str, out: &mut Out) {
    put(r#"{"type":"#, out);
    text(kind, out);
    put(r#","v":"#, out);
    number(draft.body.version(), out);
    put(r#","at":"#, out);
    time(draft.at, out);
    if let Some((id, rn)) = draft.request {
        put(r#","request":"#, out);
        request(id, out);
        put(r#","rn":"#, out);
        number(rn, out);
    }
    if let Some(of) = draft.source {
        put(r#","source":{"#, out);
        source_members(of.source, out);
        put(r#","rev":"#, out);
        number(of.rev, out);
        out.push(b'}');
    }
    member(r#","config":"#, draft.config, out, |config, out| number(config.0, out));
}

/// Writes a payload of those that every request leaves; false, and nothing written, for any other.
pub(crate) fn payload(body: &Body, out: &mut Out) -> bool {
    match body {
        Body::RequestAdmitted(event) => admitted(event, out),
        Body::AttemptStarted(event) => started(event, out),
        Body::AttemptFinished(event) => attempt_finished(event, out),
        Body::SourceOutcome(event) => return outcome(event, out),
        Body::RequestFinished(event) => finished(event, out),
        _ => return false,
    }
    true
}

fn admitted(event: &RequestAdmitted, out: &mut Out) {
    put(r#"{"key":"#, out);
    number(event.key.get(), out);
    put(r#","group":"#, out);
    number(event.group.get(), out);
    put(r#","protocol":"#, out);
    word(event.protocol.as_str(), out);
    put(r#","client_model":"#, out);
    text(&event.client_model, out);
    put(r#","model":"#, out);
    text(&event.model, out);
    put(r#","stream":"#, out);
    flag(event.stream, out);
    put(r#","body_bytes":"#, out);
    number(event.body_bytes, out);
    put(r#","deadline_ms":"#, out);
    number(event.deadline_ms, out);
    if let Some(table) = event.table {
        put(r#","table":""#, out);
        let [high, low] = [table.0 >> 64, table.0 & u128::from(u64::MAX)].map(|half| u64::try_from(half).unwrap_or(0));
        out.extend_from_slice(&hexadecimal::<16>(high));
        out.extend_from_slice(&hexadecimal::<16>(low));
        out.push(b'"');
    }
    put(r#","candidates":"#, out);
    list(&event.candidates, out, source);
    put(r#","candidate_count":"#, out);
    number(event.candidate_count, out);
    skips(&event.skips, out);
    member(r#","client_retry":"#, event.client_retry, out, number);
    member(r#","client_request_id":"#, event.client_request_id.as_deref(), out, text);
    out.push(b'}');
}

fn started(event: &AttemptStarted, out: &mut Out) {
    put(r#"{"attempt":"#, out);
    number(event.attempt, out);
    put(r#","model":"#, out);
    text(&event.model, out);
    put(r#","upstream_model":"#, out);
    text(&event.upstream_model, out);
    put(r#","why":"#, out);
    word(event.why.as_str(), out);
    put(r#","priority":"#, out);
    signed(event.priority, out);
    put(r#","place":"#, out);
    number(event.place, out);
    skips(&event.skips, out);
    put(r#","credential_revision":"#, out);
    number(event.credential_revision, out);
    put(r#","timeout_ms":"#, out);
    number(event.timeout_ms, out);
    out.push(b'}');
}

fn attempt_finished(event: &AttemptFinished, out: &mut Out) {
    put(r#"{"attempt":"#, out);
    number(event.attempt, out);
    put(r#","model":"#, out);
    text(&event.model, out);
    put(r#","upstream_model":"#, out);
    text(&event.upstream_model, out);
    put(r#","kind":"#, out);
    word(event.kind.as_str(), out);
    put(r#","rule":"#, out);
    text(&event.rule, out);
    put(r#","status":"#, out);
    number_or_null(event.status, out);
    put(r#","first_content_ms":"#, out);
    number_or_null(event.first_content_ms, out);
    put(r#","took_ms":"#, out);
    number(event.took_ms, out);
    put(r#","sent":"#, out);
    word(event.sent.as_str(), out);
    put(r#","maybe_billed":"#, out);
    flag(event.maybe_billed, out);
    member(r#","next":"#, event.next, out, |next, out| word(next.as_str(), out));
    member(r#","evidence":"#, event.evidence.as_ref(), out, evidence);
    member(r#","upstream_request_id":"#, event.upstream_request_id.as_deref(), out, text);
    out.push(b'}');
}

fn evidence(evidence: &Evidence, out: &mut Out) {
    let members = [
        (r#""code":"#, &evidence.code),
        (r#""type":"#, &evidence.kind),
        (r#""param":"#, &evidence.param),
        (r#""message":"#, &evidence.message),
    ];
    out.push(b'{');
    let mut first = true;
    for (name, value) in members {
        let Some(value) = value else { continue };
        if !std::mem::replace(&mut first, false) {
            out.push(b',');
        }
        out.extend_from_slice(name.as_bytes());
        text(value, out);
    }
    out.push(b'}');
}

/// Blocks are left to serde: hardly any request sets one.
fn outcome(event: &SourceOutcome, out: &mut Out) -> bool {
    if event.block.is_some() {
        return false;
    }
    put(r#"{"upstream_model":"#, out);
    text(&event.upstream_model, out);
    put(r#","kind":"#, out);
    word(event.kind.as_str(), out);
    put(r#","source_health":"#, out);
    word(event.source_health.as_str(), out);
    put(r#","model_health":"#, out);
    word(event.model_health.as_str(), out);
    member(r#","latency_ms":"#, event.latency_ms, out, number);
    put(r#","attempts":"#, out);
    number(event.attempts, out);
    put(r#","credential_revision":"#, out);
    number(event.credential_revision, out);
    put(r#","base_url_revision":"#, out);
    number(event.base_url_revision, out);
    if event.probe {
        put(r#","probe":true"#, out);
    }
    if let Some(usage) = event.usage {
        put(r#","usage":{"#, out);
        usage_members(usage, b"", out);
        out.push(b'}');
    }
    out.push(b'}');
    true
}

fn finished(event: &RequestFinished, out: &mut Out) {
    put(r#"{"state":"#, out);
    word(event.state.as_str(), out);
    put(r#","status":"#, out);
    number(event.status, out);
    member(r#","error":"#, event.error.as_deref(), out, text);
    member(r#","served_model":"#, event.served_model.as_deref(), out, text);
    put(r#","attempts":"#, out);
    number(event.attempts, out);
    member(r#","fallback":"#, event.fallback, out, |why, out| word(why.as_str(), out));
    if event.degraded {
        put(r#","degraded":true"#, out);
    }
    skips(&event.skips, out);
    put(r#","usage":"#, out);
    match event.usage {
        UsageReport::Reported(usage) => {
            put(r#"{"from":"reported""#, out);
            usage_members(usage, b",", out);
            out.push(b'}');
        }
        UsageReport::Absent => put(r#"{"from":"absent"}"#, out),
    }
    put(r#","first_content_ms":"#, out);
    number_or_null(event.first_content_ms, out);
    put(r#","took_ms":"#, out);
    number(event.took_ms, out);
    if event.maybe_billed {
        put(r#","maybe_billed":true"#, out);
    }
    out.push(b'}');
}
