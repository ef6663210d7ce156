//! What is asked, and how the upstream behaves: sources that fail now and then in their own ways, streams and whole
//! answers, clients that leave.

use std::time::Duration;

use serde_json::{Value, json};
use waybill_testkit::Asked;
use waybill_testkit::upstream::{After, Chat, Reply, Source, Then};

use crate::{Bench, channel_entry};

/// After how long an impatient client leaves.
const IMPATIENT: Duration = Duration::from_millis(150);

/// A model that is always served in the end.
pub const CHAT: &str = "chat";
/// One whose answers take their time.
pub const SLOW: &str = "slow";
/// One that nobody can serve.
pub const BROKEN: &str = "broken";
/// One whose streams are cut now and then, after their first content.
pub const CUT: &str = "cut";

/// A channel: its name, what it does, its models and its priority.
type Channel = (&'static str, Source, &'static [&'static str], i32);

fn words() -> Reply {
    Reply::chat(Chat::words(4))
}

/// A source that has these turns again and again.
fn turns(replies: &[(usize, Reply)]) -> Source {
    replies.iter().fold(Source::default(), |source, (times, reply)| source.times(*times, reply)).over_again()
}

fn channels() -> Vec<Channel> {
    let server = Reply::error(500, "server_error");
    let limited = Reply::error(429, "rate_limit_exceeded").header("retry-after", "1");
    let slow = Reply::chat(Chat::words(20)).delay_head(100).delay_per_chunk(30);
    let cut = words().fault(After::Frames(3), Then::Cut);
    vec![
        ("failing", turns(&[(9, words()), (1, server.clone()), (5, words()), (1, Reply::html(502))]), &[CHAT], 30),
        ("limited", turns(&[(40, words()), (1, limited)]), &[CHAT], 20),
        ("steady", Source::default(), &[CHAT], 0),
        ("slow", Source::default().then(slow), &[SLOW], 0),
        ("doomed", Source::default().then(server), &[BROKEN], 0),
        ("cutting", turns(&[(4, words()), (1, cut)]), &[CUT], 0),
    ]
}

/// Creates all channels.
pub async fn configure(bench: &Bench) {
    let all = channels().into_iter().map(|(name, source, models, priority)| {
        bench.upstream.set_source(name, source);
        channel_entry(name, &bench.upstream.base_url(name), models, priority)
    });
    let all: Vec<Value> = all.collect();
    bench.apply(json!({"channels": all})).await;
    // Breakers that open and close within a run.
    let quick = json!({"min_outcomes": 20, "max_fail_milli": 300, "open_ms": 1_000, "slow_start_ms": 500});
    bench.admin().policy(json!({"source_breaker": quick, "model_breaker": quick})).await;
    bench.configured().await;
}

/// The n-th request of a case.
pub fn asked(case: &str, n: usize) -> Asked {
    let model = match n % 20 {
        0 => BROKEN,
        1 | 11 => CUT,
        2..=6 => SLOW,
        _ => CHAT,
    };
    let patience = (n % 20 == 5).then_some(IMPATIENT);
    let stream = model == CUT || n.is_multiple_of(2);
    Asked { name: format!("{case}-{n:06}"), model: model.to_owned(), stream, patience }
}

/// The n-th request of a case in which everything must be served.
pub fn served(case: &str, n: usize) -> Asked {
    let model = if n.is_multiple_of(10) { SLOW } else { CHAT };
    Asked { name: format!("{case}-{n:06}"), model: model.to_owned(), stream: n.is_multiple_of(2), patience: None }
}
