//! From the first byte to the admission: authenticate, read, peek, authorise, plan, and write it down.

mod first;
mod limits;
mod nobody;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use bytes::Bytes;
use http::HeaderMap;
use smallvec::SmallVec;
use tokio::time::Instant;
use waybill_domain::attempt::{Conclusion, Machine, Opening, Policy};
use waybill_domain::candidate::Candidate;
use waybill_domain::catalog::{Ability, Authorised, Denied, Resolved, ResolvedTarget, Snapshot, SourceEntity};
use waybill_domain::needs::Needs;
use waybill_domain::verdict::PublicCode;
use waybill_event::LogTime;
use waybill_event::config::Key;
use waybill_event::selection::SkipReason;
use waybill_event::traffic::{FinalState, Protocol, RequestAdmitted};
use waybill_journal::outbox::{OutboxError, Reservation};
use waybill_wire::headers::ToUpstream;
use waybill_wire::peek::{Peek, PeekError, peek};

use first::{First, choose, choose_after};
use nobody::{full, nobody};

use crate::answer::{Ids, Refusal};
use crate::chat::room;
use crate::course::{Course, Wish};
use crate::emit::EmitError;
use crate::gates::{Held, Spender};
use crate::inbound::{Wishes, discard_refused, read_body, token};
use crate::metrics::Unacknowledged;
use crate::record::{Record, Story};
use crate::recording::{Durability, OutboxFull};
use crate::replica::Replica;
use crate::sessions::Session;

/// Most skips that an admission tells of when nobody can be asked.
const MAX_SKIPS: usize = 32;

/// What an admitted request wants, as its attempts need it.
pub struct Wanted {
    /// What of the client's headers goes to upstreams.
    pub headers: ToUpstream,
    /// The client's body.
    pub body: Bytes,
    /// Where the model's name stands in it.
    pub model_span: Range<usize>,
    /// The model as the client wrote it.
    pub client_model: String,
    /// Whether a stream is wanted.
    pub stream: bool,
    /// Whether the usage chunk of a stream is wanted.
    pub include_usage: bool,
    /// Whether somebody may declare not to be able to serve it, and what it needs then.
    pub needs: Needs,
    /// The JSON schema that the answer must match, as the client wrote it.
    pub schema: Option<Bytes>,
    /// The deadline that the client asks for.
    pub deadline: Option<Duration>,
    /// The key that asks.
    pub key: Arc<Key>,
    /// The conversation it belongs to, where there are accounts.
    session: Option<Session>,
    /// The key's user, where users are limited.
    user: Option<String>,
    /// What the limits of the key and of its user gave: held until the request has ended.
    _held: [Held; 2],
}

impl Wanted {
    /// Whether the key, or its user, has limits.
    fn is_limited(&self) -> bool {
        self.user.is_some() || !self.key.limits.is_unlimited()
    }

    /// Asks configuration and this replica's views again whether a candidate may be used now. Not knowing is a no.
    pub(super) fn recheck(
        &self,
        replica: &Replica,
        route: &Resolved,
        candidate: &Candidate,
    ) -> Result<Ability, SkipReason> {
        let now = (replica.clock)().ok_or(SkipReason::NotAuthorised)?;
        let snapshot = replica.snapshot();
        let ability = self.ability(&snapshot, route, candidate, now)?;
        replica.views.judge(snapshot.catalog(), &ability, now).still_lets(candidate)?;
        Ok(ability)
    }

    /// The candidate's source as it is configured now.
    pub(super) fn entity(
        &self,
        replica: &Replica,
        route: &Resolved,
        candidate: &Candidate,
    ) -> Result<SourceEntity, SkipReason> {
        let now = (replica.clock)().ok_or(SkipReason::NotAuthorised)?;
        self.ability(&replica.snapshot(), route, candidate, now).map(|ability| ability.entity)
    }

    /// Who spends what the request costs.
    pub(super) fn spender(&self, replica: &Replica) -> Option<Spender> {
        Some(Spender { session: self.session?.key, now: (replica.clock)()? })
    }

    fn ability(
        &self,
        snapshot: &Snapshot,
        route: &Resolved,
        candidate: &Candidate,
        now: LogTime,
    ) -> Result<Ability, SkipReason> {
        let target = usize::try_from(candidate.target).ok().and_then(|at| route.targets.get(at));
        let model = &target.ok_or(SkipReason::NotAuthorised)?.model;
        let names = [self.client_model.as_str(), model];
        let authorised = snapshot.authorise(self.key.id, &names, now).map_err(|_| SkipReason::NotAuthorised)?;
        snapshot.may_serve(&authorised, model, candidate.source.source).cloned()
    }
}

/// An admitted request; its first attempt's start is written.
pub struct Admitted {
    /// Its record.
    pub record: Box<Record>,
    /// Its candidates.
    pub course: Box<Course>,
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
        want(&head.headers, body, authorised, &wishes, &snapshot)
    };
    let (mut wanted, authorised) = match asked.await {
        Ok(found) => found,
        Err(refusal) => return Admission::Refused { ids, refusal },
    };
    let arrived = Instant::now();
    if wanted.is_limited()
        && let Err(refusal) = Box::pin(limits::enter(replica, &snapshot, &mut wanted)).await
    {
        return Admission::Refused { ids, refusal };
    }
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
    snapshot: &Snapshot,
) -> Result<(Wanted, Authorised), Refusal> {
    let peeked = peek(&body).map_err(|error| unreadable(&error))?;
    let wanted = Wanted {
        client_model: peeked.model.clone().into_owned(),
        session: (!snapshot.catalog().accounts.is_empty()).then(|| {
            let (group, key) = (authorised.group.id, authorised.key.id);
            Session::of(group, key, wishes.session.as_deref(), &peeked)
        }),
        needs: if snapshot.declares() { needs(&peeked, body.len()) } else { Needs::default() },
        model_span: peeked.model_span.clone(),
        stream: peeked.stream,
        include_usage: peeked.include_usage,
        schema: peeked.schema.map(|schema| body.slice_ref(schema.as_bytes())),
        deadline: wishes.deadline,
        user: if authorised.key.user_limits.is_unlimited() { None } else { peeked.user() },
        _held: Default::default(),
        key: authorised.key.clone(),
        headers: ToUpstream::of(headers),
        body: body.clone(),
    };
    Ok((wanted, authorised))
}

fn needs(peeked: &Peek<'_>, body: usize) -> Needs {
    Needs {
        tools: peeked.has_tools,
        vision: peeked.shows_images(),
        json_schema: peeked.schema.is_some(),
        body_bytes: u64::try_from(body).unwrap_or(u64::MAX),
        tokens: peeked.max_tokens.unwrap_or(0),
        more_than: None,
    }
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
        let group = self.authorised.group.id;
        let route = match self.route(&wanted) {
            Ok(route) => route,
            Err(denied) => return Admission::Refused { ids, refusal: denied_as(&denied) },
        };
        let policy = self.snapshot.catalog().request_policy(group, route.route, Some(wanted.key.id));
        let offered = |target: &ResolvedTarget| self.snapshot.index().model(group, &target.model).is_some();
        if !route.targets.iter().any(offered) {
            return Admission::Refused { ids, refusal: no_such_model(&wanted.client_model) };
        }
        let reservation = match replica.outbox().reserve() {
            Ok(reservation) => Some(reservation),
            Err(OutboxError::Full) if replica.recording.outbox_full == OutboxFull::Count => None,
            Err(error) => return Admission::Refused { ids, refusal: unwritable(&error) },
        };
        let (admitted, begun) = (ids.request.admitted_at(), self.now);
        let session = wanted.session.map(|session| session.planned(&replica.bindings));
        let wish = Wish { group, route, policy, needs: wanted.needs, session, admitted, begun };
        let Some(course) = Course::plan(replica, self.snapshot, wish, self.now) else {
            return Admission::Refused { ids, refusal: no_such_model(&wanted.client_model) };
        };
        self.begin(wanted, ids, reservation, Box::new(course)).await
    }

    /// What the model's name stands for, as far as the key may use it: under the name that the client wrote, or under
    /// the target's own.
    fn route(&self, wanted: &Wanted) -> Result<Resolved, Denied> {
        let resolved = self.snapshot.resolve(self.authorised.group.id, &wanted.client_model);
        let may = |model: &str| {
            self.snapshot.authorise(wanted.key.id, &[wanted.client_model.as_str(), model], self.now).map(|_| ())
        };
        if wanted.key.models.is_empty() {
            return may(&wanted.client_model).map(|()| resolved);
        }
        let targets: Vec<ResolvedTarget> =
            resolved.targets.iter().filter(|target| may(&target.model).is_ok()).cloned().collect();
        if targets.is_empty() {
            may(&wanted.client_model)?;
        }
        Ok(Resolved { targets: targets.into(), ..resolved })
    }

    async fn begin(
        self,
        wanted: Wanted,
        ids: Ids,
        reservation: Option<Reservation>,
        mut course: Box<Course>,
    ) -> Admission {
        let replica = self.replica;
        let policy = Policy::from(course.policy()).within(wanted.deadline);
        let admitted = self.admitted(&wanted, &course, policy.deadline);
        let opening = Opening {
            policy,
            client_retry: self.wishes.retry.unwrap_or(0),
            needs: wanted.needs,
            ..Opening::new(wanted.stream, (replica.dice)())
        };
        let story = Story {
            id: ids.request,
            stream: wanted.stream,
            table: course.present().table().hash(),
            config: self.snapshot.position(),
            admitted_at: self.now,
            clock: replica.clock.clone(),
            rn: 0,
            now: None,
        };
        let mut record = Box::new(Record::new(
            replica.clone(),
            reservation,
            story,
            Machine::new(opening),
            wanted.body.clone(),
            self.arrived,
        ));
        record.belongs(wanted.session, course.present().home());
        let first_use = course.take_first_use();
        // Where the log must have the admission first, the source is chosen after it, by what is known then.
        let acked = replica.recording.durability == Durability::Acked;
        let mut first = if acked {
            First::Nobody(Conclusion::NoCandidate)
        } else {
            choose(replica, &wanted, &mut record, &mut course).await
        };
        let at_once = first.take_ready();
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
        if acked {
            if !record.acknowledged().await {
                return Admission::Ended { ids, refusal: unacknowledged(replica, &mut record, &mut course) };
            }
            first = choose(replica, &wanted, &mut record, &mut course).await;
        }
        loop {
            first = match first {
                First::Later { until, ends } => match record.wait(until, ends).await {
                    true => choose(replica, &wanted, &mut record, &mut course).await,
                    false => First::Nobody(Conclusion::NoCandidate),
                },
                First::Full { full, until } => {
                    let room = Box::pin(room(replica, &wanted, &course, &record, &full, until)).await;
                    Box::pin(choose_after(room, replica, &wanted, &mut record, &mut course)).await
                }
                First::Ready(_) | First::Nobody(_) => break,
            };
        }
        if let Some(running) = first.take_ready() {
            begun = record.start(running);
        }
        if !begun {
            let refusal = match first {
                First::Nobody(Conclusion::DeadlineExceeded) => Refusal::of(PublicCode::DeadlineExceeded),
                First::Nobody(_) if record.machine().met_full() => {
                    full(record.room_in(), course.unavailable(), (replica.clock)().unwrap_or(self.now))
                }
                First::Nobody(_) | First::Ready(_) | First::Later { .. } | First::Full { .. } => self.nobody(&course),
            };
            record.refused(FinalState::Failed, refusal.status, refusal.code.as_str());
            record.end_acknowledged().await;
            return Admission::Ended { ids, refusal };
        }
        Admission::Admitted(Box::new(Admitted { record, course, wanted, ids }))
    }

    fn admitted(&self, wanted: &Wanted, course: &Course, deadline: Duration) -> RequestAdmitted {
        let plan = course.present();
        let candidates: SmallVec<[_; 8]> = plan.first_candidates(8);
        RequestAdmitted {
            key: wanted.key.id,
            group: self.authorised.group.id,
            protocol: Protocol::OpenaiChat,
            client_model: wanted.client_model.clone(),
            model: String::from(&*course.model()),
            route: course.wish().route.route,
            needs: wanted.needs.named().into_vec(),
            stream: wanted.stream,
            body_bytes: u64::try_from(wanted.body.len()).unwrap_or(u64::MAX),
            deadline_ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX),
            table: Some(plan.table().hash()),
            candidates: candidates.into_vec(),
            candidate_count: plan.candidate_count(),
            // Where nobody can be asked, the history says why of each, not only the table.
            skips: if plan.candidate_count() == 0 { plan.all_skips(MAX_SKIPS) } else { plan.skips().to_vec() },
            client_retry: self.wishes.retry,
            client_request_id: self.wishes.client_id.clone(),
            session: wanted.session.zip(plan.home()).map(|(session, home)| {
                let bound = course.wish().session.and_then(|session| session.bound) == Some(home);
                session.told(home, bound)
            }),
        }
    }

    /// The answer when nobody can be asked. What nobody can do at all is one thing, who is out for a while another.
    fn nobody(&self, course: &Course) -> Refusal {
        match (course.unavailable(), course.present().missing()) {
            (None, [missing, ..]) => {
                let message = format!(
                    "No source that is available to this API key offers what the request needs: {}.",
                    missing.as_str()
                );
                Refusal::saying(PublicCode::CapabilityMissing, message)
            }
            (unavailable, _) => {
                let why = unavailable.unwrap_or_else(|| course.present().table().unavailable());
                nobody(why, (self.replica.clock)().unwrap_or(self.now))
            }
        }
    }
}

/// Closes a request whose admission the log didn't acknowledge in time; nothing of it was dispatched.
fn unacknowledged(replica: &Replica, record: &mut Record, course: &mut Course) -> Refusal {
    course.settle(None);
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
