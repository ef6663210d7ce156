//! The fold of the traffic stream into rows.

use std::collections::{BTreeMap, BTreeSet};

use waybill_event::selection::TableHash;
use waybill_event::{Body, RequestId, Source};

use super::attempt::AttemptRow;
use super::outcome::OutcomeRow;
use super::request::RequestRow;
use super::text::{bounded_u32, without_nul};
use super::transition::{SelectionTableRow, TransitionRow};
use super::{Day, Placed};

/// Rows of traffic, by their keys.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TrafficRows {
    /// Requests.
    pub requests: BTreeMap<RequestId, RequestRow>,
    /// Attempts, by request and number.
    pub attempts: BTreeMap<(RequestId, u32), AttemptRow>,
    /// Outcomes, by request and source.
    pub outcomes: BTreeMap<(RequestId, Source, String), OutcomeRow>,
    /// Transitions, by the announcement's id.
    pub transitions: BTreeMap<String, TransitionRow>,
    /// Selection tables, by the content's hash.
    pub selection_tables: BTreeMap<TableHash, SelectionTableRow>,
}

/// What an event was to the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// It belongs in the rows and is in them now.
    Rows,
    /// It says nothing that rows hold.
    Nothing,
    /// Its type or version isn't known here: to be folded after an upgrade.
    Unknown,
    /// It lacks what its row needs; the text says what.
    Incomplete(&'static str),
}

/// The keys of the rows that events touch: what must be loaded before they are folded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Touched {
    /// Requests.
    pub requests: BTreeSet<RequestId>,
    /// Attempts.
    pub attempts: BTreeSet<(RequestId, u32)>,
    /// Outcomes.
    pub outcomes: BTreeSet<(RequestId, Source, String)>,
    /// Transitions.
    pub transitions: BTreeSet<String>,
    /// Selection tables.
    pub selection_tables: BTreeSet<TableHash>,
}

impl Touched {
    /// Adds the keys of the rows that an event touches.
    pub fn add(&mut self, placed: &Placed) {
        let draft = &placed.event.draft;
        let request = draft.request.map(|(id, _)| id);
        match (&draft.body, request, draft.source) {
            (Body::RequestAdmitted(_) | Body::RequestFinished(_) | Body::OwnerLost(_), Some(id), _) => {
                self.requests.insert(id);
            }
            (Body::AttemptStarted(data), Some(id), _) => {
                self.attempts.insert((id, bounded_u32(data.attempt)));
            }
            (Body::AttemptFinished(data), Some(id), _) => {
                self.attempts.insert((id, bounded_u32(data.attempt)));
            }
            (Body::SourceOutcome(data), Some(id), Some(source)) => {
                self.outcomes.insert((id, source.source, without_nul(&data.upstream_model)));
            }
            (Body::SelectionTable(data), _, _) => {
                self.selection_tables.insert(data.hash);
            }
            (
                Body::BreakerOpened(_)
                | Body::BreakerHalfOpened(_)
                | Body::BreakerClosed(_)
                | Body::ProbeFinished(_)
                | Body::SourceChecked(_)
                | Body::CredentialRefreshed(_)
                | Body::CredentialRefreshFailed(_)
                | Body::BlockSet(_)
                | Body::BlockLifted(_)
                | Body::SourceDisabled(_)
                | Body::SourceEnabled(_),
                _,
                _,
            ) => {
                self.transitions.insert(without_nul(&placed.event.identity.to_string()));
            }
            (
                Body::RequestAdmitted(_)
                | Body::RequestFinished(_)
                | Body::AttemptStarted(_)
                | Body::AttemptFinished(_)
                | Body::SourceOutcome(_)
                | Body::ConfigApplied(_)
                | Body::OutboxDrained(_)
                | Body::OwnerLost(_)
                | Body::Config(_)
                | Body::Unknown(_),
                _,
                _,
            ) => {}
        }
    }

    /// The days of the rows touched.
    #[must_use]
    pub fn days(&self) -> BTreeSet<Day> {
        self.requests
            .iter()
            .chain(self.attempts.iter().map(|(id, _)| id))
            .chain(self.outcomes.iter().map(|(id, ..)| id))
            .map(|&id| Day::of_request(id))
            .collect()
    }
}

impl TrafficRows {
    /// Folds one event. The caller drops what it has had already (see [`crate::dedup::Dedup`]); events that come twice
    /// all the same change nothing.
    pub fn apply(&mut self, placed: &Placed) -> Applied {
        const NO_REQUEST: Applied = Applied::Incomplete("it names no request");
        const NO_SOURCE: Applied = Applied::Incomplete("it names no source");
        let draft = &placed.event.draft;
        match &draft.body {
            Body::RequestAdmitted(data) => {
                let Some((id, rn)) = draft.request else { return NO_REQUEST };
                self.request(id).admit(placed, rn, data);
            }
            Body::RequestFinished(data) => {
                let Some((id, rn)) = draft.request else { return NO_REQUEST };
                self.request(id).finish(placed, rn, data);
            }
            Body::OwnerLost(data) => {
                let Some((id, _)) = draft.request else { return NO_REQUEST };
                self.request(id).lose(placed, data);
            }
            Body::AttemptStarted(data) => {
                let Some((id, rn)) = draft.request else { return NO_REQUEST };
                let Some(source) = draft.source else { return NO_SOURCE };
                let n = bounded_u32(data.attempt);
                self.attempts
                    .entry((id, n))
                    .or_insert_with(|| AttemptRow::new(id, n, source, &data.model, &data.upstream_model))
                    .start(placed, rn, data);
            }
            Body::AttemptFinished(data) => {
                let Some((id, rn)) = draft.request else { return NO_REQUEST };
                let Some(source) = draft.source else { return NO_SOURCE };
                let n = bounded_u32(data.attempt);
                self.attempts
                    .entry((id, n))
                    .or_insert_with(|| AttemptRow::new(id, n, source, &data.model, &data.upstream_model))
                    .finish(placed, rn, data);
            }
            Body::SourceOutcome(data) => {
                let Some((id, rn)) = draft.request else { return NO_REQUEST };
                let Some(source) = draft.source else { return NO_SOURCE };
                self.outcomes
                    .entry((id, source.source, without_nul(&data.upstream_model)))
                    .or_insert_with(|| OutcomeRow::new(placed, id, rn, source, data));
            }
            Body::SelectionTable(data) => {
                self.selection_tables.entry(data.hash).or_insert_with(|| SelectionTableRow::new(placed, data));
            }
            Body::BreakerOpened(_)
            | Body::BreakerHalfOpened(_)
            | Body::BreakerClosed(_)
            | Body::ProbeFinished(_)
            | Body::SourceChecked(_)
            | Body::CredentialRefreshed(_)
            | Body::CredentialRefreshFailed(_)
            | Body::BlockSet(_)
            | Body::BlockLifted(_)
            | Body::SourceDisabled(_)
            | Body::SourceEnabled(_) => {
                if let Some(row) = TransitionRow::new(placed) {
                    self.transitions.entry(row.id.clone()).or_insert(row);
                }
            }
            Body::ConfigApplied(_) | Body::OutboxDrained(_) => return Applied::Nothing,
            Body::Config(_) => return Applied::Incomplete("configuration doesn't belong in the traffic stream"),
            Body::Unknown(_) => return Applied::Unknown,
        }
        Applied::Rows
    }

    fn request(&mut self, id: RequestId) -> &mut RequestRow {
        self.requests.entry(id).or_insert_with(|| RequestRow::new(id))
    }
}
