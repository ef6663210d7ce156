//! Whether what came of a request is what must come of it: for the client, for the upstreams, and in the record.

use serde_json::Value;
use waybill_testkit::{Answer, Story};

use super::script::{Ask, Ends};
use super::stage::{Stage, brief};

/// Sends a request and checks all that is said of it.
pub(super) async fn check(stage: &Stage<'_>, ask: &Ask, time: usize) {
    let calls = |stage: &Stage<'_>| -> Vec<(&'static str, usize)> {
        stage.script.channels.iter().map(|channel| (channel.name, stage.calls(channel.name).len())).collect()
    };
    let before = calls(stage);
    let answer = stage.request(ask, time).send().await;
    let story = stage.story(&answer).await;
    of_client(ask, &answer);
    of_record(stage, ask, &story);
    let Some(walked) = &ask.walked else { return };
    let expected: Vec<(String, String)> =
        walked.iter().map(|(name, kind)| ((*name).to_owned(), (*kind).to_owned())).collect();
    assert_eq!(stage.walked(&story), expected, "{}", brief(&story));
    // What the record says was asked was asked, and nothing else.
    for ((name, before), (_, after)) in before.into_iter().zip(calls(stage)) {
        let asked = walked.iter().filter(|(asked, _)| *asked == name).count();
        assert_eq!(after - before, asked, "calls of {name}: {}", brief(&story));
    }
}

fn of_client(ask: &Ask, answer: &Answer) {
    let text = answer.text();
    let shown = format!("{} {:?}\n{text}", answer.status, answer.headers);
    match &ask.ends {
        Ends::Served(channel) => whole(ask, answer, &format!("from {channel}"), &shown),
        Ends::Whole(said) => whole(ask, answer, said, &shown),
        Ends::Refused(status, code) => {
            assert_eq!((answer.status, answer.code().as_deref()), (*status, Some(*code)), "{shown}");
            assert!(answer.header("www-authenticate").is_none(), "{shown}");
        }
        Ends::Broken(said, code) => {
            assert_eq!((answer.status, answer.said().as_str()), (200, *said), "{shown}");
            let events = answer.events();
            let errors: Vec<&String> = events.iter().filter(|data| data.contains("\"error\"")).collect();
            assert_eq!(errors.len(), 1, "one error event: {shown}");
            let last: Value = serde_json::from_str(events.last().map_or("", String::as_str)).unwrap_or_default();
            assert_eq!(
                last.pointer("/error/code").and_then(Value::as_str),
                Some(*code),
                "the error comes last: {shown}"
            );
            assert!(!text.contains("[DONE]") && !text.contains("\"finish_reason\":\"stop\""), "{shown}");
        }
    }
    for wanted in &ask.says {
        assert!(text.contains(wanted), "{wanted:?} isn't in {shown}");
    }
    for hidden in &ask.hides {
        assert!(!shown.contains(hidden), "{hidden:?} is in {shown}");
    }
    if let Some(range) = &ask.retry_after {
        let seconds = answer.header("retry-after").and_then(|value| value.parse().ok());
        assert!(seconds.is_some_and(|seconds| range.contains(&seconds)), "retry-after isn't {range:?}: {shown}");
    }
}

/// The whole answer, once, with its proper end.
fn whole(ask: &Ask, answer: &Answer, said: &str, shown: &str) {
    assert_eq!((answer.status, answer.said().as_str()), (200, said), "{shown}");
    if !ask.streamed {
        return;
    }
    let events = answer.events();
    let (last, rest) = events.split_last().map_or(("", &events[..]), |(last, rest)| (last.as_str(), rest));
    assert_eq!(last, "[DONE]", "{shown}");
    for data in rest {
        let json: Value = serde_json::from_str(data).unwrap_or_default();
        assert!(json.is_object() && json.get("error").is_none(), "{data:?} in {shown}");
    }
}

fn of_record(stage: &Stage<'_>, ask: &Ask, story: &Story) {
    let row = |field: &str| story.pointer(&format!("/request/{field}")).cloned().unwrap_or_default();
    let state = ask.state.unwrap_or(match ask.ends {
        Ends::Served(_) | Ends::Whole(_) => "succeeded",
        Ends::Refused(..) | Ends::Broken(..) => "failed",
    });
    assert_eq!(story.state(), state, "{}", brief(story));
    if let Some(reason) = ask.fallback {
        assert_eq!(row("fallback"), reason, "{}", brief(story));
    }
    if let Some((prompt, completion)) = ask.usage {
        let told = (row("usage_from"), row("prompt_tokens"), row("completion_tokens"));
        assert_eq!(told, ("reported".into(), prompt.into(), completion.into()), "{}", brief(story));
    }
    if let Some(billed) = ask.billed {
        assert_eq!(row("maybe_billed").as_bool().unwrap_or_default(), billed, "{}", brief(story));
    }
    for (channel, source, model) in &ask.health {
        let told = health(stage, story, channel);
        let expected: Vec<(String, String)> = vec![((*source).to_owned(), (*model).to_owned())];
        assert_eq!(told, expected, "{channel}: exactly one outcome: {}", brief(story));
    }
}

/// What a request's outcomes say of a channel and of the model there: one where it was asked.
pub(super) fn health(stage: &Stage<'_>, story: &Story, channel: &str) -> Vec<(String, String)> {
    let outcomes = story.get("outcomes").and_then(Value::as_array).cloned().unwrap_or_default();
    let own = outcomes
        .iter()
        .filter(|row| row.get("source").map(waybill_testkit::source_text).as_deref() == Some(stage.source(channel)));
    let text = |row: &Value, field: &str| row.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    own.map(|row| (text(row, "source_health"), text(row, "model_health"))).collect()
}
