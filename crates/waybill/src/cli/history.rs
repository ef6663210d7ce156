//! `waybill history`: the story of one request, line by line, each with where it stands in the log.

use std::time::Duration;

use anyhow::bail;
use clap::Args;
use serde_json::{Map, Value};
use tokio::time::Instant;
use waybill_event::LogTime;

use super::api::{Api, is_not_found};
use super::output::{list, member};

/// How long a request that isn't in the read model yet is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// Characters of a request's whole id.
const ID_CHARS: usize = 36;

/// Tell what happened to a request, and why.
#[derive(Debug, Args)]
pub(crate) struct History {
    /// The request's id (as the `x-request-id` header told it), its beginning, or `last` for the newest.
    request: String,
}

impl History {
    pub(super) async fn run(self, api: &Api) -> anyhow::Result<()> {
        let id = find(api, &self.request).await?;
        let story = wait_for(api, &id).await?;
        if api.wants_json() {
            api.out().json(&story)?
        } else {
            api.out().line(&told(&story))?
        }
        Ok(())
    }
}

async fn find(api: &Api, wanted: &str) -> anyhow::Result<String> {
    if wanted.len() == ID_CHARS {
        return Ok(wanted.to_owned());
    }
    let last = wanted == "last";
    let parameters =
        [("q", (!last).then(|| wanted.to_owned())), ("limit", Some(if last { "1" } else { "2" }.to_owned()))];
    let answer = api.get(&["requests"], &parameters).await?;
    match list(&answer, "requests") {
        [one] => Ok(member(one, "request_id")),
        [] if last => bail!("there are no requests yet"),
        [] => bail!("no request's id begins with {wanted}"),
        _ => bail!("several requests' ids begin with {wanted}; give more of it"),
    }
}

/// A request that has only just ended may take a moment to be folded.
async fn wait_for(api: &Api, id: &str) -> anyhow::Result<Value> {
    let end = Instant::now() + PATIENCE;
    loop {
        match api.get(&["requests", id], &[]).await {
            Err(error) if is_not_found(&error) && Instant::now() < end => tokio::time::sleep(ASK_AGAIN).await,
            answer => return answer,
        }
    }
}

fn told(story: &Value) -> String {
    let none = Map::new();
    let names = story.get("names").and_then(Value::as_object).unwrap_or(&none);
    let request = story.get("request").unwrap_or(&Value::Null);
    let lines = list(story, "lines");
    let mut text = format!("request {}: {}", member(request, "request_id"), member(request, "state"));
    let time = |line: &Value| member(line, "at").parse::<LogTime>().ok();
    let begun = lines.first().and_then(time);
    if let Some(begun) = begun {
        text.push_str(&format!("\nfrom {begun}"));
    }
    text.push('\n');
    let width = lines.iter().map(|line| member(line, "position").len()).max().unwrap_or(0);
    for line in lines {
        let after = match (time(line), begun) {
            (Some(at), Some(begun)) => format!("{:.1}", at.since(begun).as_secs_f64() * 1_000.0),
            _ => "?".to_owned(),
        };
        let (position, said) = (member(line, "position"), named(&member(line, "text"), names));
        text.push_str(&format!("\n{after:>9} ms  {position:<width$}  {said}"));
        let indent = 9 + 3 + 2 + width + 2 + 2;
        for detail in list(line, "details") {
            let detail = named(detail.as_str().unwrap_or_default(), names);
            text.push_str(&format!("\n{:indent$}{detail}", ""));
        }
    }
    text
}

/// The text with names behind sources: `channel:1 (main)`.
fn named(text: &str, names: &Map<String, Value>) -> String {
    let mut out = String::with_capacity(text.len() + 32);
    let mut rest = text;
    loop {
        let at = ["channel:", "account:"].iter().filter_map(|kind| rest.find(kind)).min();
        let Some(at) = at else { break };
        let (before, from) = rest.split_at(at);
        let digits = from.find(':').map_or(0, |colon| colon + 1);
        let end = from
            .get(digits..)
            .map_or(from.len(), |tail| digits + tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len()));
        let (source, after) = from.split_at(end);
        out.push_str(before);
        out.push_str(source);
        if let Some(name) = names.get(source).and_then(Value::as_str) {
            out.push_str(&format!(" ({name})"));
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sources_get_their_names() {
        let names = json!({"channel:1": "main", "channel:12": "other"});
        let check = |text: &str, expected: &str| assert_eq!(named(text, names.as_object().unwrap()), expected);
        check("plan of 2: channel:12, channel:1", "plan of 2: channel:12 (other), channel:1 (main)");
        check("passed over channel:3: disabled", "passed over channel:3: disabled");
        check("channel:1 judged", "channel:1 (main) judged");
        check("no source", "no source");
    }

    #[test]
    fn a_story_reads_from_top_to_bottom() {
        let story = json!({
            "request": {"request_id": "r-1", "state": "succeeded"},
            "names": {"channel:1": "broken", "channel:2": "good"},
            "lines": [
                {"position": "0/0/9/0", "at": "2026-11-29T12:00:00.000000Z", "text": "admitted: m",
                 "details": ["plan of 2: channel:1, channel:2"]},
                {"position": "0/0/9/1", "at": "2026-11-29T12:00:00.000100Z", "text": "attempt 1 asks channel:1 for m: first of the plan",
                 "details": []},
                {"position": "0/0/10/0", "at": "2026-11-29T12:00:00.081000Z",
                 "text": "attempt 1 at channel:1 ended: server_error, HTTP 500 after 80 ms; next: another source",
                 "details": ["verdict by rule openai/500@v1"]},
            ],
        });
        insta::assert_snapshot!(told(&story));
    }
}
