//! Edits that steer requests: routes with several targets, and the numbers of requests.

use waybill_domain::catalog::{Command, policy, route};
use waybill_event::config::{
    Capabilities, MidStream, OnAllUnavailable, PolicyScope, RequestOverrides, RetryUnknown, Strategy, Target,
};
use waybill_event::{GroupId, KeyId, RouteId};

use super::{Admin, MODELS, ROUTES};

impl Admin {
    /// The routes that there are at the beginning: one with two targets, and another name of it.
    pub(super) fn found_routes(&mut self) {
        let targets = self.targets();
        self.create_route(ROUTES[0], targets);
        self.create_route(ROUTES[1], vec![target(ROUTES[0])]);
        self.set_numbers();
    }

    fn create_route(&mut self, name: &str, targets: Vec<Target>) {
        let new = route::New { name: name.to_owned(), targets, groups: Vec::new(), enabled: true };
        self.edit(&Command::Route(route::Command::Create(new)));
    }

    /// Both models in some order, or one of them.
    fn targets(&mut self) -> Vec<Target> {
        let mut models = MODELS.map(|(name, _)| name).to_vec();
        if self.chance.yes(0.5) {
            models.reverse();
        }
        if self.chance.yes(0.2) {
            models.truncate(1);
        }
        let tools = self.chance.yes(0.2).then_some(false);
        let declared = Capabilities { tools, ..Capabilities::default() };
        models.into_iter().map(|model| Target { capabilities: declared, ..target(model) }).collect()
    }

    /// Edits a route, or makes one that is missing.
    pub(super) fn edit_route(&mut self) {
        let routes: Vec<RouteId> = self.catalog.routes.keys().copied().collect();
        if routes.len() < ROUTES.len() {
            let missing = ROUTES.iter().find(|name| self.catalog.routes.values().all(|route| route.name != **name));
            let targets = self.targets();
            return self.create_route(missing.unwrap_or(&ROUTES[0]), targets);
        }
        let id = self.chance.one_of(&routes);
        let Some(old) = self.catalog.routes.get(&id).cloned() else { return };
        let command = match self.chance.below(8) {
            0 => route::Command::Disable { id, expected: None },
            1..3 => route::Command::Enable { id, expected: None },
            3 => route::Command::Delete { id, expected: None },
            _ => {
                // An alias of itself is refused.
                let targets = if self.chance.yes(0.3) { vec![target(ROUTES[0])] } else { self.targets() };
                let patch = route::Patch { targets: Some(targets), ..route::Patch::default() };
                route::Command::Edit { id, expected: old.version, patch }
            }
        };
        self.edit(&Command::Route(command));
    }

    /// Sets numbers of requests at some scope; what isn't drawn is taken back.
    pub(super) fn set_numbers(&mut self) {
        let routes: Vec<RouteId> = self.catalog.routes.keys().copied().collect();
        let scope = match self.chance.below(4) {
            0 => PolicyScope::Global,
            1 => PolicyScope::Group { group: GroupId::new(1) },
            2 if !routes.is_empty() => PolicyScope::Route { route: self.chance.one_of(&routes) },
            _ => PolicyScope::Key { key: KeyId::new(1) },
        };
        let mut request = self.numbers();
        if matches!(scope, PolicyScope::Key { .. }) {
            request.max_ejected_percent = None;
        }
        let old = self.catalog.policies.get(&scope);
        let (expected, selector) = old.map_or_else(Default::default, |old| (old.version, old.selector));
        self.edit(&Command::Policy(policy::Command::Set { scope, expected, selector, request }));
    }

    fn numbers(&mut self) -> RequestOverrides {
        let chance = &mut self.chance;
        macro_rules! perhaps {
            ($values:expr) => {
                chance.yes(0.3).then(|| chance.one_of(&$values))
            };
        }
        let by = [Strategy::SmoothWrr, Strategy::WeightedRandom, Strategy::LeastBusy, Strategy::LowestLatency];
        RequestOverrides {
            strategy: perhaps!(by),
            max_attempts: perhaps!([1, 2, 3, 6]),
            max_walk: perhaps!([1, 2, 8, 32]),
            max_after_timeout: perhaps!([0, 1, 2]),
            first_content_ms: perhaps!([300, 1_500, 5_000]),
            whole_ms: perhaps!([300, 1_500, 5_000]),
            idle_ms: perhaps!([500, 2_000]),
            patience_ms: perhaps!([0, 500, 3_000]),
            retry_unknown: perhaps!([RetryUnknown::Always, RetryUnknown::Never, RetryUnknown::IdempotentOnly]),
            max_ejected_percent: perhaps!([0, 50, 100]),
            on_all_unavailable: perhaps!([OnAllUnavailable::FailFast, OnAllUnavailable::LeastBad]),
            mid_stream: perhaps!([MidStream::Error, MidStream::VerifiedResume]),
            degrade: perhaps!([true, true, false]),
            ..RequestOverrides::default()
        }
    }
}

fn target(model: &str) -> Target {
    Target { model: model.to_owned(), capabilities: Capabilities::default() }
}
