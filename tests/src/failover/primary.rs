//! What the primary of each scenario does.

use serde_json::{Value, json};
use waybill_testkit::upstream::{After, Chat, Reply, Source, Then};

use super::{Pace, Variant};

/// Words of the healthy answer.
pub(super) const WORDS: usize = 60;

/// The healthy answer.
pub(super) fn healthy() -> Reply {
    Reply::chat(Chat::words(WORDS))
}

/// The primary of a variant. That of the fifteenth scenario is healed by the run.
pub(super) fn of(variant: Variant, pace: Pace) -> Source {
    let always = |reply: Reply| Source::default().then(reply);
    let once = |reply: Reply| Source::default().then(reply).then(healthy());
    let streamed = variant.streamed;
    match variant.scenario {
        1 => once(limited(pace)),
        2 => always(Reply::error(429, "rate_limit_exceeded")),
        3 => once(Reply::error(500, "server_error")),
        4 | 15 | 16 => always(Reply::error(503, "server_error")),
        5 => once(healthy().fault(After::Request, Then::Reset)),
        6 => always(healthy().fault(After::Request, Then::Hang)),
        7 => always(slow(streamed, pace)),
        8 | 14 => always(healthy().fault(place(streamed, 41), Then::Cut)),
        9 => once(healthy().fault(place(streamed, 21), Then::Hang)),
        10 => once(broken(streamed)),
        11 => always(Reply::chat(Chat { no_done: true, ..Chat::words(WORDS) })),
        12 => always(Reply::error(400, "context_length_exceeded")),
        _ => always(Reply::error(400, "content_policy_violation")),
    }
}

/// Behind so many events of a stream, or in the middle of a whole answer.
fn place(streamed: bool, events: usize) -> After {
    if streamed { After::Frames(events) } else { After::Bytes(200) }
}

fn limited(pace: Pace) -> Reply {
    let reply = Reply::error(429, "rate_limit_exceeded");
    if (pace.0 - 1.0).abs() < f64::EPSILON {
        reply.header("retry-after", "2")
    } else {
        reply.header("retry-after-ms", pace.ms(2.0).to_string())
    }
}

/// Headers at once, the first token after 20 s.
fn slow(streamed: bool, pace: Pace) -> Reply {
    let place = if streamed { After::Frames(0) } else { After::Bytes(0) };
    healthy().fault(place, Then::Stall { ms: pace.ms(20.0) })
}

fn broken(streamed: bool) -> Reply {
    if !streamed {
        let text = "{\"id\":\"x\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"word1 wo";
        return Reply {
            body: waybill_testkit::upstream::Body::Text {
                content_type: "application/json".to_owned(),
                text: text.to_owned(),
            },
            ..Reply::default()
        };
    }
    // The tenth event instead of the ninth word, and then everything goes on as if nothing had been.
    let chunk = |delta: Value, finish: Option<&str>| {
        json!({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "primary",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
    };
    let mut frames = vec![format!("data: {}", chunk(json!({"role": "assistant", "content": ""}), None))];
    for word in 1..=WORDS {
        let text = if word == 1 { "word1".to_owned() } else { format!(" word{word}") };
        frames.push(if word == 9 {
            "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"con".to_owned()
        } else {
            format!("data: {}", chunk(json!({"content": text}), None))
        });
    }
    frames.push(format!("data: {}", chunk(json!({}), Some("stop"))));
    frames.push("data: [DONE]".to_owned());
    Reply::frames(frames)
}
