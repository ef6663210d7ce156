//! A script: its sources, what is asked, and what must come of it.

use std::collections::BTreeSet;
use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::Pin;

use serde_json::{Value, json};
use waybill_testkit::upstream::Source;

use super::stage::Stage;

/// The model that scripts ask for unless they say otherwise.
pub(super) const MODEL: &str = "m-chat";

/// What is done after the script's asks, where more than asking is needed.
pub(super) type Then = for<'a> fn(&'a Stage<'a>) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

/// A script. Its channels and models are its own: their names begin with its name.
#[derive(Debug)]
pub struct Script {
    /// Its name: the report's number, and what a sibling varies.
    pub name: &'static str,
    pub(super) channels: Vec<Channel>,
    /// Numbers of breakers, for its channels.
    pub(super) selector: Option<Value>,
    /// Numbers of requests, for its models.
    pub(super) request: Option<Value>,
    pub(super) asks: Vec<Ask>,
    pub(super) then: Option<Then>,
    pub(super) logged: Vec<Logged>,
}

/// A channel of a script, and what its upstream does.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) name: &'static str,
    priority: i32,
    weight: Option<u32>,
    models: Vec<&'static str>,
    source: Source,
}

impl Channel {
    pub(super) fn entry(&self, name: &str, script: &Script, base_url: &str) -> Value {
        let models: Vec<String> = self.models.iter().map(|model| script.model(model)).collect();
        let models: Vec<&str> = models.iter().map(String::as_str).collect();
        let mut entry = crate::channel_entry(name, base_url, &models, self.priority);
        if let (Some(weight), Some(fields)) = (self.weight, entry.as_object_mut()) {
            fields.insert("weight".to_owned(), weight.into());
        }
        entry
    }
}

/// How many events of a type the log must hold of a channel in the end.
#[derive(Debug)]
pub(super) struct Logged {
    pub(super) kind: &'static str,
    pub(super) channel: &'static str,
    /// Whether those of its models are meant, or those of the channel as a whole.
    pub(super) of_model: bool,
    pub(super) count: usize,
}

/// Begins a script.
pub(super) fn script(name: &'static str) -> Script {
    let logged = Vec::new();
    Script { name, channels: Vec::new(), selector: None, request: None, asks: Vec::new(), then: None, logged }
}

impl Script {
    /// A channel of this priority. It says `from NAME` unless its replies say something else.
    pub(super) fn source(self, name: &'static str, priority: i32, source: Source) -> Self {
        self.channel_of(name, priority, None, &[MODEL], source)
    }

    /// A channel with all that a channel can have.
    pub(super) fn channel_of(
        mut self,
        name: &'static str,
        priority: i32,
        weight: Option<u32>,
        models: &[&'static str],
        source: Source,
    ) -> Self {
        self.channels.push(Channel { name, priority, weight, models: models.to_vec(), source });
        self
    }

    pub(super) fn selector(mut self, numbers: Value) -> Self {
        self.selector = Some(numbers);
        self
    }

    pub(super) fn request(mut self, numbers: Value) -> Self {
        self.request = Some(numbers);
        self
    }

    pub(super) fn ask(mut self, ask: Ask) -> Self {
        self.asks.push(ask);
        self
    }

    pub(super) fn then(mut self, then: Then) -> Self {
        self.then = Some(then);
        self
    }

    /// So many events of this type about the channel as a whole.
    pub(super) fn logs(self, kind: &'static str, channel: &'static str, count: usize) -> Self {
        self.logged(Logged { kind, channel, of_model: false, count })
    }

    /// So many events of this type about models of the channel.
    pub(super) fn logs_of_model(self, kind: &'static str, channel: &'static str, count: usize) -> Self {
        self.logged(Logged { kind, channel, of_model: true, count })
    }

    /// This channel's own breaker never opened; those of its models may have.
    pub(super) fn never_source_opens(self, channel: &'static str) -> Self {
        self.logs("breaker_opened", channel, 0)
    }

    /// No breaker of this channel, and none of its models', ever opened.
    pub(super) fn never_opens(self, channel: &'static str) -> Self {
        self.logs("breaker_opened", channel, 0).logs_of_model("breaker_opened", channel, 0)
    }

    /// Nothing took this channel out: no breaker, block or disabling.
    pub(super) fn untouched(self, channel: &'static str) -> Self {
        let script = self.never_opens(channel).logs("block_set", channel, 0).logs_of_model("block_set", channel, 0);
        script.logs("source_disabled", channel, 0)
    }

    fn logged(mut self, logged: Logged) -> Self {
        self.logged.push(logged);
        self
    }

    /// A channel's full name.
    pub(super) fn channel(&self, name: &str) -> String {
        format!("{}-{name}", self.name)
    }

    /// A model's full name.
    pub(super) fn model(&self, name: &str) -> String {
        format!("{}/{name}", self.name)
    }

    pub(super) fn models(&self) -> BTreeSet<&'static str> {
        self.channels.iter().flat_map(|channel| channel.models.iter().copied()).collect()
    }

    /// What a channel's upstream does; models are told by their full names there.
    pub(super) fn behaviour(&self, channel: &Channel) -> Source {
        let mut source = channel.source.clone();
        source.text.get_or_insert_with(|| format!("from {}", channel.name));
        source.by_model = source.by_model.into_iter().map(|(model, reply)| (self.model(&model), reply)).collect();
        source
    }
}

/// One request, and what must come of it.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    /// The replica that is asked first, from 1; further times go to the next ones in turn.
    pub(super) proxy: usize,
    pub(super) times: usize,
    pub(super) model: &'static str,
    pub(super) streamed: bool,
    pub(super) fields: Vec<(&'static str, Value)>,
    pub(super) headers: Vec<(&'static str, &'static str)>,
    pub(super) ends: Ends,
    pub(super) says: Vec<&'static str>,
    pub(super) hides: Vec<&'static str>,
    pub(super) retry_after: Option<RangeInclusive<u64>>,
    pub(super) walked: Option<Vec<(&'static str, &'static str)>>,
    pub(super) health: Vec<(&'static str, &'static str, &'static str)>,
    pub(super) state: Option<&'static str>,
    pub(super) fallback: Option<&'static str>,
    pub(super) usage: Option<(u64, u64)>,
    pub(super) billed: Option<bool>,
}

/// How a request ends for its client.
#[derive(Debug, Clone)]
pub(super) enum Ends {
    /// With the whole answer of a source.
    Served(&'static str),
    /// With the whole of this answer.
    Whole(&'static str),
    /// With this status and code.
    Refused(u16, &'static str),
    /// With the beginning of an answer, then the error event with this code, and nothing after it.
    Broken(&'static str, &'static str),
}

/// Asks a replica; it must be served by the source `a` unless something else is said.
pub(super) fn ask(proxy: usize) -> Ask {
    Ask {
        proxy,
        times: 1,
        model: MODEL,
        streamed: false,
        fields: Vec::new(),
        headers: Vec::new(),
        ends: Ends::Served("a"),
        says: Vec::new(),
        hides: Vec::new(),
        retry_after: None,
        walked: None,
        health: Vec::new(),
        state: None,
        fallback: None,
        usage: None,
        billed: None,
    }
}

impl Ask {
    pub(super) fn times(mut self, times: usize) -> Self {
        self.times = times;
        self
    }

    pub(super) fn streamed(mut self) -> Self {
        self.streamed = true;
        self
    }

    /// A stream whose usage is asked for.
    pub(super) fn counted(self) -> Self {
        self.streamed().with("stream_options", json!({"include_usage": true}))
    }

    pub(super) fn with(mut self, field: &'static str, value: impl Into<Value>) -> Self {
        self.fields.push((field, value.into()));
        self
    }

    pub(super) fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    pub(super) fn served_by(mut self, channel: &'static str) -> Self {
        self.ends = Ends::Served(channel);
        self
    }

    pub(super) fn answered(mut self, text: &'static str) -> Self {
        self.ends = Ends::Whole(text);
        self
    }

    pub(super) fn refused(mut self, status: u16, code: &'static str) -> Self {
        self.ends = Ends::Refused(status, code);
        self
    }

    pub(super) fn broken(mut self, said: &'static str, code: &'static str) -> Self {
        self.ends = Ends::Broken(said, code);
        self.state("partial")
    }

    /// What must stand in the answer's body.
    pub(super) fn says(mut self, text: &'static str) -> Self {
        self.says.push(text);
        self
    }

    /// What must stand neither in the answer's body nor in its headers.
    pub(super) fn hides(mut self, text: &'static str) -> Self {
        self.hides.push(text);
        self
    }

    pub(super) fn retry_after(mut self, seconds: RangeInclusive<u64>) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// The sources asked, in their order, and the kind of each attempt.
    pub(super) fn walked(mut self, attempts: &[(&'static str, &'static str)]) -> Self {
        self.walked = Some(attempts.to_vec());
        self
    }

    /// What the request says of a source and of the model there.
    pub(super) fn health(mut self, channel: &'static str, source: &'static str, model: &'static str) -> Self {
        self.health.push((channel, source, model));
        self
    }

    pub(super) fn state(mut self, state: &'static str) -> Self {
        self.state = Some(state);
        self
    }

    pub(super) fn fallback(mut self, reason: &'static str) -> Self {
        self.fallback = Some(reason);
        self
    }

    /// Tokens of prompt and answer that stand in the request's record.
    pub(super) fn usage(mut self, prompt: u64, completion: u64) -> Self {
        self.usage = Some((prompt, completion));
        self
    }

    /// Whether something that failed may have been billed.
    pub(super) fn maybe_billed(mut self, billed: bool) -> Self {
        self.billed = Some(billed);
        self
    }
}
