//! From the first byte to the admission: authenticate, read, peek, authorise, plan, and write it down.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use bytes::Bytes;
use http::HeaderMap;
use smallvec::SmallVec;
use tokio::time::Instant;
use waybill_domain::attempt::{Machine, Opening, Order, Policy, Step};
use waybill_domain::candidate::Candidate;
use waybill_domain::catalog::{Ability, Authorised, Denied, Snapshot};
use waybill_domain::selector::plan::Plan;
use waybill_domain::selector::table::Unavailable;
use waybill_domain::verdict::{PublicCode, all_busy};
use waybill_event::LogTime;
use waybill_event::config::{Channel, Key};
use waybill_event::selection::SkipReason;
use waybill_event::traffic::{FinalState, Protocol, RequestAdmitted};
use waybill_journal::outbox::{OutboxError, Reservation};
use waybill_wire::headers;
use waybill_wire::peek::{PeekError, peek};

use super::prepare;
use crate::answer::{Ids, Refusal};
use crate::emit::EmitError;
use crate::inbound::{Wishes, discard_refused, read_body, token};
use crate::metrics::Unacknowledged;
use crate::record::{Record, Running, Story};
use crate::recording::{Durability, OutboxFull};
use crate::replica::Replica;
use crate::tables::{FirstUse, Planned};

/// What an admitted request wants, as its attempts need it.
pub struct Wanted {
    /// What of the client's headers goes to upstreams.
    pub headers: HeaderMap,
    /// The client's body.
    pub body: Bytes,
    /// Where the model's name stands in it.
    pub model_span: Range<usize>,
    /// The model as the client wrote it.
    pub client_model: String,
    /// The resolved model.
    pub model: Arc<str>,
    /// Whether a stream is wanted.
    pub stream: bool,
    /// Whether the usage chunk of a stream is wanted.
    pub include_usage: bool,
    /// Time for the whole request.
    pub deadline: Duration,
    /// The key that asks.
    pub key: Arc<Key>,
}

impl Wanted {
    /// Asks configuration and this replica's views again whether a candidate may be used now. Not knowing is a no.
    pub(super) fn recheck(&self, replica: &Replica, candidate: &Candidate) -> Result<Ability, SkipReason> {
        let now = (replica.clock)().ok_or(SkipReason::NotAuthorised)?;
        let ability = self.ability(&replica.snapshot(), candidate, now)?;
        let row = replica.views.judge(&ability, now);
        match row.skip {
            None => Ok(ability),
            // What the plan took as a probe or as a last resort is still that.
            Some(SkipReason::Probing) if candidate.probe_of.is_some() && row.half_open == candidate.probe_of => {
                Ok(ability)
            }
            Some(SkipReason::SoftBlocked) if candidate.last_resort => Ok(ability),
            Some(why) => Err(why),
        }
    }

    /// The candidate's channel as it is now.
    pub(super) fn channel(&self, replica: &Replica, candidate: &Candidate) -> Result<Arc<Channel>, SkipReason> {
        let now = (replica.clock)().ok_or(SkipReason::NotAuthorised)?;
        self.ability(&replica.snapshot(), candidate, now).map(|ability| ability.channel)
    }

    fn ability(&self, snapshot: &Snapshot, candidate: &Candidate, now: LogTime) -> Result<Ability, SkipReason> {
        let names = [self.client_model.as_str(), &self.model];
        let authorised = snapshot.authorise(self.key.id, &names, now).map_err(|_| SkipReason::NotAuthorised)?;
        snapshot.may_serve(&authorised, &self.model, candidate.source.source).cloned()
    }
}

/// An admitted request; its first attempt's start is written.
pub struct Admitted {
    /// Its record.
    pub record: Box<Record>,
    /// Its plan.
    pub plan: Box<Plan>,
    /// What it wants.
    pub wanted: Wanted,
    /// Its ids.
    pub ids: Ids,
}

/// What became of a request that arrived.
pub enum Admission {
    /// Not admitted: nothing of it is in the log.
    Refused {
        /// Its ids.
        ids: Ids,
        /// The answer.
        refusal: Refusal,
    },
    /// Admitted and ended without an attempt.
    Ended {
        /// Its ids.
        ids: Ids,
        /// The answer.
        refusal: Refusal,
    },
    /// Under way.
    Admitted(Box<Admitted>),
}

/// Takes a request in.
pub async fn admit(replica: &Arc<Replica>, request: Request) -> Admission {
    let (head, body) = request.into_parts();
    let wishes = Wishes::of(&head.headers);
    let now = replica.serving_since_now();
    let ids = Ids { request: replica.new_request(now.unwrap_or_default()), client: wishes.client_id.clone() };
    let Some(now) = now else {
        discard_refused(body).await;
        let refusal = Refusal { retry_after: Some(Duration::from_secs(1)), ..Refusal::of(PublicCode::GatewayNotReady) };
        return Admission::Refused { ids, refusal };
    };
    let snapshot = replica.snapshot();
    let authorised = match authenticate(replica, &snapshot, &head.headers, now) {
        Ok(authorised) => authorised,
        Err(refusal) => {
            discard_refused(body).await;
            return Admission::Refused { ids, refusal };
        }
    };
    let asked = async {
        let body = read_body(&head.headers, body, replica.limits.max_body_bytes).await?;
        want(&head.headers, body, authorised, &wishes)
    };
    let (wanted, authorised) = match asked.await {
        Ok(found) => found,
        Err(refusal) => return Admission::Refused { ids, refusal },
    };
    let arrived = Instant::now();
    // The body may have taken its time: the rest is decided with what holds now.
    let (snapshot, now) = (replica.snapshot(), (replica.clock)().unwrap_or(now));
    let parts = Parts { replica, snapshot: &snapshot, authorised: &authorised, now, arrived, wishes: &wishes };
    parts.plan(wanted, ids).await
}

/// Finds the key that a request's token is for.
///
/// # Errors
/// The refusal for the client.
pub(crate) fn authenticate(
    replica: &Replica,
    snapshot: &Snapshot,
    headers: &HeaderMap,
    now: LogTime,
) -> Result<Authorised, Refusal> {
    let token = token(headers).ok_or_else(|| {
        Refusal::saying(PublicCode::InvalidApiKey, "No API key: send it as `Authorization: Bearer …` or `x-api-key`.")
    })?;
    let key = replica.key_of(snapshot, token).ok_or_else(|| Refusal::of(PublicCode::InvalidApiKey))?;
    snapshot.authorise(key.id, &[], now).map_err(|denied| denied_as(&denied))
}

fn denied_as(denied: &Denied) -> Refusal {
    match denied {
        Denied::UnknownKey | Denied::KeyDisabled | Denied::KeyExpired { .. } => Refusal::of(PublicCode::InvalidApiKey),
        Denied::UnknownGroup | Denied::GroupDisabled => {
            Refusal::saying(PublicCode::PermissionDenied, "This API key's group is not in service.")
        }
        Denied::ModelNotAllowed { model } => no_such_model(model),
    }
}

/// The refusal of a model that the key doesn't have.
pub(crate) fn no_such_model(model: &str) -> Refusal {
    let message = format!("The model `{model}` doesn't exist or this API key has no access to it.");
    Refusal { param: Some("model".to_owned()), ..Refusal::saying(PublicCode::ModelNotFound, message) }
}

fn want(
    headers: &HeaderMap,
    body: Bytes,
    authorised: Authorised,
    wishes: &Wishes,
) -> Result<(Wanted, Authorised), Refusal> {
    let peeked = peek(&body).map_err(|error| unreadable(&error))?;
    let wanted = Wanted {
        client_model: peeked.model.clone().into_owned(),
        model: peeked.model.as_ref().into(),
        model_span: peeked.model_span.clone(),
        stream: peeked.stream,
        include_usage: peeked.include_usage,
        deadline: Policy::default().within(wishes.deadline).deadline,
        key: authorised.key.clone(),
        headers: headers::outbound(headers),
        body: body.clone(),
    };
    Ok((wanted, authorised))
}

fn unreadable(error: &PeekError) -> Refusal {
    Refusal {
        param: error.param().map(str::to_owned),
        ..Refusal::saying(PublicCode::InvalidRequest, format!("Invalid request: {error}."))
    }
}

struct Parts<'a> {
    replica: &'a Arc<Replica>,
    snapshot: &'a Snapshot,
    authorised: &'a Authorised,
    now: LogTime,
    arrived: Instant,
    wishes: &'a Wishes,
}

impl Parts<'_> {
    async fn plan(self, wanted: Wanted, ids: Ids) -> Admission {
        let replica = self.replica;
        let names = [wanted.client_model.as_str(), &wanted.model];
        if let Err(denied) = self.snapshot.authorise(wanted.key.id, &names, self.now) {
            return Admission::Refused { ids, refusal: denied_as(&denied) };
        }
        let group = self.authorised.group.id;
        let Some(abilities) = self.snapshot.index().model(group, &wanted.model) else {
            return Admission::Refused { ids, refusal: no_such_model(&wanted.client_model) };
        };
        let reservation = match replica.outbox().reserve() {
            Ok(reservation) => Some(reservation),
            Err(OutboxError::Full) if replica.recording.outbox_full == OutboxFull::Count => None,
            Err(error) => return Admission::Refused { ids, refusal: unwritable(&error) },
        };
        let probe_free = |row: &waybill_domain::selector::table::Row| {
            row.half_open.as_deref().is_some_and(|opening| replica.probes.seems_free(row.source.source, opening))
        };
        let Planned { plan, first_use } =
            replica.tables.plan(self.snapshot, &replica.views, (group, &wanted.model), abilities, self.now, probe_free);
        self.begin(wanted, ids, reservation, Box::new(plan), first_use).await
    }

    async fn begin(
        self,
        wanted: Wanted,
        ids: Ids,
        reservation: Option<Reservation>,
        mut plan: Box<Plan>,
        first_use: Option<FirstUse>,
    ) -> Admission {
        let replica = self.replica;
        let admitted = self.admitted(&wanted, &plan);
        let opening = Opening {
            policy: Policy { deadline: wanted.deadline, ..Policy::default() },
            client_retry: self.wishes.retry.unwrap_or(0),
            ..Opening::new(wanted.stream, (replica.dice)())
        };
        let story = Story {
            id: ids.request,
            stream: wanted.stream,
            model: wanted.model.clone(),
            config: self.snapshot.position(),
            admitted_at: self.now,
            clock: replica.clock.clone(),
            rn: 0,
        };
        let mut record = Box::new(Record::new(replica.clone(), reservation, story, Machine::new(opening)));
        let unavailable = plan.unavailable();
        // Where the log must have the admission first, the source is chosen after it, by what is known then.
        let acked = replica.recording.durability == Durability::Acked;
        let at_once = if acked { None } else { choose(replica, &wanted, &mut record, &mut plan).await };
        let mut begun = at_once.is_some();
        if let Err(error) = record.admit(first_use, admitted, at_once) {
            let refusal = match &error {
                EmitError::Outbox(error) => unwritable(error),
                EmitError::Encode(_) => Refusal::of(PublicCode::InternalError),
            };
            tracing::error!(request_id = %ids.request, %error, "a request can't be admitted");
            return Admission::Refused { ids, refusal };
        }
        replica.metrics.admitted(self.arrived.elapsed());
        if acked && unavailable.is_none() {
            if !record.acknowledged().await {
                return Admission::Ended { ids, refusal: unacknowledged(replica, &mut record, &plan) };
            }
            if let Some(running) = choose(replica, &wanted, &mut record, &mut plan).await {
                begun = record.start(running);
            }
        }
        if !begun {
            let refusal = nobody(unavailable.unwrap_or_else(|| plan.table().unavailable()), self.now);
            record.refused(FinalState::Failed, refusal.status, refusal.code.as_str());
            record.end_acknowledged().await;
            return Admission::Ended { ids, refusal };
        }
        Admission::Admitted(Box::new(Admitted { record, plan, wanted, ids }))
    }

    fn admitted(&self, wanted: &Wanted, plan: &Plan) -> RequestAdmitted {
        let candidates: SmallVec<[_; 8]> = plan.first_candidates(8);
        RequestAdmitted {
            key: wanted.key.id,
            group: self.authorised.group.id,
            protocol: Protocol::OpenaiChat,
            client_model: wanted.client_model.clone(),
            model: wanted.model.to_string(),
            stream: wanted.stream,
            body_bytes: u64::try_from(wanted.body.len()).unwrap_or(u64::MAX),
            deadline_ms: u64::try_from(wanted.deadline.as_millis()).unwrap_or(u64::MAX),
            table: Some(plan.table().hash()),
            candidates: candidates.into_vec(),
            candidate_count: plan.candidate_count(),
            skips: plan.skips().to_vec(),
            client_retry: self.wishes.retry,
            client_request_id: self.wishes.client_id.clone(),
        }
    }
}

/// Prepares an attempt at the first source that can be asked. The place in the wheel belongs to a source that is asked;
/// anything else gives it back.
async fn choose(replica: &Arc<Replica>, wanted: &Wanted, record: &mut Record, plan: &mut Plan) -> Option<Running> {
    let first = first_order(replica, wanted, record, plan).await;
    if let Some(commit) = plan.commit().copied()
        && first.as_ref().is_none_or(|(order, ..)| order.candidate.source.source != commit.source)
    {
        replica.tables.give_back(plan.table(), &commit);
    }
    first.map(|(order, channel, permit)| record.prepare(order, channel, permit))
}

type First = (Order, Arc<Channel>, Option<crate::probes::Permit>);

/// The first order that can be carried out.
async fn first_order(replica: &Arc<Replica>, wanted: &Wanted, record: &mut Record, plan: &mut Plan) -> Option<First> {
    // The log was waited for since the plan was made.
    let waited = replica.recording.durability == Durability::Acked;
    loop {
        let now = record.now();
        let mut recheck = |candidate: &Candidate| wanted.recheck(replica, candidate).map(|_| ());
        let order = match record.machine().next(now, plan, &mut recheck) {
            Step::Dispatch(order) => order,
            Step::Wait { .. } | Step::Stop(_) => return None,
        };
        if waited && let Err(why) = recheck(&order.candidate) {
            record.machine().passed_over(why);
            continue;
        }
        match prepare(replica, wanted, &order).await {
            Ok((channel, permit)) => return Some((*order, channel, permit)),
            Err(why) => record.machine().passed_over(why),
        }
    }
}

/// The answer when nobody can be asked.
fn nobody(unavailable: Unavailable, now: LogTime) -> Refusal {
    let wait = |at: Option<LogTime>| at.map(|at| at.since(now));
    match unavailable {
        Unavailable::Nothing => Refusal::of(PublicCode::NoSourceAvailable),
        Unavailable::Busy { retry_at } => {
            let told = all_busy(wait(retry_at));
            Refusal { status: told.status, retry_after: told.retry_after, ..Refusal::of(told.code) }
        }
        Unavailable::Down { retry_at } => {
            Refusal { retry_after: wait(retry_at), ..Refusal::of(PublicCode::NoSourceAvailable) }
        }
    }
}

/// Closes a request whose admission the log didn't acknowledge in time; nothing of it was dispatched.
fn unacknowledged(replica: &Replica, record: &mut Record, plan: &Plan) -> Refusal {
    if let Some(commit) = plan.commit() {
        replica.tables.give_back(plan.table(), commit);
    }
    replica.metrics.unacknowledged(Unacknowledged::Admission);
    let refusal = Refusal { retry_after: Some(Duration::from_secs(5)), ..Refusal::of(PublicCode::LogUnavailable) };
    record.refused(FinalState::Failed, refusal.status, refusal.code.as_str());
    refusal
}

fn unwritable(error: &OutboxError) -> Refusal {
    match error {
        OutboxError::Full => {
            Refusal { retry_after: Some(Duration::from_secs(5)), ..Refusal::of(PublicCode::OutboxFull) }
        }
        OutboxError::Closed => Refusal::of(PublicCode::GatewayNotReady),
        OutboxError::TooLarge { .. } | OutboxError::Io(_) => Refusal::of(PublicCode::InternalError),
    }
}
