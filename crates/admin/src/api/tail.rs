//! The live feed as server-sent events: each `data` is one event of the log with its position.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State as Held;
use axum::response::IntoResponse;
use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use futures_util::{Stream, stream};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use waybill_event::config::{ConfigChange, PolicyScope};
use waybill_event::{Body, Event, RequestId, Source};

use super::Answer;
use crate::State;
use crate::feed::{ListenError, Listener, Passing, Place};
use crate::problem::Problem;
use crate::request::Query;

/// Time between signs of life.
const ALIVE: Duration = Duration::from_secs(10);
/// The word that stands for all edits in a list of types.
const CONFIG: &str = "config";

/// Which events are wanted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    /// Of this source, as `channel:1`.
    source: Option<String>,
    /// Of this request.
    request: Option<RequestId>,
    /// Of these types, parted by commas; `config` stands for all edits.
    r#type: Option<String>,
}

#[derive(Debug, Default)]
struct Filter {
    source: Option<Source>,
    request: Option<RequestId>,
    types: Vec<String>,
}

impl Filter {
    fn of(parameters: Parameters) -> Result<Self, Problem> {
        let source = match parameters.source {
            None => None,
            Some(text) => Some(text.parse().map_err(|error| Problem::invalid("source", format!("{error}")))?),
        };
        let types = parameters.r#type.unwrap_or_default();
        let types = types.split(',').map(str::trim).filter(|t| !t.is_empty()).map(str::to_owned).collect();
        Ok(Self { source, request: parameters.request, types })
    }

    fn wants(&self, event: &Event) -> bool {
        let draft = &event.draft;
        let request = draft.request.map(|(id, _)| id);
        let is_config = matches!(draft.body, Body::Config(_));
        let kind = draft.body.kind();
        let typed = self.types.iter().any(|wanted| *wanted == kind || (is_config && wanted == CONFIG));
        (self.types.is_empty() || typed)
            && self.request.is_none_or(|wanted| request == Some(wanted))
            && self.source.is_none_or(|wanted| speaks_of(event) == Some(wanted))
    }
}

fn of_scope(scope: &PolicyScope) -> Option<Source> {
    match scope {
        PolicyScope::Source { source } | PolicyScope::Model { source, .. } => Some(*source),
        PolicyScope::Global
        | PolicyScope::Provider { .. }
        | PolicyScope::Group { .. }
        | PolicyScope::Route { .. }
        | PolicyScope::Key { .. } => None,
    }
}

/// The source that an event is about.
fn speaks_of(event: &Event) -> Option<Source> {
    let of_body = match &event.draft.body {
        Body::BreakerOpened(data) => Some(data.scope.source),
        Body::BreakerHalfOpened(data) => Some(data.scope.source),
        Body::BreakerClosed(data) => Some(data.scope.source),
        Body::ProbeFinished(data) => Some(data.scope.source),
        Body::SourceChecked(data) => Some(data.scope.source),
        Body::CredentialRefreshed(data) => Some(data.scope.source),
        Body::CredentialRefreshFailed(data) => Some(data.scope.source),
        Body::BlockSet(data) => Some(data.scope.source),
        Body::BlockLifted(data) => Some(data.scope.source),
        Body::SourceDisabled(data) => Some(data.scope.source),
        Body::SourceEnabled(data) => Some(data.scope.source),
        Body::Config(change) => match change.as_ref() {
            ConfigChange::Channel(changed) => Some(changed.state.source()),
            ConfigChange::Intervention(changed) => Some(changed.state.scope.source),
            ConfigChange::Policy(changed) => of_scope(&changed.state.scope),
            ConfigChange::Rules(changed) => of_scope(&changed.state.scope),
            ConfigChange::Account(changed) => Some(changed.state.source()),
            ConfigChange::Group(_)
            | ConfigChange::Key(_)
            | ConfigChange::AdminToken(_)
            | ConfigChange::Route(_)
            | ConfigChange::Price(_) => None,
        },
        Body::RequestAdmitted(_)
        | Body::AttemptStarted(_)
        | Body::AttemptFinished(_)
        | Body::SourceOutcome(_)
        | Body::RequestFinished(_)
        | Body::SelectionTable(_)
        | Body::ConfigApplied(_)
        | Body::OutboxDrained(_)
        | Body::OwnerLost(_)
        | Body::Unknown(_) => None,
    };
    of_body.or(event.draft.source.map(|source| source.source))
}

pub(super) async fn tail(Held(state): Held<State>, Query(parameters): Query<Parameters>) -> Answer {
    let filter = Filter::of(parameters)?;
    let listener = state.feed().listen().await.map_err(|error| match error {
        ListenError::Crowded => Problem::unavailable("too_many_listeners", error.to_string()),
        ListenError::Away(_) => Problem::unavailable("log_unavailable", error.to_string()),
    })?;
    let lines = lines(listener, filter, state.stopping());
    Ok(Sse::new(lines).keep_alive(KeepAlive::new().interval(ALIVE)).into_response())
}

fn lines(listener: Listener, filter: Filter, stop: CancellationToken) -> impl Stream<Item = Result<Sent, Infallible>> {
    stream::unfold((listener, filter, stop), |(mut listener, filter, stop)| async move {
        loop {
            let told = tokio::select! {
                () = stop.cancelled() => return None,
                told = listener.events.recv() => told,
            };
            let line = match told {
                Ok(passing) if filter.wants(&passing.event) => Sent::default().event("event").data(shown(&passing)),
                Ok(_) => continue,
                Err(RecvError::Lagged(lost)) => Sent::default().event("lost").data(json!({"lost": lost}).to_string()),
                Err(RecvError::Closed) => return None,
            };
            return Some((Ok(line), (listener, filter, stop)));
        }
    })
}

fn shown(passing: &Passing) -> String {
    let (stream, position) = match passing.place {
        Place::Config(position) => (CONFIG, position.to_string()),
        Place::Traffic(position) => ("traffic", position.to_string()),
    };
    let encoded = passing.event.encode().unwrap_or_default();
    let mut event: Value = serde_json::from_slice(&encoded).unwrap_or(Value::Null);
    // Hashes of tokens are nobody's business.
    if let Some(state) = event.pointer_mut("/data/state").and_then(Value::as_object_mut) {
        state.remove("hash");
    }
    json!({"stream": stream, "position": position, "stored_at": passing.stored_at, "event": event}).to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use waybill_event::config::{Change, Changed, Key, StoredHash};
    use waybill_event::{ConfigPosition, Draft, GroupId, Identity, KeyId, LogTime};

    use super::*;

    fn issued() -> Passing {
        let state = Key {
            id: KeyId::new(1),
            name: "ci".to_owned(),
            group: GroupId::new(1),
            prefix: "wb-key-abcd…".to_owned(),
            hash: StoredHash { pepper: "p1".to_owned(), mac: "canary".to_owned() },
            models: Vec::new(),
            expires_at: None,
            limits: Default::default(),
            user_limits: Default::default(),
            enabled: true,
            version: 1,
        };
        let change = ConfigChange::Key(Changed { change: Change::Created, state, changed: Vec::new() });
        let identity = Identity::Derived { id: "e1".to_owned(), producer: "admin-1".parse().unwrap() };
        let event = Event { identity, draft: Draft::new(LogTime::from_micros(5), change) };
        Passing { place: Place::Config(ConfigPosition(7)), stored_at: LogTime::from_micros(6), event: Arc::new(event) }
    }

    #[test]
    fn an_edit_is_shown_without_hashes() {
        let line = shown(&issued());
        assert!(line.contains(r#""position":"7""#) && line.contains("key_created"), "{line}");
        assert!(!line.contains("canary"), "{line}");
    }

    #[test]
    fn filters_hold() {
        let check = |types: Option<&str>, source: Option<&str>, wanted: bool| {
            let parameters =
                Parameters { source: source.map(str::to_owned), request: None, r#type: types.map(str::to_owned) };
            assert_eq!(Filter::of(parameters).unwrap().wants(&issued().event), wanted, "{types:?} {source:?}");
        };
        check(None, None, true);
        check(Some("config"), None, true);
        check(Some("breaker_opened, key_created"), None, true);
        check(Some("breaker_opened"), None, false);
        check(None, Some("channel:1"), false);
    }
}
