//! What a script has while it runs.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::Method;
use serde_json::Value;
use waybill_testkit::upstream::{Call, Source};
use waybill_testkit::{Answer, Chat, RawClient, Story, until, wait_until};

use super::Script;
use super::script::{Ask, MODEL};
use crate::Bench;

/// How long the fleet may take to know what one replica knows. The figure itself is measured elsewhere.
pub(super) const KNOWN: Duration = Duration::from_secs(30);
/// How long what must come soon may take on a busy machine.
pub(super) const SOON: Duration = Duration::from_secs(30);

/// A script at a fleet of three replicas.
pub struct Stage<'a> {
    pub(super) bench: &'a Bench,
    pub(super) script: &'a Script,
    sources: &'a BTreeMap<String, String>,
}

impl<'a> Stage<'a> {
    pub(super) fn new(bench: &'a Bench, script: &'a Script, sources: &'a BTreeMap<String, String>) -> Self {
        Self { bench, script, sources }
    }

    /// A request for a model of the script.
    pub(super) fn chat_for(&self, proxy: usize, model: &str) -> Chat {
        self.bench.chat(proxy, &self.script.model(model))
    }

    /// A request for the script's usual model.
    pub(super) fn chat(&self, proxy: usize) -> Chat {
        self.chat_for(proxy, MODEL)
    }

    /// The request of an ask, its `time`th.
    pub(super) fn request(&self, ask: &Ask, time: usize) -> Chat {
        let proxy = (ask.proxy - 1 + time) % self.bench.fleet.proxies().len() + 1;
        let mut chat = self.chat_for(proxy, ask.model);
        if ask.streamed {
            chat = chat.streamed();
        }
        for (field, value) in &ask.fields {
            chat = chat.with(field, value.clone());
        }
        ask.headers.iter().fold(chat, |chat, (name, value)| chat.header(name, value))
    }

    /// The chats that a channel's upstream has seen.
    pub(super) fn calls(&self, channel: &str) -> Vec<Call> {
        self.bench.upstream.calls_of(&self.script.channel(channel))
    }

    /// Changes what a channel's upstream does.
    pub(super) fn now(&self, channel: &str, source: Source) {
        let text = format!("from {channel}");
        let text = source.text.clone().or(Some(text));
        self.bench.upstream.set_source(&self.script.channel(channel), Source { text, ..source });
    }

    /// A channel's source, e.g. `channel:7`.
    pub(super) fn source(&self, channel: &str) -> &str {
        let name = self.script.channel(channel);
        match self.sources.get(&name) {
            Some(source) => source,
            None => panic!("there is no channel {name}"),
        }
    }

    /// A request's history.
    pub(super) async fn story(&self, answer: &Answer) -> Story {
        self.bench.admin().history(answer.request()).await
    }

    /// The history of the request that a client called `id`; nothing where there is none yet, or it can't be asked now.
    pub(super) async fn told_of(&self, id: &str) -> Value {
        let admin = self.bench.admin();
        let found = admin.ask(Method::GET, &format!("/requests?client_request_id={id}"), None).await.json();
        let request = found.pointer("/requests/0/request_id").and_then(Value::as_str).unwrap_or("none").to_owned();
        admin.ask(Method::GET, &format!("/requests/{request}"), None).await.json()
    }

    /// The attempts of a history: names of channels as the script has them, and kinds.
    pub(super) fn walked(&self, story: &Story) -> Vec<(String, String)> {
        let prefix = format!("{}-", self.script.name);
        let own = |name: String| name.strip_prefix(&prefix).map(str::to_owned).unwrap_or(name);
        story.attempts().into_iter().map(|attempt| (own(attempt.source), attempt.kind)).collect()
    }

    /// What the admin API shows of a channel's live state.
    pub(super) async fn live(&self, channel: &str) -> Value {
        self.bench.admin().source(self.source(channel)).await
    }

    /// Waits until every replica's own view shows this of a channel.
    pub(super) async fn everywhere(&self, channel: &str, what: &str, holds: impl Fn(&Value) -> bool) {
        for number in 1..=self.bench.fleet.proxies().len() {
            let proxy = format!("proxy-{number}");
            let name = self.script.channel(channel);
            wait_until(KNOWN, format_args!("{proxy} has {name} {what}"), async || {
                let state = self.bench.fleet.source_state(&proxy, self.source(channel)).await;
                until(holds(&state), || state.to_string())
            })
            .await;
        }
    }

    /// Waits until every replica has a channel's breaker in this phase.
    pub(super) async fn breaker(&self, channel: &str, phase: &str) {
        self.everywhere(channel, phase, |state| state.get("breaker").and_then(Value::as_str) == Some(phase)).await;
    }

    /// Waits until every replica has the breaker of a model at a channel in this phase.
    pub(super) async fn model_breaker(&self, channel: &str, model: &str, phase: &str) {
        let model = self.script.model(model);
        let of_model = |state: &Value| {
            let found = state.get("models").and_then(|models| models.get(&model)).cloned().unwrap_or_default();
            found.get("breaker").and_then(Value::as_str) == Some(phase)
        };
        self.everywhere(channel, &format!("{model} {phase}"), of_model).await;
    }

    /// Waits until the admin role has a block of this strength on a channel, or on a model there; gives it.
    pub(super) async fn blocked(&self, channel: &str, strength: &str) -> Value {
        let name = self.script.channel(channel);
        wait_until(KNOWN, format_args!("{name} is blocked ({strength})"), async || {
            let live = self.live(channel).await;
            let whole = live.pointer("/live/scope/blocks").and_then(Value::as_array).cloned().unwrap_or_default();
            let models = live.get("models").and_then(Value::as_array).cloned().unwrap_or_default();
            let of_models = models.iter().filter_map(|model| model.pointer("/scope/blocks")?.as_array().cloned());
            let all: Vec<Value> = of_models.flatten().chain(whole).collect();
            let found = all.into_iter().find(|block| block.get("strength").and_then(Value::as_str) == Some(strength));
            found.ok_or_else(|| live.to_string())
        })
        .await
    }

    /// Waits until a channel's upstream has so many calls under way.
    pub(super) async fn under_way(&self, channel: &str, count: usize) {
        let name = self.script.channel(channel);
        wait_until(SOON, format_args!("{count} calls of {name} are under way"), async || {
            let now = self.bench.upstream.in_flight(&name);
            until(now == count, || now.to_string())
        })
        .await;
    }

    /// Waits until no replica counts a request at a channel, and its upstream has none.
    pub(super) async fn freed(&self, channel: &str) {
        self.under_way(channel, 0).await;
        self.everywhere(channel, "free", |state| {
            state.is_null() || state.get("in_flight").and_then(Value::as_u64) == Some(0)
        })
        .await;
    }

    /// Sends a request over a bare connection, for clients that leave. The client calls it `id`.
    pub(super) async fn raw(&self, proxy: usize, id: &str, body: &Value) -> RawClient {
        let mut client = RawClient::connect(self.bench.fleet.proxy(proxy)).await;
        let bearer = format!("authorization: Bearer {}", self.bench.key);
        let id = format!("x-client-request-id: {id}");
        let headers = [bearer.as_str(), id.as_str(), "content-type: application/json"];
        client.request("POST", "/v1/chat/completions", &headers, body.to_string().as_bytes()).await;
        client
    }

    /// The body of a request for the script's usual model.
    pub(super) fn body(&self, streamed: bool) -> Value {
        let messages = serde_json::json!([{"role": "user", "content": "hi"}]);
        serde_json::json!({"model": self.script.model(MODEL), "max_tokens": 50, "stream": streamed, "messages": messages})
    }
}

/// A history in its own words, for messages.
pub(super) fn brief(story: &Story) -> String {
    format!("of {}:\n{}", story.pointer("/request/request_id").unwrap_or(&Value::Null), story.lines().join("\n"))
}
