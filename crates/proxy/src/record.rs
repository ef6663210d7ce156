//! The record of one request: it drives the attempt loop, writes every event of the request in its order, and closes the
//! request exactly once on every path, that of a client who goes away included.

mod acknowledged;
mod drafts;

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;
use waybill_domain::attempt::{Machine, Order, Step};
use waybill_domain::candidate::Candidate;
use waybill_domain::needs::Missing;
use waybill_domain::observation::{Ending, Observation};
use waybill_domain::selector::Revisions;
use waybill_domain::verdict::{FailureRecord, Verdict, classify};
use waybill_event::config::Channel;
use waybill_event::money::{TokenCount, Usage, UsageReport};
use waybill_event::selection::{Next, SkipReason, TableHash};
use waybill_event::traffic::{AttemptFinished, Evidence, FinalState, RequestAdmitted, RequestFinished};
use waybill_event::{FailureKind, LogTime, RequestId, SourceRef};
use waybill_journal::outbox::{OutboxError, Reservation};
use waybill_wire::mask::mask;

use crate::course::Course;
use crate::emit::{Drafts, EmitError, Room};
use crate::metrics::Ended;
use crate::probes::Permit;
use crate::recording::OutboxFull;
use crate::replica::Replica;
use crate::tables::FirstUse;
use crate::views::InFlight;

pub use drafts::Story;

/// Most that is kept of the name that an upstream gives its model, in bytes.
const MAX_MODEL_BYTES: usize = 256;

/// An attempt under way.
pub struct Running {
    /// The order.
    pub order: Order,
    /// The channel it goes to.
    pub channel: Arc<Channel>,
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
    observation: Observation,
    heard: Heard,
}

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
    failure: Option<Failure>,
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
    /// Nothing more is to be written: before the admission, and after the end.
    closed: bool,
}

impl Record {
    /// A record of a request that is about to be admitted. Nothing is written yet; without a reservation nothing will be.
    #[must_use]
    pub fn new(replica: Arc<Replica>, reservation: Option<Reservation>, story: Story, machine: Machine) -> Self {
        Self {
            replica,
            reservation,
            story,
            admitted: Instant::now(),
            machine,
            running: None,
            failure: None,
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
            closed: true,
        }
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

    /// Time for the whole request.
    #[must_use]
    pub const fn deadline(&self) -> Duration {
        self.machine.deadline()
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
            drafts.push(self.story.table(table.event()));
        }
        drafts.push(self.story.admitted(admitted));
        if let Some(running) = first {
            drafts.extend(self.begin(running));
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

    /// An attempt for this order, its start not yet written.
    #[must_use]
    pub fn prepare(&self, order: Order, channel: Arc<Channel>, permit: Option<Permit>, course: &mut Course) -> Running {
        let table = course.other_table(self.story.table);
        let credential_revision = channel.credential.as_ref().map_or(0, |credential| credential.revision);
        let in_flight = self.replica.views.enter(order.candidate.source.source);
        Running {
            model: course.model_of(&order.candidate),
            first_use: if table.is_some() { course.take_first_use() } else { None },
            table,
            lacks: course.lacks(&order.candidate),
            order,
            channel,
            credential_revision,
            started: self.now(),
            first_content: None,
            permit,
            _in_flight: in_flight,
        }
    }

    /// The next dispatch; its start is written before it is done. Says whether it was written: it isn't done otherwise.
    #[must_use]
    pub fn start(&mut self, running: Running) -> bool {
        // The source that was waited for may have been left instead.
        let ended = self.outcomes();
        self.go_on(ended, running)
    }

    /// Writes what has ended and the next start as one. A start that can't be written is taken back, and the loop is over.
    fn go_on(&mut self, ended: Drafts, next: Running) -> bool {
        let (used, rn) = (self.used, self.story.rn);
        let mut drafts = ended.clone();
        drafts.extend(self.begin(next));
        let error = match self.append(drafts, Room::Further) {
            Ok(ordinal) => {
                self.tables_recorded(ordinal);
                return true;
            }
            Err(error) => error,
        };
        self.tables.clear();
        tracing::warn!(request_id = %self.story.id, %error, "a further attempt can't be recorded, and isn't made");
        (self.used, self.story.rn) = (used, rn);
        self.begun -= 1;
        if let Some(running) = self.running.take() {
            self.release(running);
        }
        self.machine.unrecordable();
        let mut ended = ended;
        drafts::nothing_follows(&mut ended);
        ended.extend(self.outcomes());
        self.write(ended);
        false
    }

    /// What was written names these tables; of an unrecorded request nothing was.
    fn tables_recorded(&mut self, ordinal: Option<u64>) {
        for table in self.tables.drain(..).filter(|_| ordinal.is_some()) {
            table.recorded();
        }
    }

    fn begin(&mut self, mut running: Running) -> Drafts {
        let mut drafts = Drafts::new();
        if let Some(table) = running.first_use.take() {
            drafts.push(self.story.table(table.event()));
            self.tables.push(table);
        }
        if let (Some(opening), Some(_)) = (&running.order.candidate.probe_of, &running.permit) {
            drafts.push(self.story.half_opened(&running, opening));
        }
        drafts.push(self.story.attempt_started(&running, running.credential_revision));
        self.used = Revisions { credential: running.credential_revision, base_url: running.channel.base_url_revision };
        self.running = Some(running);
        self.begun += 1;
        drafts
    }

    /// Waits until a time since the admission and, by the log's clock, for the end of a limit. Says no where the replica
    /// must stop: it waits for nothing more.
    pub async fn wait(&self, until: Duration, ends: Option<LogTime>) -> bool {
        let waited = async {
            tokio::time::sleep(until.saturating_sub(self.now())).await;
            while let (Some(ends), Some(now)) = (ends, (self.replica.clock)())
                && now < ends
            {
                tokio::time::sleep(ends.since(now)).await;
            }
        };
        self.replica.stopping().run_until_cancelled(waited).await.is_some()
    }

    /// The running attempt failed. What follows isn't known yet: [`Record::after_failure`] writes both.
    pub fn failed(&mut self, observation: Observation, heard: Heard) -> Arc<str> {
        let verdict = classify(&self.replica.rules, &observation);
        self.replica.metrics.failed(verdict.kind);
        if observation.committed {
            let now = self.now();
            self.machine.committed(now);
        }
        self.machine.failed(&verdict);
        let rule = verdict.rule.clone();
        self.failure = Some(Failure { verdict, observation, heard });
        rule
    }

    /// Writes the end of the failed attempt, the outcome of its source if that was left, and the next start if one
    /// follows at once. Says whether that has begun.
    #[must_use]
    pub fn after_failure(&mut self, step: &Step, next: Option<Running>) -> bool {
        let ended = self.attempt_failed(step.follows());
        match next {
            Some(next) => self.go_on(ended, next),
            None => {
                self.write(ended);
                false
            }
        }
    }

    fn attempt_failed(&mut self, next: Next) -> Drafts {
        let mut drafts = Drafts::new();
        let Some(Failure { verdict, observation, heard }) = self.failure.take() else { return drafts };
        let Some(running) = self.running.take() else { return drafts };
        let evidence = evidence(&observation);
        if let Some(evidence) = evidence.clone() {
            self.evidence.push((running.order.attempt, evidence));
        }
        if let Some(decided) = probe_decided(&running, &verdict) {
            drafts.extend(self.story.probe_finished(&running, decided, verdict.kind));
        }
        let finished = AttemptFinished {
            kind: verdict.kind,
            rule: verdict.rule.to_string(),
            status: heard.status,
            sent: drafts::sent(&observation),
            maybe_billed: verdict.maybe_billed,
            next: Some(next),
            evidence,
            upstream_request_id: heard.upstream_request_id,
            ..self.story.attempt_finished(&running, self.now())
        };
        drafts.push(self.story.of_source(&running, finished));
        drafts.extend(self.outcomes());
        if let Some(permit) = running.permit {
            self.replica.probes.release_failed(permit);
        }
        drafts
    }

    /// The outcome of the source that was asked last, if it was left. It is taken before another attempt begins.
    fn outcomes(&mut self) -> Drafts {
        let mut drafts = Drafts::new();
        while let Some(outcome) = self.machine.take_outcome() {
            let usage = self.usage.filter(|_| outcome.kind == FailureKind::Success);
            drafts.push(self.story.outcome(&outcome, self.used, usage));
        }
        drafts
    }

    /// The first content is there: it goes to the client, and nothing is tried again.
    pub fn commit(&mut self) {
        let now = self.now();
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
            let drafts = self.story.probe_finished(running, true, FailureKind::Success);
            self.write(drafts);
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

    /// The answer is complete: the attempt, the outcome and the request end, before the last byte goes out.
    pub fn succeeded(&mut self, heard: Heard) {
        let now = self.now();
        self.machine.succeeded(now);
        let mut drafts = Drafts::new();
        if let Some(running) = self.running.take() {
            self.served = Some(running.order.candidate.source);
            let finished = AttemptFinished {
                kind: FailureKind::Success,
                status: heard.status,
                upstream_request_id: heard.upstream_request_id,
                ..self.story.attempt_finished(&running, now)
            };
            drafts.push(self.story.of_source(&running, finished));
            drafts.extend(self.outcomes());
            self.release(running);
        }
        self.close(drafts, FinalState::Succeeded, 200, None);
    }

    /// The stream broke after its first content.
    pub fn broke_off(&mut self, observation: Observation, heard: Heard, error: &str) {
        self.served = self.running.as_ref().map(|r| r.order.candidate.source);
        self.failed(observation, heard);
        self.machine.broken();
        let drafts = self.attempt_failed(Next::Stop);
        self.close(drafts, FinalState::Partial, 200, Some(error.to_owned()));
    }

    /// The stream broke after its first content, and nobody goes on with it.
    pub fn interrupted(&mut self, error: &str) {
        self.served = self.answering.as_ref().map(|(candidate, _)| candidate.source);
        self.close(Drafts::new(), FinalState::Partial, 200, Some(error.to_owned()));
    }

    /// The client gets an error.
    pub fn refused(&mut self, state: FinalState, status: u16, error: &str) {
        self.close(Drafts::new(), state, status, Some(error.to_owned()));
    }

    fn close(&mut self, mut drafts: Drafts, state: FinalState, status: u16, error: Option<String>) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        let took = self.now();
        // A source that was waited for, and then not asked again, was left without a further attempt.
        drafts.extend(self.outcomes());
        let finished = RequestFinished {
            state,
            status,
            error,
            served_model: self.served_model.take(),
            // An order that was never begun is no attempt.
            attempts: self.machine.attempts().min(self.begun),
            fallback: self.machine.fallback(),
            degraded: self.answering.as_ref().is_some_and(|(candidate, _)| candidate.target > 0),
            missing: self.answering.as_ref().map_or_else(Vec::new, |(_, lacks)| lacks.to_vec()),
            skips: self.machine.take_skips().into_vec(),
            usage: self.usage.map_or(UsageReport::Absent, UsageReport::Reported),
            first_content_ms: self.first_content.map(drafts::millis),
            took_ms: drafts::millis(took),
            maybe_billed: self.machine.maybe_billed(),
        };
        if finished.degraded {
            self.replica.metrics.degraded();
        }
        let (attempts, fallback) = (finished.attempts, finished.fallback);
        drafts.push(self.story.finished(finished, self.served));
        self.awaited = self.write(drafts);
        let stream = self.story.stream;
        self.replica.metrics.ended(Ended { state, stream, attempts, fallback, took });
    }

    /// Writes events of a request that was admitted, and returns the last ordinal. Their room is reserved, so a failure
    /// is the disk's.
    fn write(&self, drafts: Drafts) -> Option<u64> {
        if drafts.is_empty() {
            return None;
        }
        match self.append(drafts, Room::Promised) {
            Ok(ordinal) => ordinal,
            Err(error) => {
                tracing::error!(request_id = %self.story.id, %error, "events of a request can't be written");
                None
            }
        }
    }

    /// Appends events into the room that is said; those of an unrecorded request are left out.
    fn append<'a>(
        &'a self,
        drafts: Drafts,
        room: impl FnOnce(&'a Reservation) -> Room<'a>,
    ) -> Result<Option<u64>, EmitError> {
        let Some(reservation) = &self.reservation else { return Ok(None) };
        self.replica.emitter.append(drafts, room(reservation)).map(Some)
    }

    fn release(&self, running: Running) {
        if let Some(permit) = running.permit {
            self.replica.probes.release(permit);
        }
    }

    /// The client is gone, or the handler died: whatever was under way ends here.
    fn abandoned(&mut self) {
        let (state, kind, status, rule) = if std::thread::panicking() {
            (FinalState::Unknown, FailureKind::LocalFailure, 500, "local/panic@v1")
        } else {
            // What had begun to be answered was answered with 200; else nobody was there to take a status.
            let status = if self.first_content.is_some() { 200 } else { 499 };
            (FinalState::Cancelled, FailureKind::ClientCancelled, status, "local/client_gone@v1")
        };
        if self.running.is_none() || self.failure.is_some() {
            // What was ordered next had not begun: only a probe's permit is waited for before that.
            self.machine.passed_over(SkipReason::Probing);
        }
        self.machine.cancelled();
        // An attempt that had failed already keeps its verdict.
        let mut drafts = self.attempt_failed(Next::Stop);
        if let Some(running) = self.running.take() {
            let finished = AttemptFinished {
                kind,
                rule: rule.to_owned(),
                maybe_billed: true,
                ..self.story.attempt_finished(&running, self.now())
            };
            drafts.push(self.story.of_source(&running, finished));
            drafts.extend(self.outcomes());
            self.release(running);
        }
        self.close(drafts, state, status, None);
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if !self.closed {
            self.abandoned();
        }
    }
}

/// What of an error is kept: bounded and masked.
fn evidence(observation: &Observation) -> Option<Evidence> {
    let error = &observation.error;
    let word = |word: &Option<String>| word.as_deref().map(mask);
    let message = match (&error.message, &observation.ending) {
        (Some(message), _) => Some(mask(message)),
        (None, Ending::Transport(fault)) => Some(fault.to_string().chars().take(300).collect()),
        (None, Ending::TimedOut { limit, .. }) => Some(format!("time limit passed: {limit:?}")),
        (None, Ending::Wrong2xx { shape, .. } | Ending::Status { shape, .. }) => Some(format!("body: {shape:?}")),
        (None, Ending::Success | Ending::ClientGone | Ending::Local) => None,
    };
    let evidence = Evidence { code: word(&error.code), kind: word(&error.kind), param: word(&error.param), message };
    (evidence != Evidence::default()).then_some(evidence)
}

/// What a failed probe decides about its scope; nothing where the failure says nothing about health.
fn probe_decided(running: &Running, verdict: &Verdict) -> Option<bool> {
    use waybill_event::failure::Health;
    running.permit.as_ref()?;
    let opening = running.order.candidate.probe_of.as_deref()?;
    let health = if drafts::is_of_model(opening) { verdict.model_health } else { verdict.source_health };
    match health {
        Health::Ok => Some(true),
        Health::Fail => Some(false),
        Health::Busy | Health::None => None,
    }
}
