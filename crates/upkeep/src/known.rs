//! What upkeep knows: the catalogue's sources and the published state of every source.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use waybill_domain::catalog::{Applied, Snapshot, SourceEntity, UnknownEdit};
use waybill_domain::probing::Purpose;
use waybill_domain::selector::SourceState;
use waybill_domain::selector::state::Disabled;
use waybill_event::failure::Recovery;
use waybill_event::{ConfigPosition, LogTime, Scope, Source, decode_one};
use waybill_journal::log::Message;
use waybill_journal::{Entry, Watched};

use crate::schedule::Wanted;

/// Catalogue and states, folded from what the log and the bucket tell.
#[derive(Default)]
pub(crate) struct Known {
    snapshot: Snapshot,
    states: BTreeMap<Source, SourceState>,
    states_current: bool,
}

/// What a message or a watched value was about.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum About {
    /// One source.
    Source(Source),
    /// Everything may have changed.
    All,
    /// Nothing that matters here.
    Nothing,
}

impl Known {
    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    pub(crate) fn states_current(&self) -> bool {
        self.states_current
    }

    /// Folds an edit.
    pub(crate) fn edit(&mut self, message: &Message) -> About {
        let at = ConfigPosition(message.sequence);
        let event = match decode_one(&message.payload) {
            Ok(event) => event,
            Err(error) => {
                tracing::error!(%error, position = %at, "an edit can't be read: upkeep goes on with what it knows");
                self.snapshot.block(UnknownEdit { position: at, kind: "unreadable".to_owned(), version: 0 });
                return About::Nothing;
            }
        };
        match self.snapshot.apply(&event, at) {
            Applied::Source(replaced) => {
                let entity = replaced.new.as_ref().or(replaced.old.as_ref());
                entity.map_or(About::Nothing, |entity| About::Source(entity.source()))
            }
            Applied::Known
            | Applied::Blocked
            | Applied::Group(_)
            | Applied::Key(_)
            | Applied::AdminToken(_)
            | Applied::Policy(_)
            | Applied::Route(_)
            | Applied::Price(_)
            | Applied::Rules(_) => About::Nothing,
            Applied::Intervention(replaced) => {
                let done = replaced.new.as_ref().or(replaced.old.as_ref());
                done.map_or(About::Nothing, |done| About::Source(done.scope.source))
            }
        }
    }

    /// Takes what the watch of the selector's bucket tells.
    pub(crate) fn watched(&mut self, watched: Watched) -> About {
        match watched {
            Watched::Current => {
                self.states_current = true;
                About::All
            }
            Watched::Gone { key, .. } => key.parse::<Source>().map_or(About::Nothing, |source| {
                self.states.remove(&source);
                About::Source(source)
            }),
            Watched::Put(entry) => self.put(&entry),
        }
    }

    fn put(&mut self, entry: &Entry) -> About {
        // The other keys of the bucket are the fold's own.
        let Ok(source) = entry.key.parse::<Source>() else { return About::Nothing };
        match serde_json::from_slice::<SourceState>(&entry.value) {
            Ok(state) => {
                self.states.insert(source, state);
                About::Source(source)
            }
            Err(error) => {
                tracing::warn!(%error, %source, "a source's state can't be read");
                About::Nothing
            }
        }
    }

    pub(crate) fn sources(&self) -> BTreeSet<Source> {
        let configured = self.snapshot.catalog().entities().map(|entity| entity.source());
        self.states.keys().copied().chain(configured).collect()
    }

    /// A verdict's disabling of a source.
    pub(crate) fn disabled(&self, source: Source) -> Option<&Disabled> {
        self.states.get(&source)?.disabled.as_ref()
    }

    /// Why a source is to be probed, if it is: a verdict disabled it, probes may bring it back, no edit has voided the
    /// evidence, and configuration lets it serve.
    pub(crate) fn wanted(&self, source: Source) -> Option<Wanted> {
        let entity = self.entity(source)?;
        let disabled = self.states.get(&source)?.disabled.as_ref()?;
        let due = disabled.recovery == Recovery::Probe
            && serves(&entity)
            && !disabled.revisions.older_than(entity.revisions());
        due.then(|| Wanted {
            source,
            purpose: Purpose::Disabled,
            disabling: disabled.id.clone(),
            since: disabled.since,
            version: entity.version(),
            asked: self.asked(source).filter(|asked| *asked >= disabled.since),
        })
    }

    /// When an operator last asked for a probe of a source.
    fn asked(&self, source: Source) -> Option<LogTime> {
        let done = self.snapshot.catalog().interventions.get(&Scope { source, model: None });
        done.and_then(|done| done.probe)
    }

    /// Whether a source that serves is to be checked, and how often.
    pub(crate) fn checked(&self, source: Source, now: LogTime) -> Option<Wanted> {
        let entity = self.entity(source)?;
        let every = Duration::from_secs(entity.probe().check_every_s?.into());
        let disabled = self.states.get(&source).is_some_and(|state| state.disabled.is_some());
        let due = serves(&entity) && !disabled;
        let version = entity.version();
        due.then(|| Wanted {
            source,
            purpose: Purpose::Check { every },
            disabling: "".into(),
            since: now,
            version,
            asked: None,
        })
    }

    pub(crate) fn entity(&self, source: Source) -> Option<SourceEntity> {
        self.snapshot.catalog().entity(source)
    }
}

/// Whether configuration lets a source serve anything.
fn serves(entity: &SourceEntity) -> bool {
    entity.enabled() && entity.credential().is_some() && !entity.models().is_empty()
}
