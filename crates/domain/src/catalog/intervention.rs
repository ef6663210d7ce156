//! Commands by hand: hold a breaker open, close it, reset it, lift blocks. What they end, and why, stands in the log as
//! everything else does.

use waybill_event::config::{Change, Changed, ConfigChange, HeldOpen, Intervention};
use waybill_event::{LogTime, Scope, Source};

use super::command::Rejection;
use super::{Catalog, check, diff};

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Hold the breaker open.
    Open {
        /// Until when; without an end until it is closed.
        until: Option<LogTime>,
    },
    /// End holding it open, and close it whatever tripped it; its window begins anew.
    Close,
    /// Lift all blocks, and put back into use what a verdict had disabled.
    Lift,
    /// All of it: close the breaker, forget its window, lift the blocks.
    Reset,
    /// Probe it now, if a verdict disabled it and a probe may bring it back.
    Probe {
        /// When that is asked for.
        at: LogTime,
    },
}

/// A wish by hand about one scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// What it covers.
    pub scope: Scope,
    /// What is to be done.
    pub act: Act,
}

/// Refuses to hold open what isn't there; what was held can be closed also when the model is gone.
fn offered(catalog: &Catalog, source: Source, model: &str, act: &Act) -> Result<(), Rejection> {
    let Some(entity) = catalog.entity(source) else { return Ok(()) };
    let there = entity.models().iter().any(|offered| offered.upstream_name() == model);
    if there || !matches!(act, Act::Open { .. }) {
        return Ok(());
    }
    Err(Rejection::invalid("model", format!("{source} has no model that its upstream calls {model:?}")))
}

pub(super) fn decide(catalog: &Catalog, command: &Command) -> Result<Vec<ConfigChange>, Rejection> {
    let Command { scope, act } = command;
    if catalog.entity(scope.source).is_none() {
        return Err(Rejection::NotFound { entity: "source", id: scope.source.to_string() });
    }
    if let Some(model) = &scope.model {
        check::model("model", model)?;
        offered(catalog, scope.source, model, act)?;
    }
    let old = catalog.interventions.get(scope);
    let nothing = Intervention { scope: scope.clone(), held: None, reset: 0, lifted: 0, probe: None, version: 0 };
    let before = old.map_or(&nothing, AsRef::as_ref);
    let version = before.version + 1;
    let mut new = Intervention { version, ..before.clone() };
    match act {
        Act::Open { until } => new.held = Some(HeldOpen { until: *until }),
        Act::Close => (new.held, new.reset) = (None, version),
        Act::Lift => new.lifted = version,
        Act::Probe { at } => new.probe = Some(*at),
        Act::Reset => (new.held, new.reset, new.lifted) = (None, version, version),
    }
    let changed = diff::changed_fields(before, &new);
    if changed.is_empty() {
        return Ok(Vec::new());
    }
    let change = if old.is_some() { Change::Edited } else { Change::Created };
    let changed = if old.is_some() { changed } else { Vec::new() };
    Ok(vec![ConfigChange::Intervention(Changed { change, state: new, changed })])
}
