//! What a client-visible name resolves to: aliases followed, targets in order, each once.

use std::collections::BTreeMap;
use std::sync::Arc;

use waybill_event::config::{Capabilities, Route};
use waybill_event::{GroupId, RouteId};

use super::super::Catalog;
use super::super::command::Rejection;

/// Most targets that a route has when its aliases are followed: a request's plans are bounded by it.
const TARGETS: usize = 16;

/// A target as a request goes to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedTarget {
    /// The model as channels offer it.
    pub model: Arc<str>,
    /// What routes declare of it.
    pub capabilities: Capabilities,
}

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The route, if the name is one.
    pub route: Option<RouteId>,
    /// What serves it, the best first; never empty.
    pub targets: Arc<[ResolvedTarget]>,
}

impl Resolved {
    /// A plain model name: a route with one target.
    #[must_use]
    pub fn plain(model: &str) -> Self {
        let target = ResolvedTarget { model: model.into(), capabilities: Capabilities::default() };
        Self { route: None, targets: Arc::new([target]) }
    }
}

/// All routes by their names, with their aliases followed. Made anew at each edit of a route.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Routes {
    by_name: BTreeMap<String, (Arc<Route>, Resolved)>,
}

impl Routes {
    /// The routes of a catalogue that are in use.
    #[must_use]
    pub fn of(catalog: &Catalog) -> Self {
        let by_name = by_name(catalog);
        let resolved = by_name.values().filter(|route| route.enabled).filter_map(|route| {
            let targets = follow(&by_name, route).ok()?;
            let resolved = Resolved { route: Some(route.id), targets: targets.into() };
            Some((route.name.clone(), (Arc::clone(route), resolved)))
        });
        Self { by_name: resolved.collect() }
    }

    /// What a name resolves to for a group's keys.
    #[must_use]
    pub fn resolve(&self, group: GroupId, name: &str) -> Resolved {
        match self.by_name.get(name) {
            Some((route, resolved)) if route.serves(group) => resolved.clone(),
            Some(_) | None => Resolved::plain(name),
        }
    }

    /// Whether a target declares what it can do.
    #[must_use]
    pub fn declares(&self) -> bool {
        self.by_name.values().any(|(_, resolved)| resolved.targets.iter().any(|target| !target.capabilities.is_empty()))
    }

    /// The routes for a group's keys, in order of name.
    pub fn of_group(&self, group: GroupId) -> impl Iterator<Item = (&str, &Resolved)> {
        let serving = self.by_name.iter().filter(move |(_, (route, _))| route.serves(group));
        serving.map(|(name, (_, resolved))| (name.as_str(), resolved))
    }
}

fn by_name(catalog: &Catalog) -> BTreeMap<&str, &Arc<Route>> {
    catalog.routes.values().map(|route| (route.name.as_str(), route)).collect()
}

/// Checks that a route, as it shall be, leads in no circle, nor does any that leads through it.
pub(super) fn check(catalog: &Catalog, state: &Route) -> Result<(), Rejection> {
    let state = Arc::new(state.clone());
    let mut routes: BTreeMap<&str, &Arc<Route>> = catalog
        .routes
        .values()
        .filter(|route| route.id != state.id)
        .map(|route| (route.name.as_str(), route))
        .collect();
    routes.insert(state.name.as_str(), &state);
    for route in routes.values().filter(|route| route.enabled) {
        if let Err(fault) = follow(&routes, route) {
            let message = match fault {
                Fault::Circle(names) => format!("leads in a circle: {}", names.join(" → ")),
                Fault::TooMany => format!("has more than {TARGETS} targets, those of its aliases included"),
            };
            let through = if route.id == state.id { String::new() } else { format!("route {:?} ", route.name) };
            return Err(Rejection::invalid("targets", format!("{through}{message}")));
        }
    }
    Ok(())
}

enum Fault {
    Circle(Vec<String>),
    TooMany,
}

fn follow(routes: &BTreeMap<&str, &Arc<Route>>, route: &Route) -> Result<Vec<ResolvedTarget>, Fault> {
    let mut found = Vec::new();
    walk(routes, route, &mut Vec::new(), Capabilities::default(), &mut found)?;
    Ok(found)
}

fn walk<'a>(
    routes: &BTreeMap<&'a str, &'a Arc<Route>>,
    route: &'a Route,
    above: &mut Vec<&'a str>,
    declared: Capabilities,
    found: &mut Vec<ResolvedTarget>,
) -> Result<(), Fault> {
    if above.contains(&route.name.as_str()) {
        let names = above.iter().chain([&route.name.as_str()]).map(|name| (*name).to_owned()).collect();
        return Err(Fault::Circle(names));
    }
    above.push(&route.name);
    for target in &route.targets {
        // What the alias declares goes before what the target declares of itself.
        let capabilities = declared.or(&target.capabilities);
        let alias = routes.get(target.model.as_str()).filter(|_| target.model != route.name);
        match alias {
            // A route that isn't in use is an ordinary model name.
            Some(alias) if alias.enabled => walk(routes, alias, above, capabilities, found)?,
            Some(_) | None => {
                if found.iter().all(|known| *known.model != *target.model) {
                    found.push(ResolvedTarget { model: target.model.as_str().into(), capabilities });
                }
                if found.len() > TARGETS {
                    return Err(Fault::TooMany);
                }
            }
        }
    }
    above.pop();
    Ok(())
}
