//! The record of one request: it drives the attempt loop, writes every event of the request in its order, and closes the
//! request exactly once on every path, that of a client who goes away included.

mod acknowledged;
mod beginning;
mod drafts;
mod ending;
mod failing;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;
use tokio::time::Instant;
use waybill_domain::attempt::{Machine, Order};
use waybill_domain::candidate::Candidate;
use waybill_domain::catalog::SourceEntity;
use waybill_domain::needs::Missing;
use waybill_domain::observation::Observation;
use waybill_domain::selector::Revisions;
use waybill_domain::verdict::{FailureRecord, Verdict};
use waybill_event::money::{TokenCount, Usage};
use waybill_event::selection::TableHash;
use waybill_event::traffic::{Evidence, RequestAdmitted, Shadow};
use waybill_event::{FailureKind, RequestId, Source, SourceRef};
use waybill_journal::outbox::{OutboxError, Reservation};
use waybill_upstream::Target;

use crate::emit::{Drafts, EmitError, Room};
use crate::gates::{COME_BACK, Held, Passed};
use crate::probes::Permit;
use crate::recording::OutboxFull;
use crate::replica::Replica;
use crate::sessions::Session;
use crate::tables::FirstUse;
use crate::views::InFlight;

pub use drafts::Story;

/// Most that is kept of the name that an upstream gives its model, in bytes.
const MAX_MODEL_BYTES: usize = 256;

/// An attempt under way.
pub struct Running {
    /// The order.
    pub order: Order,
    /// The source it goes to, as it is configured.
    pub entity: SourceEntity,
    /// Where it is, and with which credential it is asked.
    pub target: Arc<Target>,
    /// The model, as groups and routes name it.
    model: Arc<str>,
    /// The table it was drawn from, where that isn't the one of the admission.
    table: Option<TableHash>,
    /// That table, where it isn't recorded yet.
    first_use: Option<FirstUse>,
    /// What its answer lacks of what the route's first target declares.
    lacks: Missing,
    credential_revision: u64,
    started: Duration,
    first_content: Option<Duration>,
    permit: Option<Permit>,
    held: Held,
    _in_flight: InFlight,
}

/// What an attempt left behind besides its verdict.
#[derive(Debug, Default, Clone)]
pub struct Heard {
    /// The upstream's HTTP status.
    pub status: Option<u16>,
    /// The upstream's own id of the call.
    pub upstream_request_id: Option<String>,
}

/// A failed attempt that isn't written yet.
struct Failure {
    verdict: Verdict,
    shadow: Option<Shadow>,
    observation: Observation,
    heard: Heard,
}

/// Largest request that is kept while its answer streams, in bytes.
const KEPT_REQUEST_BYTES: usize = 8 * 1024;

/// One request's record.
pub struct Record {
    replica: Arc<Replica>,
    /// Room for the events; without it the request goes unrecorded.
    reservation: Option<Reservation>,
    story: Story,
    admitted: Instant,
    machine: Machine,
    running: Option<Running>,
    /// The running attempt's failure, until what follows it is known.
    failure: Option<Box<Failure>>,
    /// The client's body, while it is there: evidence is cleared of what it says.
    request: Option<Bytes>,
    /// When an attempt last failed.
    failed_at: Duration,
    /// When the first of those that were full may have room, since the admission.
    room_at: Option<Duration>,
    /// Masked evidence of failed attempts, by their number.
    evidence: Vec<(u32, Evidence)>,
    served: Option<SourceRef>,
    /// Whose answer goes to the client, and what it lacks.
    answering: Option<(Candidate, Missing)>,
    /// Tables whose first use is being written.
    tables: SmallVec<[FirstUse; 1]>,
    served_model: Option<String>,
    usage: Option<Usage>,
    first_content: Option<Duration>,
    /// Attempts that were begun.
    begun: u32,
    /// What the last one of them was made with.
    used: Revisions,
    /// What the log must have before the request goes on, where the policy asks for that.
    awaited: Option<u64>,
    /// What the served attempt holds of limits until its upstream's answer has been read to its end.
    parting: Held,
    /// The conversation it is of.
    session: Option<Session>,
    /// Where that belongs.
    home: Option<Source>,
    /// Nothing more is to be written: before the admission, and after the end.
    closed: bool,
}

impl Record {
    /// A record of a request that is about to be admitted; its time counts from `arrived`. Nothing is written yet; without a
    /// reservation nothing will be.
    #[must_use]
    pub fn new(
        replica: Arc<Replica>,
        reservation: Option<Reservation>,
        story: Story,
        machine: Machine,
        request: Bytes,
        arrived: Instant,
    ) -> Self {
        Self {
            replica,
            reservation,
            story,
            admitted: arrived,
            machine,
            running: None,
            failure: None,
            request: Some(request),
            failed_at: Duration::ZERO,
            room_at: None,
            evidence: Vec::new(),
            served: None,
            answering: None,
            tables: SmallVec::new(),
            served_model: None,
            usage: None,
            first_content: None,
            begun: 0,
            used: Revisions::default(),
            awaited: None,
            parting: Held::default(),
            session: None,
            home: None,
            closed: true,
        }
    }

    /// The upstream's answer has been read to its end: nothing is in flight there any more.
    pub fn upstream_over(&mut self) {
        self.parting = Held::default();
    }

    /// Takes what the attempt under way holds of limits, for the next one at the same source.
    pub fn keep_held(&mut self) -> Held {
        self.running.as_mut().map(|running| std::mem::take(&mut running.held)).unwrap_or_default()
    }

    /// The request is of a conversation, which belongs somewhere.
    pub const fn belongs(&mut self, session: Option<Session>, home: Option<Source>) {
        (self.session, self.home) = (session, home);
    }

    /// The order wasn't carried out: the walk goes on, and it is kept when there may be room where somebody is full.
    pub fn passed_over(&mut self, Passed { why, room_in }: Passed) {
        if let Some(room_at) = room_in.map(|wait| self.now().saturating_add(wait)) {
            self.room_at = Some(self.room_at.map_or(room_at, |known| known.min(room_at)));
        }
        self.machine.passed_over(why);
    }

    /// After how long the first of those that were full may have room.
    #[must_use]
    pub fn room_in(&self) -> Duration {
        self.room_at.map_or(COME_BACK, |at| at.saturating_sub(self.now()).max(COME_BACK))
    }

    /// The request is no longer needed but to compare with: only a small one is kept for that.
    pub fn let_request_go(&mut self) {
        self.request = self.request.take().filter(|request| request.len() <= KEPT_REQUEST_BYTES);
    }

    /// The request's id.
    #[must_use]
    pub const fn id(&self) -> RequestId {
        self.story.id
    }

    /// Time since admission.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.admitted.elapsed()
    }

    /// When an attempt was made ready.
    #[must_use]
    pub fn began(&self, running: &Running) -> Instant {
        self.admitted + running.started
    }

    /// The attempt loop.
    pub const fn machine(&mut self) -> &mut Machine {
        &mut self.machine
    }

    /// The attempt under way.
    #[must_use]
    pub const fn running(&self) -> Option<&Running> {
        self.running.as_ref()
    }

    /// The failed attempts so far.
    #[must_use]
    pub fn failures(&self) -> &[FailureRecord] {
        self.machine.failures()
    }

    /// Number of attempts that have ended.
    #[must_use]
    pub const fn attempts(&self) -> u32 {
        self.machine.attempts()
    }

    /// Whose answer goes to the client.
    #[must_use]
    pub fn served_candidate(&self) -> Option<&Candidate> {
        self.answering.as_ref().map(|(candidate, _)| candidate)
    }

    /// When the request has run out of time.
    #[must_use]
    pub fn ends(&self) -> Instant {
        self.admitted + self.machine.deadline()
    }

    /// Masked evidence of a failed attempt.
    #[must_use]
    pub fn evidence_of(&self, attempt: u32) -> Option<&Evidence> {
        self.evidence.iter().find(|(number, _)| *number == attempt).map(|(_, evidence)| evidence)
    }

    /// Admits the request: the table's first use, the admission and the first dispatch in one write. A request that
    /// can't be written is not admitted, unless the policy lets it go unrecorded.
    ///
    /// # Errors
    /// [`EmitError`]; nothing was written.
    pub fn admit(
        &mut self,
        table: Option<FirstUse>,
        admitted: RequestAdmitted,
        first: Option<Running>,
    ) -> Result<(), EmitError> {
        let mut drafts = Drafts::new();
        if let Some(table) = &table {
            drafts.push(self.story.table(table));
        }
        drafts.push(self.story.admitted(admitted));
        if let Some(running) = first {
            self.begin(running, &mut drafts);
        }
        // What was promised is for the events that finish the request.
        let admitted = match self.append(drafts, |_| Room::Free) {
            Err(EmitError::Outbox(OutboxError::Full)) if self.replica.recording.outbox_full == OutboxFull::Count => {
                self.reservation = None;
                Ok(())
            }
            Err(error) => Err(error),
            Ok(ordinal) => {
                self.awaited = ordinal;
                // A request that goes unrecorded leaves the table to the next one.
                self.tables.extend(table);
                self.tables_recorded(ordinal);
                Ok(())
            }
        };
        // Only what is known to the log has to be closed there.
        self.closed = admitted.is_err();
        if admitted.is_ok() && self.reservation.is_none() {
            self.replica.metrics.unrecorded();
        }
        admitted
    }

    /// The first content is there: it goes to the client, and nothing is tried again.
    pub fn commit(&mut self) {
        self.committed(self.now());
    }

    fn committed(&mut self, now: Duration) {
        self.machine.committed(now);
        self.first_content.get_or_insert(now);
        let Some(running) = &mut self.running else { return };
        self.answering = Some((running.order.candidate.clone(), running.lacks.clone()));
        running.first_content.get_or_insert(now.saturating_sub(running.started));
        // A probe is decided here; a limit that was tried again is over when the request's outcome says so.
        let decided = running.order.candidate.probe_of.is_some();
        let permit = running.permit.take_if(|_| decided);
        let Some(running) = &self.running else { return };
        if let Some(permit) = permit {
            let finished = self.story.probe_finished(running, true, FailureKind::Success);
            self.write(finished.into_iter().collect());
            self.replica.probes.release(permit);
        }
    }

    /// What the answer reported.
    pub fn reported(&mut self, usage: Option<waybill_wire::usage::Usage>, model: Option<&str>) {
        let count = |n: Option<u64>| n.map(TokenCount);
        self.usage = usage.map(|u| Usage {
            prompt_tokens: count(u.prompt),
            completion_tokens: count(u.completion),
            cached_tokens: count(u.cached),
            reasoning_tokens: count(u.reasoning),
        });
        self.served_model = model.map(|m| m.get(..m.floor_char_boundary(MAX_MODEL_BYTES)).unwrap_or(m).to_owned());
    }

    /// Writes events of a request that was admitted, and returns the last ordinal. Their room is reserved, so a failure
    /// is the disk's.
    fn write(&mut self, drafts: Drafts) -> Option<u64> {
        if drafts.is_empty() {
            return None;
        }
        match self.append(drafts, |room| Room::Promised(room)) {
            Ok(ordinal) => ordinal,
            Err(error) => {
                tracing::error!(request_id = %self.story.id, %error, "events of a request can't be written");
                None
            }
        }
    }

    /// Appends events into the room that is said; those of an unrecorded request are left out.
    fn append(
        &mut self,
        drafts: Drafts,
        room: impl FnOnce(&Reservation) -> Room<'_>,
    ) -> Result<Option<u64>, EmitError> {
        self.story.written();
        let Some(reservation) = &self.reservation else { return Ok(None) };
        self.replica.emitter.append(drafts, room(reservation)).map(Some)
    }

    /// The upstream was left in the middle of its answer.
    fn left(&self, mut running: Running) {
        self.replica.gates.left_unfinished(std::mem::take(&mut running.held));
        self.release(running);
    }

    fn release(&self, running: Running) {
        if let Some(permit) = running.permit {
            self.replica.probes.release(permit);
        }
    }
}
