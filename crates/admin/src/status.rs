//! How the things that the admin role depends on stand.

use std::time::Duration;

use serde::Serialize;
use waybill_event::LogTime;
use waybill_journal::{Bounds, Stream};
use waybill_read_model::Projection;
use waybill_read_model::read::ProjectionPosition;

use crate::State;

/// Time each dependency gets to answer.
const ASK: Duration = Duration::from_secs(2);

/// One thing that is depended on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Dependency {
    /// Its name.
    pub name: &'static str,
    /// Whether the role may serve with it as it is. Postgres isn't needed for that: edits go on without it.
    pub ready: bool,
    /// Its state in a word or two.
    pub state: String,
    /// The position reached, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
    /// How many positions are missing to the log's end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
    /// How long the oldest of them has waited, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_ms: Option<u64>,
}

impl Dependency {
    const fn new(name: &'static str, ready: bool, state: String) -> Self {
        Self { name, ready, state, position: None, behind: None, lag_ms: None }
    }
}

impl State {
    /// Asks each dependency how it stands.
    pub async fn dependencies(&self) -> Vec<Dependency> {
        let log = self.log();
        let asked = |stream| async move {
            match tokio::time::timeout(ASK, log.bounds(stream)).await {
                Ok(Ok(bounds)) => Ok(bounds),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err("it doesn't answer in time".to_owned()),
            }
        };
        let projections = async {
            match tokio::time::timeout(ASK, self.reads().projections()).await {
                Ok(Ok(projections)) => Ok(projections),
                Ok(Err(error)) => {
                    tracing::debug!(error = &error as &dyn std::error::Error, "the read model can't be asked");
                    Err("it can't be asked".to_owned())
                }
                Err(_) => Err("it doesn't answer in time".to_owned()),
            }
        };
        let (config, traffic, projections) = tokio::join!(asked(Stream::Config), asked(Stream::Traffic), projections);
        let end = |bounds: &Result<Bounds, String>| bounds.as_ref().ok().map(|bounds| bounds.last);
        let mut all = vec![self.log_state(&config), self.catalogue_state(end(&config))];
        let mut selector = self.selector_state();
        let folded = self.live().watch().folded;
        self.set_behind(&mut selector, Stream::Traffic, folded, end(&traffic)).await;
        all.push(selector);
        for (projection, name, stream, end) in [
            (Projection::Config, "read_model_config", Stream::Config, end(&config)),
            (Projection::Traffic, "read_model_traffic", Stream::Traffic, end(&traffic)),
        ] {
            let found = projections.as_ref().map(|all| all.iter().find(|p| p.projection == projection.as_str()));
            let position = found.ok().flatten().map(|found| found.position);
            let mut dependency = read_model_state(name, found);
            self.set_behind(&mut dependency, stream, position, end).await;
            all.push(dependency);
        }
        all
    }

    /// Tells how far a fold is behind its stream, where both are known.
    async fn set_behind(&self, of: &mut Dependency, stream: Stream, position: Option<u64>, end: Option<u64>) {
        let Some((position, end)) = position.zip(end) else { return };
        of.behind = Some(end.saturating_sub(position));
        let oldest = if end > position { self.taken_at(stream, position + 1).await } else { None };
        let now = self.now();
        let lag = oldest.map_or(Duration::ZERO, |at| now.since(at));
        // Where the log doesn't say since when something waits, neither do we.
        of.lag_ms = (end <= position || oldest.is_some()).then(|| u64::try_from(lag.as_millis()).unwrap_or(u64::MAX));
    }

    /// When the log took a message, or the first one after it.
    async fn taken_at(&self, stream: Stream, sequence: u64) -> Option<LogTime> {
        let found = tokio::time::timeout(ASK, self.log().read(stream, sequence, 1)).await.ok()?.ok()?;
        found.first().map(|message| message.stored_at)
    }

    fn log_state(&self, config: &Result<Bounds, String>) -> Dependency {
        let (ready, state) = match config {
            Ok(_) => (true, "ok".to_owned()),
            Err(reason) => (false, reason.clone()),
        };
        Dependency::new("log", ready, state)
    }

    fn catalogue_state(&self, end: Option<u64>) -> Dependency {
        let view = self.fold().view();
        let position = view.catalog.position;
        let state = match (&view.catalog.blocked_by, &view.fault, view.loaded) {
            (Some(edit), _, _) => format!("stopped: {edit}"),
            (None, Some(fault), _) => fault.clone(),
            (None, None, false) => "loading".to_owned(),
            (None, None, true) => "ok".to_owned(),
        };
        Dependency {
            position: Some(position.to_string()),
            behind: end.map(|end| end.saturating_sub(position.0)),
            ..Dependency::new("catalogue", view.loaded && view.catalog.blocked_by.is_none(), state)
        }
    }

    fn selector_state(&self) -> Dependency {
        let watch = self.live().watch();
        let state = match (&watch.fault, watch.current) {
            (Some(fault), _) => fault.clone(),
            (None, false) => "loading".to_owned(),
            (None, true) => "ok".to_owned(),
        };
        // Without it only the live state of sources is missing.
        let position = watch.position.map(|position| position.to_string());
        Dependency { position, ..Dependency::new("selector_state", true, state) }
    }
}

fn read_model_state(name: &'static str, found: Result<Option<&ProjectionPosition>, &String>) -> Dependency {
    let state = match found {
        Ok(Some(position)) if position.unprojectable > 0 => {
            format!("ok, but {} events are in no table", position.unprojectable)
        }
        Ok(Some(_)) => "ok".to_owned(),
        Ok(None) => "never folded".to_owned(),
        Err(reason) => reason.clone(),
    };
    let position = found.ok().flatten();
    Dependency { position: position.map(|p| p.position.to_string()), ..Dependency::new(name, true, state) }
}
