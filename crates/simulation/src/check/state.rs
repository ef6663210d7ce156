//! State: the published values, every replica's views and the rows are what a fold from nothing gives, and every
//! transition is announced.

use std::collections::BTreeSet;

use futures_util::FutureExt as _;
use serde_json::Value;
use waybill_domain::selector::{SourceState, value_key};
use waybill_event::{Body, ConfigPosition, Position, Source};
use waybill_journal::{Bucket, Keyed as _, Log as _, Stream};

use super::log::Log;
use super::reference::Reference;
use crate::fleet::Fleet;
use crate::ground::Ground;
use crate::projector::refold;

/// What everybody held when the fleet rested.
pub struct Rested {
    /// The log's last message then.
    pub end: u64,
    views: Vec<(String, Source, SourceState)>,
    values: Vec<(Source, SourceState)>,
}

impl Rested {
    /// Looks at a resting fleet.
    pub fn of(fleet: &Fleet) -> Self {
        let memory = &fleet.ground.memory;
        let bounds = memory.bounds(Stream::Traffic).now_or_never();
        let end = bounds.expect("the store answers").expect("the store answers").last;
        let mut views = Vec::new();
        let mut values = Vec::new();
        for proxy in &fleet.proxies {
            let Some(up) = &proxy.up else { continue };
            let snapshot = up.replica.snapshot();
            for (source, entry) in up.replica.views().all() {
                if snapshot.catalog().entity(source).is_some() {
                    views.push((proxy.name.clone(), source, entry.view.lock().state().clone()));
                }
            }
        }
        let sources: BTreeSet<Source> = views.iter().map(|(_, source, _)| *source).collect();
        for source in sources {
            let found = memory.get(Bucket::Selector, &value_key(source)).now_or_never();
            if let Some(Ok(Some(entry))) = found {
                let value = serde_json::from_slice(&entry.value).expect("a value reads back");
                values.push((source, value));
            }
        }
        Self { end, views, values }
    }
}

/// A state without what tells when, and by whom, it was written. An edit that changes nothing for the fold doesn't make a
/// value be written anew, so that its version says little.
fn bare(state: &SourceState) -> SourceState {
    SourceState {
        rev: 0,
        config: ConfigPosition::default(),
        position: Position::default(),
        marks: Vec::new(),
        epoch: 0,
        unannounced: Vec::new(),
        ..state.clone()
    }
}

fn difference(held: &SourceState, expected: &SourceState) -> Option<String> {
    let (held, expected) = (bare(held), bare(expected));
    if held == expected {
        return None;
    }
    let json = |state: &SourceState| serde_json::to_value(state).unwrap_or_default();
    let mut parts = Vec::new();
    differing("", &json(&held), &json(&expected), &mut parts);
    Some(parts.join("; "))
}

/// The places at which two values differ.
fn differing(path: &str, held: &Value, expected: &Value, parts: &mut Vec<String>) {
    match (held, expected) {
        (Value::Object(one), Value::Object(other)) => {
            let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            for key in keys {
                let at = |of: &serde_json::Map<String, Value>| of.get(key).cloned().unwrap_or_default();
                differing(&format!("{path}/{key}"), &at(one), &at(other), parts);
            }
        }
        _ if held == expected => {}
        _ => parts.push(format!("{path} is {held}, should be {expected}")),
    }
}

pub fn check(ground: &Ground, fleet: &Fleet, rested: &Rested, reference: &Reference, log: &Log) {
    for (source, value) in &rested.values {
        match reference.rested.get(source) {
            Some(expected) => {
                if let Some(text) = difference(value, expected) {
                    ground.violated("a published value isn't what the log gives", &format!("{source}: {text}"));
                }
            }
            None => ground.violated("a published value isn't what the log gives", &format!("{source} is no more")),
        }
    }
    for (proxy, source, view) in &rested.views {
        let Some(expected) = reference.rested.get(source) else { continue };
        if let Some(text) = difference(view, expected) {
            ground.violated("a view isn't the authority's state", &format!("{proxy} {source}: {text}"));
        }
    }
    announcements(ground, reference, log);
    rows(ground, fleet, log);
}

fn announcements(ground: &Ground, reference: &Reference, log: &Log) {
    let mut announced = BTreeSet::new();
    for placed in &log.events {
        let id = match &placed.event.draft.body {
            Body::BreakerOpened(_)
            | Body::BreakerClosed(_)
            | Body::BlockSet(_)
            | Body::BlockLifted(_)
            | Body::SourceDisabled(_)
            | Body::SourceEnabled(_) => placed.event.identity.to_string(),
            _ => continue,
        };
        if !reference.transitions.contains_key(&id) {
            ground.violated("something is announced that never happened", &id);
        }
        announced.insert(id);
    }
    for id in reference.transitions.keys().filter(|id| !announced.contains(*id)) {
        ground.violated("a transition was never announced", id);
    }
}

fn rows(ground: &Ground, fleet: &Fleet, log: &Log) {
    let expected = refold(&log.events);
    fleet.store.with(|kept| {
        for (id, times) in kept.folded.iter().filter(|(_, times)| **times > 1) {
            // What has a derived id may stand in the log more than once; its row takes the first.
            if id.parse::<waybill_event::Mark>().is_ok() {
                ground.violated("an event was folded twice", &format!("{id}: {times} times"));
            }
        }
        let missing = log.events.iter().find(|p| !kept.folded.contains_key(&p.event.identity.to_string()));
        if let Some(missing) = missing {
            ground.violated("an event was never folded", &missing.event.identity.to_string());
        }
        if kept.rows != expected {
            ground.violated("the rows aren't what the log gives", "a fold from nothing gives others");
        }
    });
}
