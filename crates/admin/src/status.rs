//! How the things that the admin role depends on stand.

use std::time::Duration;

use serde::Serialize;
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
        let mut all = vec![self.log_state(&config), self.catalogue_state(end(&config)), self.selector_state()];
        for (projection, name, end) in [
            (Projection::Config, "read_model_config", end(&config)),
            (Projection::Traffic, "read_model_traffic", end(&traffic)),
        ] {
            let found = projections.as_ref().map(|all| all.iter().find(|p| p.projection == projection.as_str()));
            all.push(read_model_state(name, found, end));
        }
        all
    }

    fn log_state(&self, config: &Result<Bounds, String>) -> Dependency {
        let (ready, state) = match config {
            Ok(_) => (true, "ok".to_owned()),
            Err(reason) => (false, reason.clone()),
        };
        Dependency { name: "log", ready, state, position: None, behind: None }
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
            name: "catalogue",
            ready: view.loaded && view.catalog.blocked_by.is_none(),
            state,
            position: Some(position.to_string()),
            behind: end.map(|end| end.saturating_sub(position.0)),
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
        Dependency { name: "selector_state", ready: true, state, position, behind: None }
    }
}

fn read_model_state(
    name: &'static str,
    found: Result<Option<&ProjectionPosition>, &String>,
    end: Option<u64>,
) -> Dependency {
    let state = match found {
        Ok(Some(position)) if position.unprojectable > 0 => {
            format!("ok, but {} events are in no table", position.unprojectable)
        }
        Ok(Some(_)) => "ok".to_owned(),
        Ok(None) => "never folded".to_owned(),
        Err(reason) => reason.clone(),
    };
    let position = found.ok().flatten();
    Dependency {
        name,
        ready: true,
        state,
        position: position.map(|p| p.position.to_string()),
        behind: position.zip(end).map(|(p, end)| end.saturating_sub(p.position)),
    }
}
