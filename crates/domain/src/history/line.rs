//! A request's history in words: one line per event, each with where it stands in the log.

use std::fmt::Write as _;

use serde::Serialize;
use waybill_event::control::LossReason;
use waybill_event::failure::{BlockVerdict, Health, Recovery, Sent, Strength};
use waybill_event::selection::{Chosen, Next, Skip};
use waybill_event::{LogTime, Position, Source};

use super::attempt::AttemptRow;
use super::outcome::OutcomeRow;
use super::request::RequestRow;

/// One event of a request, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// Where it stands in the log.
    pub position: Position,
    /// When it happened.
    pub at: LogTime,
    /// Its ordinal among the request's events.
    pub rn: u32,
    /// The event's type.
    pub event: &'static str,
    /// The source it speaks of.
    pub source: Option<Source>,
    /// What it says, in a sentence.
    pub text: String,
    /// Further facts, one each.
    pub details: Vec<String>,
}

/// The lines of a request, in the order of its events.
#[must_use]
pub fn lines(request: &RequestRow, attempts: &[AttemptRow], outcomes: &[OutcomeRow]) -> Vec<Line> {
    let mut lines: Vec<Line> = admitted(request).into_iter().collect();
    lines.extend(attempts.iter().flat_map(|attempt| [started(attempt), ended(attempt)]).flatten());
    lines.extend(outcomes.iter().map(judged));
    lines.extend(finished(request));
    // It has no ordinal of the request's own: it stands before an end that came after it, and else at the end.
    let last = lines.iter().map(|line| line.rn).max().unwrap_or(0);
    lines.extend(lost(request, request.finished_rn.unwrap_or(last.saturating_add(1))));
    lines.sort_by_key(|line| (line.rn, line.position));
    lines
}

fn admitted(row: &RequestRow) -> Option<Line> {
    let model = row.model.as_deref().unwrap_or_default();
    let mut text = format!("admitted: {model}");
    if let Some(asked) = row.client_model.as_deref().filter(|&asked| asked != model) {
        say(&mut text, format_args!(" (asked as {asked})"));
    }
    if let (Some(key), Some(group)) = (row.key_id, row.group_id) {
        say(&mut text, format_args!(", key {key}, group {group}"));
    }
    if row.stream == Some(true) {
        text.push_str(", streamed");
    }
    let mut details = Vec::new();
    let count = row.candidate_count.unwrap_or(0);
    let named: Vec<String> = row.candidates.iter().map(Source::to_string).collect();
    details.push(match named.as_slice() {
        [] => "no candidate".to_owned(),
        named => format!("plan of {count}: {}", named.join(", ")),
    });
    details.extend(skips(&row.skips));
    if let Some(table) = row.table_hash {
        details.push(format!("selection table {table}"));
    }
    if let Some(config) = row.config {
        details.push(format!("configuration {config}"));
    }
    if let Some(deadline) = row.deadline_ms {
        details.push(format!("may take {deadline} ms"));
    }
    if let Some(id) = &row.client_request_id {
        details.push(format!("the client calls it {id}"));
    }
    if let Some(retry) = row.client_retry {
        details.push(format!("the client's retry {retry}"));
    }
    Some(Line {
        position: row.admitted_position?,
        at: row.admitted_at?,
        rn: row.admitted_rn?,
        event: "request_admitted",
        source: None,
        text,
        details,
    })
}

fn started(row: &AttemptRow) -> Option<Line> {
    let mut text = format!("attempt {} asks {} for {}", row.attempt, row.source, row.upstream_model);
    if let Some(why) = row.why {
        say(&mut text, format_args!(": {}", because(why)));
    }
    let mut details = skips(&row.skips);
    if let (Some(priority), Some(place)) = (row.priority, row.place) {
        details.push(format!("tier {priority}, place {place} of the plan"));
    }
    if let Some(timeout) = row.timeout_ms {
        details.push(format!("may take {timeout} ms"));
    }
    details.push(format!("source version {}", row.source_rev));
    if let Some(revision) = row.credential_revision {
        details.push(format!("credential {revision}"));
    }
    Some(Line {
        position: row.started_position?,
        at: row.started_at?,
        rn: row.started_rn?,
        event: "attempt_started",
        source: Some(row.source),
        text,
        details,
    })
}

fn ended(row: &AttemptRow) -> Option<Line> {
    let mut text = format!("attempt {} at {} ended: {}", row.attempt, row.source, row.kind?.as_str());
    if let Some(status) = row.status {
        say(&mut text, format_args!(", HTTP {status}"));
    }
    if let Some(took) = row.took_ms {
        say(&mut text, format_args!(" after {took} ms"));
    }
    if let Some(next) = row.next {
        say(&mut text, format_args!("; {}", afterwards(next)));
    }
    let mut details: Vec<String> = row.rule.iter().map(|rule| format!("verdict by rule {rule}")).collect();
    if let Some(ms) = row.first_content_ms {
        details.push(format!("first content after {ms} ms"));
    }
    if let Some(sent) = row.sent {
        details.push(how_far(sent).to_owned());
    }
    if row.maybe_billed == Some(true) {
        details.push("may have been charged".to_owned());
    }
    if let Some(evidence) = &row.evidence {
        let parts = [
            ("code", &evidence.code),
            ("type", &evidence.kind),
            ("param", &evidence.param),
            ("message", &evidence.message),
        ];
        details.extend(parts.into_iter().filter_map(|(name, v)| v.as_ref().map(|v| format!("upstream's {name}: {v}"))));
        details.extend(evidence.wait_ms.map(|wait| format!("upstream asks to wait {wait} ms")));
    }
    if let Some(id) = &row.upstream_request_id {
        details.push(format!("upstream's id {id}"));
    }
    if let Some(shadow) = &row.shadow {
        let differs =
            if shadow.differs.is_empty() { String::new() } else { format!(" ({})", shadow.differs.join(", ")) };
        details.push(format!("the candidate of rules would have said {} by {}{differs}", shadow.kind, shadow.rule));
    }
    Some(Line {
        position: row.finished_position?,
        at: row.finished_at?,
        rn: row.finished_rn?,
        event: "attempt_finished",
        source: Some(row.source),
        text,
        details,
    })
}

fn judged(row: &OutcomeRow) -> Line {
    let mut text = format!(
        "{} judged by {}: source {}, model {}",
        row.source,
        row.kind.as_str(),
        health(row.source_health),
        health(row.model_health)
    );
    match &row.block {
        None => {}
        Some(BlockVerdict::Block { strength, model_only, duration_ms }) => {
            let what = if *model_only { "the model there" } else { "the source" };
            say(&mut text, format_args!("; blocks {what} for {duration_ms} ms ({})", strictly(*strength)));
        }
        Some(BlockVerdict::Disable { recovery }) => {
            say(&mut text, format_args!("; disables the source until {}", until(*recovery)));
        }
    }
    let mut details = vec![format!("tries there: {}", row.attempts)];
    if let Some(latency) = row.latency_ms {
        details.push(format!("response time {latency} ms"));
    }
    if row.probe {
        details.push("it was a probe".to_owned());
    }
    Line {
        position: row.position,
        at: row.at,
        rn: row.rn,
        event: "source_outcome",
        source: Some(row.source),
        text,
        details,
    }
}

fn finished(row: &RequestRow) -> Option<Line> {
    let mut text = format!("finished: {}", row.state);
    if let Some(status) = row.status {
        say(&mut text, format_args!(", HTTP {status}"));
    }
    if let Some(error) = &row.error {
        say(&mut text, format_args!(" ({error})"));
    }
    if let Some(source) = row.served_source {
        say(&mut text, format_args!(", served by {source}"));
    }
    if let Some(took) = row.took_ms {
        say(&mut text, format_args!(" after {took} ms"));
    }
    let mut details = skips(&row.last_skips);
    if let Some(attempts) = row.attempts {
        details.push(format!("attempts: {attempts}"));
    }
    if let Some(fallback) = row.fallback {
        details.push(format!("fallback because of {}", fallback.as_str()));
    }
    if let Some(ms) = row.first_content_ms {
        details.push(format!("first content after {ms} ms"));
    }
    let tokens = [("prompt", row.prompt_tokens), ("completion", row.completion_tokens)];
    details.extend(tokens.into_iter().filter_map(|(name, n)| n.map(|n| format!("{name} tokens: {}", n.0))));
    if row.maybe_billed == Some(true) {
        details.push("a failed attempt may have been charged".to_owned());
    }
    Some(Line {
        position: row.finished_position?,
        at: row.finished_at?,
        rn: row.finished_rn?,
        event: "request_finished",
        source: row.served_source,
        text,
        details,
    })
}

fn lost(row: &RequestRow, rn: u32) -> Option<Line> {
    let known = match row.lost_why? {
        LossReason::Drained => "everything that its boot wrote is in the log, and no end is among it",
        LossReason::Absent => "its boot has shown no sign of life for too long",
    };
    let overridden = row.finished_position.is_some();
    let replica = row.replica.as_ref().map_or("a replica", |replica| replica.as_str());
    Some(Line {
        position: row.lost_position?,
        at: row.lost_at?,
        rn,
        event: "owner_lost",
        source: None,
        text: format!("its owner, {replica}, is lost: {known}"),
        details: overridden.then(|| "overridden: the real end is in the log".to_owned()).into_iter().collect(),
    })
}

fn say(text: &mut String, more: std::fmt::Arguments<'_>) {
    let written = text.write_fmt(more);
    debug_assert!(written.is_ok(), "writing to a String doesn't fail");
}

fn skips(skips: &[Skip]) -> Vec<String> {
    skips.iter().map(|skip| format!("passed over {}: {}", skip.source, skip.why.as_str())).collect()
}

const fn because(why: Chosen) -> &'static str {
    match why {
        Chosen::First => "first of the plan",
        Chosen::FailOver => "next of the plan after the failure",
        Chosen::SameSource => "the same source again",
        Chosen::Probe => "half-open, and this request holds its probe permit",
        Chosen::LastResort => "softly blocked, and nothing better was left",
        Chosen::NextTarget => "the route's next target: the ones before have nobody left",
        Chosen::LeastBad => "its breaker is open, and nothing better was left",
        Chosen::LimitEnded => "nobody better was left, and the end of its limit was waited for",
        Chosen::LimitRetried => "nobody better was left, and its limit was tried again before its end",
        Chosen::RoomFreed => "all were full, and here there was room in time",
        Chosen::Sticky => "its conversation is served there",
    }
}

const fn afterwards(next: Next) -> &'static str {
    match next {
        Next::Elsewhere => "next: another source",
        Next::Same => "next: the same source again",
        Next::Stop => "the request ends with it",
    }
}

const fn how_far(sent: Sent) -> &'static str {
    match sent {
        Sent::Nothing => "nothing was sent",
        Sent::Request => "the request was sent",
        Sent::Response => "the answer had begun",
    }
}

const fn health(health: Health) -> &'static str {
    match health {
        Health::Ok => "ok",
        Health::Fail => "fail",
        Health::Busy => "busy",
        Health::None => "no evidence",
    }
}

const fn strictly(strength: Strength) -> &'static str {
    match strength {
        Strength::Soft => "soft",
        Strength::Hint => "as the upstream asked",
        Strength::Hard => "hard",
    }
}

const fn until(recovery: Recovery) -> &'static str {
    match recovery {
        Recovery::Probe => "a probe succeeds",
        Recovery::Operator => "an operator's edit",
    }
}
