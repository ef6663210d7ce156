//! The configuration that the fold goes by, and the edits that wait for their marker.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use waybill_event::config::{Change, ConfigChange, PolicyScope, SelectorOverrides, SelectorPolicy};
use waybill_event::{Body, ConfigPosition, Event, LogTime, Scope, Source};

use crate::catalog::SourceEntity;
use crate::selector::state::{ByHand, Numbers, Revisions, SourceState};

/// An edit of a type or version that isn't known here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("edit {position} is a {kind} v{version}, which is not known here")]
pub struct UnknownEdit {
    /// Where it stands.
    pub position: ConfigPosition,
    /// Its type.
    pub kind: String,
    /// Its version.
    pub version: u16,
}

/// What the fold must know of an edited source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SourceEdit {
    pub(super) source: Source,
    pub(super) provider: Arc<str>,
    pub(super) rev: u64,
    pub(super) revisions: Revisions,
    pub(super) deleted: bool,
    /// An operator has put it back into use: what a verdict had disabled serves again.
    pub(super) put_back: bool,
}

/// An edit as it is adopted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Edit {
    Source(SourceEdit),
    /// Of many sources: all, or all of a provider.
    PolicyOfMany,
    PolicyOf(Source),
    ByHand(Scope, ByHand),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Waiting {
    Source(SourceEdit),
    Policy(PolicyScope, Box<SelectorOverrides>),
    ByHand(Scope, ByHand),
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Adopted {
    position: ConfigPosition,
    fed: ConfigPosition,
    waiting: VecDeque<(ConfigPosition, Waiting)>,
    channels: BTreeMap<Source, SourceEdit>,
    deleted: BTreeSet<Source>,
    policies: BTreeMap<PolicyScope, SelectorOverrides>,
    by_hand: BTreeMap<Scope, ByHand>,
}

impl Adopted {
    /// Everything up to `position` was adopted before; it is fed again to know what it was.
    pub(super) fn restoring(position: ConfigPosition) -> Self {
        Self { position, ..Self::default() }
    }

    pub(super) const fn position(&self) -> ConfigPosition {
        self.position
    }

    pub(super) const fn fed(&self) -> ConfigPosition {
        self.fed
    }

    pub(super) fn channels(&self) -> impl Iterator<Item = (Source, &SourceEdit)> + '_ {
        self.channels.iter().map(|(source, channel)| (*source, channel))
    }

    pub(super) fn is_deleted(&self, source: Source) -> bool {
        self.deleted.contains(&source)
    }

    /// The numbers in force for a source.
    pub(super) fn policy_of(&self, source: Source) -> Numbers {
        if self.policies.is_empty() {
            return Numbers::default();
        }
        let provider = self.channels.get(&source).map(|channel| channel.provider.to_string());
        let provider = provider.map(|provider| PolicyScope::Provider { provider });
        let scopes = [Some(PolicyScope::Global), provider, Some(PolicyScope::Source { source })];
        let set = scopes.into_iter().flatten().filter_map(|scope| self.policies.get(&scope));
        let policy = set.fold(SelectorPolicy::default(), SelectorPolicy::with);
        let of_models = self.policies.iter().filter_map(|(scope, overrides)| match scope {
            PolicyScope::Model { source: of, upstream_model } if *of == source => {
                Some((upstream_model.clone(), policy.with(overrides).model_breaker))
            }
            _ => None,
        });
        Numbers { policy, model_breakers: of_models.collect() }
    }

    /// The state of a source of which nothing is known but its configuration.
    pub(super) fn fresh(&self, source: Source, revisions: Revisions) -> SourceState {
        let mut state = SourceState::new(source, revisions, self.policy_of(source), self.position);
        for (scope, done) in self.by_hand.iter().filter(|(scope, _)| scope.source == source) {
            state.adopt_by_hand(scope.model.as_deref(), *done, LogTime::default());
        }
        state
    }

    pub(super) fn feed(&mut self, event: &Event, position: ConfigPosition) -> Result<(), UnknownEdit> {
        if position <= self.fed {
            return Ok(());
        }
        let edit = match &event.draft.body {
            Body::Config(change) => waiting(change),
            other => {
                return Err(UnknownEdit { position, kind: other.kind(), version: other.version() });
            }
        };
        self.fed = position;
        if let Some(edit) = edit {
            if position <= self.position {
                self.take(edit);
            } else {
                self.waiting.push_back((position, edit));
            }
        }
        Ok(())
    }

    /// Adopts what waits, up to `to`.
    pub(super) fn advance(&mut self, to: ConfigPosition) -> Vec<Edit> {
        let mut edits = Vec::new();
        self.position = self.position.max(to);
        while let Some((_, edit)) = self.waiting.pop_front_if(|(position, _)| *position <= to) {
            edits.push(self.take(edit));
        }
        edits
    }

    fn take(&mut self, edit: Waiting) -> Edit {
        match edit {
            Waiting::Source(channel) => {
                if channel.deleted {
                    self.channels.remove(&channel.source);
                    self.policies.retain(|scope, _| !concerns(scope, channel.source));
                    self.by_hand.retain(|scope, _| scope.source != channel.source);
                    self.deleted.insert(channel.source);
                } else {
                    self.channels.insert(channel.source, channel.clone());
                }
                Edit::Source(channel)
            }
            Waiting::Policy(scope, overrides) => {
                let edit = match &scope {
                    PolicyScope::Source { source } | PolicyScope::Model { source, .. } => Edit::PolicyOf(*source),
                    _ => Edit::PolicyOfMany,
                };
                self.policies.insert(scope, *overrides);
                edit
            }
            Waiting::ByHand(scope, done) => {
                self.by_hand.insert(scope.clone(), done);
                Edit::ByHand(scope, done)
            }
        }
    }
}

fn concerns(scope: &PolicyScope, of: Source) -> bool {
    matches!(scope, PolicyScope::Source { source } | PolicyScope::Model { source, .. } if *source == of)
}

fn waiting(change: &ConfigChange) -> Option<Waiting> {
    match change {
        ConfigChange::Channel(changed) => Some(edit_of(changed.change, &Arc::new(changed.state.clone()).into())),
        ConfigChange::Account(changed) => Some(edit_of(changed.change, &Arc::new(changed.state.clone()).into())),
        ConfigChange::Policy(changed) => {
            let held = changed.state.scope.holds_selector() && changed.change != Change::Deleted;
            let overrides = if held { changed.state.selector } else { SelectorOverrides::default() };
            changed
                .state
                .scope
                .holds_selector()
                .then(|| Waiting::Policy(changed.state.scope.clone(), Box::new(overrides)))
        }
        ConfigChange::Intervention(changed) => {
            let done = if changed.change == Change::Deleted { ByHand::default() } else { ByHand::from(&changed.state) };
            Some(Waiting::ByHand(changed.state.scope.clone(), done))
        }
        ConfigChange::Group(_)
        | ConfigChange::Key(_)
        | ConfigChange::AdminToken(_)
        | ConfigChange::Route(_)
        | ConfigChange::Price(_)
        | ConfigChange::Rules(_) => None,
    }
}

fn edit_of(change: Change, entity: &SourceEntity) -> Waiting {
    Waiting::Source(SourceEdit {
        source: entity.source(),
        provider: entity.provider().into(),
        rev: entity.version(),
        revisions: entity.revisions(),
        deleted: change == Change::Deleted,
        put_back: change == Change::Enabled,
    })
}
