//! The events of every request and the envelope of all, field by field: what serde would have written, in a fraction of
//! the work, since each name with its punctuation is one copy of known length. That both agree is a test; that no member
//! is left out, the compiler sees to: every event is taken apart whole.

use super::{escape, hexadecimal, integer};
use crate::body::Body;
use crate::config::Capability;
use crate::envelope::Draft;
use crate::money::{Usage, UsageReport};
use crate::selection::{Skip, TableHash};
use crate::source::SourceKind;
use crate::traffic::{
    AttemptFinished, AttemptStarted, Evidence, RequestAdmitted, RequestFinished, SessionRef, Shadow, SourceOutcome,
};
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

fn hash(table: TableHash, out: &mut Out) {
    out.push(b'"');
    let [high, low] = [table.0 >> 64, table.0 & u128::from(u64::MAX)].map(|half| u64::try_from(half).unwrap_or(0));
    out.extend_from_slice(&hexadecimal::<16>(high));
    out.extend_from_slice(&hexadecimal::<16>(low));
    out.push(b'"');
}

fn capabilities(name: &'static str, of: &[Capability], out: &mut Out) {
    if !of.is_empty() {
        put(name, out);
        list(of, out, |capability, out| word(capability.as_str(), out));
    }
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

/// When an event happened, and in which request.
pub(crate) fn when((at, request): (LogTime, Option<RequestId>), out: &mut Out) {
    put(r#","at":""#, out);
    out.extend_from_slice(&at.text());
    out.push(b'"');
    if let Some(id) = request {
        let mut digits = [0; uuid::fmt::Hyphenated::LENGTH];
        put(r#","request":""#, out);
        out.extend_from_slice(id.as_uuid().as_hyphenated().encode_lower(&mut digits).as_bytes());
        out.push(b'"');
    }
}

/// The envelope without the identity and the payload: an open object. `when` is what [`when`] writes.
pub(crate) fn envelope(draft: &Draft, when: &[u8], kind: &str, out: &mut Out) {
    put(r#"{"type":"#, out);
    text(kind, out);
    put(r#","v":"#, out);
    number(draft.body.version(), out);
    out.extend_from_slice(when);
    if let Some((_, rn)) = draft.request {
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
    let RequestAdmitted {
        key,
        group,
        protocol,
        client_model,
        model,
        route,
        needs,
        stream,
        body_bytes,
        deadline_ms,
        table,
        candidates,
        candidate_count,
        skips: skipped,
        client_retry,
        client_request_id,
        session,
    } = event;
    put(r#"{"key":"#, out);
    number(key.get(), out);
    put(r#","group":"#, out);
    number(group.get(), out);
    put(r#","protocol":"#, out);
    word(protocol.as_str(), out);
    put(r#","client_model":"#, out);
    text(client_model, out);
    put(r#","model":"#, out);
    text(model, out);
    member(r#","route":"#, *route, out, |route, out| number(route.get(), out));
    capabilities(r#","needs":"#, needs, out);
    put(r#","stream":"#, out);
    flag(*stream, out);
    put(r#","body_bytes":"#, out);
    number(*body_bytes, out);
    put(r#","deadline_ms":"#, out);
    number(*deadline_ms, out);
    member(r#","table":"#, *table, out, hash);
    put(r#","candidates":"#, out);
    list(candidates, out, source);
    put(r#","candidate_count":"#, out);
    number(*candidate_count, out);
    skips(skipped, out);
    member(r#","client_retry":"#, *client_retry, out, number);
    member(r#","client_request_id":"#, client_request_id.as_deref(), out, text);
    member(r#","session":"#, session.as_ref(), out, session_of);
    out.push(b'}');
}

fn session_of(session: &SessionRef, out: &mut Out) {
    let SessionRef { hash, by, home, bound } = session;
    put(r#"{"hash":"#, out);
    text(hash, out);
    put(r#","by":"#, out);
    word(by.as_str(), out);
    put(r#","home":"#, out);
    source(*home, out);
    put(r#","bound":"#, out);
    flag(*bound, out);
    out.push(b'}');
}

fn started(event: &AttemptStarted, out: &mut Out) {
    let AttemptStarted {
        attempt,
        model,
        upstream_model,
        why,
        priority,
        place,
        target,
        table,
        skips: skipped,
        credential_revision,
        timeout_ms,
    } = event;
    put(r#"{"attempt":"#, out);
    number(*attempt, out);
    put(r#","model":"#, out);
    text(model, out);
    put(r#","upstream_model":"#, out);
    text(upstream_model, out);
    put(r#","why":"#, out);
    word(why.as_str(), out);
    put(r#","priority":"#, out);
    signed(*priority, out);
    put(r#","place":"#, out);
    number(*place, out);
    member(r#","target":"#, Some(*target).filter(|target| *target > 0), out, number);
    member(r#","table":"#, *table, out, hash);
    skips(skipped, out);
    put(r#","credential_revision":"#, out);
    number(*credential_revision, out);
    put(r#","timeout_ms":"#, out);
    number(*timeout_ms, out);
    out.push(b'}');
}

fn attempt_finished(event: &AttemptFinished, out: &mut Out) {
    let AttemptFinished {
        attempt,
        model,
        upstream_model,
        kind,
        rule,
        status,
        first_content_ms,
        took_ms,
        sent,
        maybe_billed,
        next,
        evidence: found,
        upstream_request_id,
        shadow: other,
    } = event;
    put(r#"{"attempt":"#, out);
    number(*attempt, out);
    put(r#","model":"#, out);
    text(model, out);
    put(r#","upstream_model":"#, out);
    text(upstream_model, out);
    put(r#","kind":"#, out);
    word(kind.as_str(), out);
    put(r#","rule":"#, out);
    text(rule, out);
    put(r#","status":"#, out);
    number_or_null(*status, out);
    put(r#","first_content_ms":"#, out);
    number_or_null(*first_content_ms, out);
    put(r#","took_ms":"#, out);
    number(*took_ms, out);
    put(r#","sent":"#, out);
    word(sent.as_str(), out);
    put(r#","maybe_billed":"#, out);
    flag(*maybe_billed, out);
    member(r#","next":"#, *next, out, |next, out| word(next.as_str(), out));
    member(r#","evidence":"#, found.as_ref(), out, evidence);
    member(r#","upstream_request_id":"#, upstream_request_id.as_deref(), out, text);
    member(r#","shadow":"#, other.as_ref(), out, shadow);
    out.push(b'}');
}

fn shadow(shadow: &Shadow, out: &mut Out) {
    let Shadow { rule, kind, differs } = shadow;
    put(r#"{"rule":"#, out);
    text(rule, out);
    put(r#","kind":"#, out);
    word(kind.as_str(), out);
    for (i, part) in differs.iter().enumerate() {
        put(if i == 0 { r#","differs":["# } else { "," }, out);
        text(part, out);
    }
    put(if differs.is_empty() { "}" } else { "]}" }, out);
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
    if let Some(wait) = evidence.wait_ms {
        if !first {
            out.push(b',');
        }
        put(r#""wait_ms":"#, out);
        number(wait, out);
    }
    out.push(b'}');
}

/// Blocks are left to serde: hardly any request sets one.
fn outcome(event: &SourceOutcome, out: &mut Out) -> bool {
    let SourceOutcome {
        upstream_model,
        kind,
        source_health,
        model_health,
        latency_ms,
        block,
        attempts,
        credential_revision,
        base_url_revision,
        probe,
        usage,
    } = event;
    if block.is_some() {
        return false;
    }
    put(r#"{"upstream_model":"#, out);
    text(upstream_model, out);
    put(r#","kind":"#, out);
    word(kind.as_str(), out);
    put(r#","source_health":"#, out);
    word(source_health.as_str(), out);
    put(r#","model_health":"#, out);
    word(model_health.as_str(), out);
    member(r#","latency_ms":"#, *latency_ms, out, number);
    put(r#","attempts":"#, out);
    number(*attempts, out);
    put(r#","credential_revision":"#, out);
    number(*credential_revision, out);
    put(r#","base_url_revision":"#, out);
    number(*base_url_revision, out);
    if *probe {
        put(r#","probe":true"#, out);
    }
    if let Some(usage) = *usage {
        put(r#","usage":{"#, out);
        usage_members(usage, b"", out);
        out.push(b'}');
    }
    out.push(b'}');
    true
}

fn finished(event: &RequestFinished, out: &mut Out) {
    let RequestFinished {
        state,
        status,
        error,
        served_model,
        attempts,
        fallback,
        degraded,
        missing,
        skips: skipped,
        usage,
        first_content_ms,
        took_ms,
        maybe_billed,
    } = event;
    put(r#"{"state":"#, out);
    word(state.as_str(), out);
    put(r#","status":"#, out);
    number(*status, out);
    member(r#","error":"#, error.as_deref(), out, text);
    member(r#","served_model":"#, served_model.as_deref(), out, text);
    put(r#","attempts":"#, out);
    number(*attempts, out);
    member(r#","fallback":"#, *fallback, out, |why, out| word(why.as_str(), out));
    if *degraded {
        put(r#","degraded":true"#, out);
    }
    capabilities(r#","missing":"#, missing, out);
    skips(skipped, out);
    put(r#","usage":"#, out);
    match *usage {
        UsageReport::Reported(usage) => {
            put(r#"{"from":"reported""#, out);
            usage_members(usage, b",", out);
            out.push(b'}');
        }
        UsageReport::Absent => put(r#"{"from":"absent"}"#, out),
    }
    put(r#","first_content_ms":"#, out);
    number_or_null(*first_content_ms, out);
    put(r#","took_ms":"#, out);
    number(*took_ms, out);
    if *maybe_billed {
        put(r#","maybe_billed":true"#, out);
    }
    out.push(b'}');
}
