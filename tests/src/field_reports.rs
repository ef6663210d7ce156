//! Reports of operators of other gateways, as scripts of `docs/field-reports.md`: what the upstreams do, what a client asks
//! of which replica, what must come of it, and what the log must hold in the end. Nothing of the product is here.

#![expect(clippy::indexing_slicing, clippy::panic, reason = "a script that doesn't hold fails by panicking")]

mod edges;
mod expected;
mod health;
mod log;
pub mod operation;
mod replies;
mod script;
mod stage;
mod statuses;
mod streams;
mod walks;

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;

use futures_util::{FutureExt, StreamExt};
use serde_json::{Value, json};

use crate::Bench;

pub use script::Script;

use stage::Stage;

/// Scripts at once.
const AT_ONCE: usize = 12;

/// All scripts that share a fleet: none kills a process, and each has sources and models of its own.
#[must_use]
pub fn scripts() -> Vec<Script> {
    [statuses::scripts(), streams::scripts(), health::scripts(), walks::scripts(), edges::scripts()]
        .into_iter()
        .flatten()
        .collect()
}

/// Runs scripts over a fleet of three replicas, and says of each that doesn't hold why.
pub async fn run(bench: &Bench, scripts: &[Script]) -> Vec<String> {
    configure(bench, scripts).await;
    let sources = sources(bench).await;
    let played = scripts.iter().map(|script| async {
        let stage = Stage::new(bench, script, &sources);
        let played = AssertUnwindSafe(play(&stage)).catch_unwind().await;
        played.err().map(|panic| format!("{}: {}", script.name, said(&*panic)))
    });
    let played: Vec<Option<String>> = futures_util::stream::iter(played).buffer_unordered(AT_ONCE).collect().await;
    let mut wrong: Vec<String> = played.into_iter().flatten().collect();
    wrong.extend(log::check(bench, scripts, &sources).await);
    wrong
}

async fn play(stage: &Stage<'_>) {
    for ask in &stage.script.asks {
        for time in 0..ask.times {
            expected::check(stage, ask, time).await;
        }
    }
    if let Some(then) = stage.script.then {
        then(stage).await;
    }
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

async fn configure(bench: &Bench, scripts: &[Script]) {
    let (mut channels, mut routes, mut policies) = (Vec::new(), Vec::new(), Vec::new());
    for script in scripts {
        for channel in &script.channels {
            let name = script.channel(channel.name);
            bench.upstream.set_source(&name, script.behaviour(channel));
            channels.push(channel.entry(&name, script, &bench.upstream.base_url(&name)));
            if let Some(numbers) = &script.selector {
                policies.push(json!({"scope": format!("channel:{name}"), "selector": numbers}));
            }
        }
        if let Some(numbers) = &script.request {
            for model in script.models() {
                let name = script.model(model);
                routes.push(json!({"name": name, "targets": [name]}));
                policies.push(json!({"scope": format!("route:{name}"), "request": numbers}));
            }
        }
    }
    for (kind, entries) in [("channels", channels), ("routes", routes), ("policies", policies)] {
        for part in entries.chunks(100) {
            bench.apply(json!({ kind: part })).await;
        }
    }
    bench.configured().await;
}

/// Each channel's source, e.g. `channel:7`, by its name.
async fn sources(bench: &Bench) -> BTreeMap<String, String> {
    let listed = bench.admin().get("/sources").await;
    let listed = listed.get("sources").and_then(Value::as_array).cloned().unwrap_or_default();
    let text = |source: &Value, field: &str| Some(source.get(field)?.as_str()?.to_owned());
    listed.iter().filter_map(|source| Some((text(source, "name")?, text(source, "source")?))).collect()
}
