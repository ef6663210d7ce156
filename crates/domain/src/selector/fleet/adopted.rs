//! The configuration that the fold goes by, and the edits that wait for their marker.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use waybill_event::config::{Change, ConfigChange, PolicyScope, SelectorPolicy};
use waybill_event::{Body, ConfigPosition, Event, Source};

use crate::selector::state::Revisions;

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

/// What the fold must know of an edited channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChannelEdit {
    pub(super) source: Source,
    pub(super) rev: u64,
    pub(super) revisions: Revisions,
    pub(super) deleted: bool,
    /// An operator has put it back into use: what a verdict had disabled serves again.
    pub(super) put_back: bool,
}

/// An edit as it is adopted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Edit {
    Channel(ChannelEdit),
    GlobalPolicy,
    PolicyOf(Source),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Waiting {
    Channel(ChannelEdit),
    /// `None` takes the policy away.
    Policy(PolicyScope, Option<SelectorPolicy>),
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Adopted {
    position: ConfigPosition,
    fed: ConfigPosition,
    waiting: VecDeque<(ConfigPosition, Waiting)>,
    channels: BTreeMap<Source, ChannelEdit>,
    deleted: BTreeSet<Source>,
    global: Option<SelectorPolicy>,
    by_source: BTreeMap<Source, SelectorPolicy>,
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

    pub(super) fn channels(&self) -> impl Iterator<Item = (Source, ChannelEdit)> + '_ {
        self.channels.iter().map(|(source, channel)| (*source, *channel))
    }

    pub(super) fn is_deleted(&self, source: Source) -> bool {
        self.deleted.contains(&source)
    }

    /// The narrowest policy for a source.
    pub(super) fn policy_of(&self, source: Source) -> SelectorPolicy {
        self.by_source.get(&source).copied().or(self.global).unwrap_or_default()
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
            Waiting::Channel(channel) => {
                if channel.deleted {
                    self.channels.remove(&channel.source);
                    self.by_source.remove(&channel.source);
                    self.deleted.insert(channel.source);
                } else {
                    self.channels.insert(channel.source, channel);
                }
                Edit::Channel(channel)
            }
            Waiting::Policy(PolicyScope::Global, policy) => {
                self.global = policy;
                Edit::GlobalPolicy
            }
            Waiting::Policy(PolicyScope::Source { source }, policy) => {
                match policy {
                    Some(policy) => self.by_source.insert(source, policy),
                    None => self.by_source.remove(&source),
                };
                Edit::PolicyOf(source)
            }
        }
    }
}

fn waiting(change: &ConfigChange) -> Option<Waiting> {
    match change {
        ConfigChange::Channel(changed) => {
            let channel = &changed.state;
            Some(Waiting::Channel(ChannelEdit {
                source: channel.source(),
                rev: channel.version,
                revisions: Revisions {
                    credential: channel.credential.as_ref().map_or(0, |credential| credential.revision),
                    base_url: channel.base_url_revision,
                },
                deleted: changed.change == Change::Deleted,
                put_back: changed.change == Change::Enabled,
            }))
        }
        ConfigChange::Policy(changed) => {
            let policy = (changed.change != Change::Deleted).then_some(changed.state.selector);
            Some(Waiting::Policy(changed.state.scope.clone(), policy))
        }
        ConfigChange::Group(_) | ConfigChange::Key(_) | ConfigChange::AdminToken(_) => None,
    }
}
