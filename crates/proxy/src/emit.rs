//! The replica's only way to the log: drafts go through the outbox, and what of them is evidence is folded into the
//! replica's own views at once, in the same order.

use std::sync::Arc;

use parking_lot::MutexGuard;
use smallvec::SmallVec;
use waybill_domain::selector::View;
use waybill_event::envelope::{Encoded, Encoder};
use waybill_event::{Body, Draft, Event, Identity, Mark, Source};
use waybill_journal::outbox::{Outbox, OutboxError, Reservation};

use crate::views::{SourceView, Views};

/// Events that arise at one point.
pub type Drafts = Vec<Draft>;

/// Where the room for events comes from.
#[derive(Clone, Copy)]
pub enum Room<'a> {
    /// From what nobody was promised.
    Free,
    /// From what a request was promised, but not from what its end needs.
    Further(&'a Reservation),
    /// From all that a request was promised.
    Promised(&'a Reservation),
}

/// Appends events and folds the replica's own evidence.
pub struct Emitter {
    outbox: Outbox,
    views: Arc<Views>,
}

/// Why events couldn't be appended.
#[derive(Debug, thiserror::Error)]
pub enum EmitError {
    /// The outbox refused.
    #[error(transparent)]
    Outbox(#[from] OutboxError),
    /// An event can't be written as JSON, which the stored types give no reason to.
    #[error("an event can't be encoded")]
    Encode(#[from] serde_json::Error),
}

impl Emitter {
    /// An emitter over this outbox and these views.
    #[must_use]
    pub const fn new(outbox: Outbox, views: Arc<Views>) -> Self {
        Self { outbox, views }
    }

    /// The outbox.
    #[must_use]
    pub const fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// Appends the drafts as one write, all or none, folds what is evidence, and returns the last ordinal.
    ///
    /// # Errors
    /// [`EmitError`]; nothing was written and nothing was folded then.
    pub fn append(&self, drafts: Drafts, room: Room<'_>) -> Result<u64, EmitError> {
        let mut encoder = Encoder::default();
        let mut encoded: SmallVec<[Encoded; 4]> = SmallVec::new();
        for draft in &drafts {
            encoded.push(encoder.encode(draft)?);
        }
        let evidence = evidence_sources(&drafts);
        let entries: SmallVec<[(Source, Arc<SourceView>); 2]> =
            evidence.into_iter().map(|source| (source, self.views.of(source))).collect();
        // Locked in the order of the sources, so that two writers never wait for each other.
        let mut locked: SmallVec<[(Source, MutexGuard<'_, View>); 2]> =
            entries.iter().map(|(source, entry)| (*source, entry.view.lock())).collect();
        let ordinals = match room {
            Room::Promised(room) => self.outbox.append_reserved(room, &encoded)?,
            Room::Further(room) => self.outbox.append_further(room, &encoded)?,
            Room::Free => self.outbox.append(&encoded)?,
        };
        let last = *ordinals.end();
        if locked.is_empty() {
            return Ok(last);
        }
        for (n, draft) in ordinals.zip(drafts) {
            let Some(source) = evidence_source(&draft) else { continue };
            let mark = Mark { producer: self.outbox.producer().clone(), boot: self.outbox.boot(), n };
            let event = Event { identity: Identity::Sequenced(mark), draft };
            if let Some((_, view)) = locked.iter_mut().find(|(s, _)| *s == source) {
                self.views.fold_own(view, &event);
            }
        }
        Ok(last)
    }
}

fn evidence_sources(drafts: &[Draft]) -> SmallVec<[Source; 2]> {
    let mut sources: SmallVec<[Source; 2]> = drafts.iter().filter_map(evidence_source).collect();
    sources.sort_unstable();
    sources.dedup();
    sources
}

fn evidence_source(draft: &Draft) -> Option<Source> {
    match &draft.body {
        Body::SourceOutcome(_) => draft.source.map(|s| s.source),
        Body::ProbeFinished(probe) => Some(probe.scope.source),
        _ => None,
    }
}
