//! `POST /v1/chat/completions`: the phases of a request, in order. What each phase decides is `domain`'s; this file only
//! walks through them.

pub(crate) mod admission;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use bytes::Bytes;
use http::header::CACHE_CONTROL;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use tokio_util::sync::CancellationToken;
use waybill_domain::attempt::{Conclusion, Machine, Order, Recheck, Step};
use waybill_domain::candidate::{Candidate, Waiting};
use waybill_domain::catalog::SourceEntity;
use waybill_domain::observation::{Ending, Observation};
use waybill_domain::verdict::{Answer as Told, PublicCode, answer};
use waybill_event::FailureKind;
use waybill_event::config::MidStream;
use waybill_event::selection::{Chosen, SkipReason};
use waybill_event::traffic::FinalState;
use waybill_wire::headers;
use waybill_wire::schema::Schema;
use waybill_wire::splice::splice_model;

use crate::answer::{Ids, Refusal, respond};
use crate::attempt::{Ask, Attempted, attempt, now_ms};
use crate::course::Course;
use crate::gates::{Given, Held, Passed, Patience};
use crate::probes::{Claim, Permit};
use crate::record::{Heard, Record, Running};
use crate::relay::{Relay, Settings};
use crate::replica::{Replica, Unusable, Usable};

use admission::{Admission, Wanted, admit};

const ASKED_MODEL: HeaderName = HeaderName::from_static("x-waybill-model");
const DEGRADED: HeaderName = HeaderName::from_static("x-waybill-degraded");
const SERVED_MODEL: HeaderName = HeaderName::from_static("x-waybill-served-model");
const MISSING: HeaderName = HeaderName::from_static("x-waybill-missing");
const ATTEMPTS: HeaderName = HeaderName::from_static("x-waybill-attempts");

/// Serves one chat request.
pub async fn chat(State(replica): State<Arc<Replica>>, request: Request) -> Response<Body> {
    match admit(&replica, request).await {
        Admission::Refused { ids, refusal } => {
            replica.metrics.refused(refusal.code.as_str());
            refusal.response(&ids)
        }
        Admission::Ended { ids, refusal } => refusal.response(&ids),
        Admission::Admitted(admitted) => {
            let admission::Admitted { record, course, wanted, ids } = *admitted;
            Walk { replica, record, course, wanted }.run(ids).await
        }
    }
}

/// The walk of an admitted request over its candidates; its first attempt's start is written.
pub(crate) struct Walk {
    replica: Arc<Replica>,
    // Large, and kept where they are: what a future holds is copied with it.
    pub(crate) record: Box<Record>,
    course: Box<Course>,
    wanted: Wanted,
}

impl Walk {
    async fn run(mut self, ids: Ids) -> Response<Body> {
        loop {
            let attempted = tokio::select! {
                attempted = self.attempt() => attempted,
                () = self.replica.stopping().cancelled() => return Box::pin(self.stopped(&ids)).await,
            };
            let (observation, heard) = match attempted {
                Attempted::Answered(found) => {
                    self.record.answered(found.usage, found.model.as_deref(), found.heard);
                    self.record.end_acknowledged().await;
                    let headers = self.headers(&found.headers);
                    return respond(found.status, headers, &ids, Body::from(found.body));
                }
                Attempted::Opened(opened) => {
                    self.record.commit();
                    let mut headers = self.headers(&opened.headers);
                    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
                    let status = opened.status;
                    let settings = self.settings();
                    let body = Relay::new(*opened, self, settings).into_body();
                    return respond(status, headers, &ids, body);
                }
                Attempted::Failed(failed) => *failed,
            };
            // Few requests get here; the others shouldn't carry the room for it.
            if let Some(conclusion) = Box::pin(self.after(observation, heard)).await {
                let refusal = self.conclude(conclusion);
                self.record.end_acknowledged().await;
                return refusal.response(&ids);
            }
        }
    }

    /// The replica must stop before there is an answer: it is asked for again at another one.
    async fn stopped(mut self, ids: &Ids) -> Response<Body> {
        if let Attempted::Failed(failed) = local("", Heard::default()) {
            let (observation, heard) = *failed;
            let _over = self.after(observation, heard).await;
        }
        let refusal = Refusal {
            retry_after: Some(Duration::from_secs(1)),
            ..Refusal::saying(PublicCode::GatewayNotReady, "The gateway's replica is stopping; try again.")
        };
        self.record.refused(FinalState::Failed, refusal.status, refusal.code.as_str());
        self.record.end_acknowledged().await;
        refusal.response(ids)
    }

    /// The replica that serves it.
    pub(crate) const fn replica(&self) -> &Arc<Replica> {
        &self.replica
    }

    /// Cancelled when what is still open must end.
    pub(crate) fn stopping(&self) -> &CancellationToken {
        self.replica.stopping()
    }

    /// No further attempt will be made: a stream may last, and what attempts need of its request needn't.
    pub(crate) fn make_no_further_attempt(&mut self) {
        self.wanted.body = Bytes::new();
        self.record.let_request_go();
        self.wanted.schema = None;
        self.wanted.headers = headers::ToUpstream::default();
    }

    /// Makes the attempt that was begun.
    pub(crate) async fn attempt(&self) -> Attempted {
        let Some(running) = self.record.running() else {
            return local("unknown", Heard::default());
        };
        let (entity, wanted) = (&running.entity, &self.wanted);
        let attempted = attempt(Ask {
            dispatcher: &self.replica.dispatcher,
            target: &running.target,
            provider: entity.provider(),
            headers: &wanted.headers,
            body: splice_model(&wanted.body, wanted.model_span.clone(), &running.order.candidate.upstream_model),
            stream: wanted.stream,
            limits: running.order.limits,
            max_answer_bytes: self.replica.limits.max_answer_bytes,
            max_frame_bytes: self.replica.limits.max_frame_bytes,
            schema: self.schema_to_check(&running.order.candidate),
            begun: self.record.began(running),
            clock: &self.replica.clock,
        })
        .await;
        self.replica.headroom.hear(entity.source(), &attempted, &self.replica.clock);
        attempted
    }

    /// What the answer of a later target's model is held against: that it can write by a schema was the first one's
    /// promise.
    fn schema_to_check(&self, candidate: &Candidate) -> Option<Schema> {
        let checks = candidate.target > 0 && self.course.policy().validate_schema;
        self.wanted.schema.as_ref().filter(|_| checks).and_then(|schema| Schema::read(schema))
    }

    /// Decides what follows a failed attempt and begins it; a conclusion if nothing does.
    pub(crate) async fn after(&mut self, observation: Observation, heard: Heard) -> Option<Conclusion> {
        let rule = self.record.failed(observation, heard);
        tracing::debug!(request_id = %self.record.id(), %rule, "attempt failed");
        let step = self.next();
        let mut brought = match &step {
            // The same source goes on with the slot that it has: there may be no second one.
            Step::Dispatch(order) if order.why == Chosen::SameSource => Brought::Slot(self.record.keep_held()),
            Step::Dispatch(_) | Step::Wait { .. } | Step::Queue { .. } | Step::Stop(_) => Brought::Nothing,
        };
        // What follows at once is written together with the end of what failed.
        let (step, next) = match step {
            // What has to wait for a token first doesn't keep the end of what failed from being written.
            Step::Dispatch(order) if self.must_wait(&order) => (Step::Dispatch(order), None),
            Step::Dispatch(order) => match self.ready(*order, std::mem::take(&mut brought)).await {
                Ok(running) => (Step::Dispatch(Box::new(running.order.clone())), Some(running)),
                Err(step) => (step, None),
            },
            other => (other, None),
        };
        let ordered = next.is_some();
        if self.record.after_failure(&step, next) {
            return None;
        }
        let step = if ordered { self.next() } else { step };
        self.proceed(step, brought).await
    }

    /// Whether an order's source has no token just now.
    fn must_wait(&self, order: &Order) -> bool {
        let entity = self.wanted.entity(&self.replica, &self.course.wish().route, &order.candidate);
        entity.is_ok_and(|entity| matches!(self.replica.usable(&entity), Err(Unusable::Token { .. })))
    }

    /// Waits where the loop says so, until an attempt has begun or the loop is over.
    async fn proceed(&mut self, mut step: Step, mut brought: Brought) -> Option<Conclusion> {
        loop {
            step = match step {
                Step::Stop(conclusion) => return Some(conclusion),
                Step::Wait { until, ends, .. } => {
                    // Who must stop waits for nothing more: what failed so far is what there is to tell.
                    if !self.record.wait(until, ends).await {
                        return Some(Conclusion::Exhausted);
                    }
                    self.next()
                }
                Step::Queue { full, until } => {
                    let room = Box::pin(room(&self.replica, &self.wanted, &self.course, &self.record, &full, until));
                    let Some(room) = room.await else { return Some(Conclusion::Exhausted) };
                    match self.taken(room) {
                        (Step::Dispatch(order), brought) => match self.begin(*order, brought).await {
                            Some(step) => step,
                            None => return None,
                        },
                        (step, _) => step,
                    }
                }
                Step::Dispatch(order) => match self.begin(*order, std::mem::take(&mut brought)).await {
                    Some(step) => step,
                    None => return None,
                },
            };
        }
    }

    /// Begins an attempt; what follows if it wasn't begun.
    async fn begin(&mut self, order: Order, brought: Brought) -> Option<Step> {
        match self.ready(order, brought).await {
            Ok(running) => (!self.record.start(running)).then(|| self.next()),
            Err(step) => Some(step),
        }
    }

    /// What follows room that was waited for.
    fn taken(&mut self, room: Room) -> (Step, Brought) {
        let (replica, wanted) = (&self.replica, &self.wanted);
        let route = self.course.wish().route.clone();
        let mut recheck = |candidate: &Candidate| wanted.recheck(replica, &route, candidate).map(|_| ());
        let now = self.record.now();
        room.taken(now, self.record.machine(), &mut self.course, &mut recheck)
    }

    fn next(&mut self) -> Step {
        let now = self.record.now();
        let (replica, wanted) = (&self.replica, &self.wanted);
        let route = self.course.wish().route.clone();
        let mut recheck = |candidate: &Candidate| wanted.recheck(replica, &route, candidate).map(|_| ());
        self.record.machine().next(now, self.course.as_mut(), &mut recheck)
    }

    /// Makes an order ready for its dispatch: its source as it is now, and the permit if it is a probe. An order that
    /// can't be carried out is passed over.
    async fn ready(&mut self, mut order: Order, mut brought: Brought) -> Result<Running, Step> {
        loop {
            let brought = std::mem::take(&mut brought);
            match prepare(&self.replica, &self.wanted, &self.course, &order, brought).await {
                Ok(ready) => {
                    self.course.settle(Some(&order));
                    return Ok(self.record.prepare(order, ready, &mut self.course));
                }
                Err(passed) => {
                    self.record.passed_over(passed);
                    match self.next() {
                        Step::Dispatch(next) => order = *next,
                        other => return Err(other),
                    }
                }
            }
        }
    }

    fn headers(&self, upstream: &HeaderMap) -> HeaderMap {
        let mut headers = headers::inbound(upstream);
        if let Ok(model) = HeaderValue::try_from(self.wanted.client_model.as_str()) {
            headers.insert(ASKED_MODEL, model);
        }
        // The attempt whose answer this is may not have ended yet.
        let attempts = self.record.attempts() + u32::from(self.record.running().is_some());
        headers.insert(ATTEMPTS, HeaderValue::from(attempts));
        self.degraded(&mut headers);
        headers
    }

    /// An answer of a later target says so, and what it lacks.
    fn degraded(&self, headers: &mut HeaderMap) {
        let served = self.record.served_candidate().filter(|candidate| candidate.target > 0);
        let Some(candidate) = served else { return };
        headers.insert(DEGRADED, HeaderValue::from_static("true"));
        if let Ok(model) = HeaderValue::try_from(&*self.course.model_of(candidate)) {
            headers.insert(SERVED_MODEL, model);
        }
        let lacks = self.course.lacks(candidate);
        let lacks: Vec<&str> = lacks.iter().map(|capability| capability.as_str()).collect();
        if let Ok(lacks) = HeaderValue::try_from(lacks.join(","))
            && !lacks.is_empty()
        {
            headers.insert(MISSING, lacks);
        }
    }

    fn settings(&self) -> Settings {
        let running = self.record.running();
        let limits = running.map(|r| r.order.limits);
        Settings {
            provider: running.map_or_else(String::new, |r| r.entity.provider().to_owned()),
            idle: limits.and_then(|l| l.idle).unwrap_or(Duration::from_secs(60)),
            ends: self.record.ends(),
            include_usage: self.wanted.include_usage,
            now_ms: now_ms(&self.replica.clock),
            resumes: self.wanted.stream && self.course.policy().mid_stream == MidStream::VerifiedResume,
        }
    }

    /// The answer of a request that wasn't served; the request is closed with it.
    fn conclude(&mut self, conclusion: Conclusion) -> Refusal {
        let refusal = match conclusion {
            Conclusion::DeadlineExceeded => Refusal::of(PublicCode::DeadlineExceeded),
            Conclusion::Cancelled => Refusal::of(PublicCode::ClientClosedRequest),
            Conclusion::NoCandidate
            | Conclusion::Served
            | Conclusion::Exhausted
            | Conclusion::Refused
            | Conclusion::AttemptsSpent
            | Conclusion::WalkSpent
            | Conclusion::TimeoutsSpent
            | Conclusion::Unrecordable
            | Conclusion::Broken => self.told(answer(self.record.failures())),
        };
        let policy = self.record.failures().iter().any(|f| f.kind == FailureKind::PolicyRefusal);
        let state = if policy { FinalState::Refused } else { FinalState::Failed };
        self.record.refused(state, refusal.status, refusal.code.as_str());
        refusal
    }

    /// Puts the most informative failure into words: a caller's fault keeps the upstream's own, masked.
    fn told(&self, told: Told) -> Refusal {
        let mut refusal = Refusal {
            status: told.status,
            retry_after: told.retry_after,
            no_retry: told.no_retry,
            ..Refusal::of(told.code)
        };
        let evidence = told.from_attempt.and_then(|attempt| self.record.evidence_of(attempt));
        let callers_own = (400..500).contains(&told.status) && told.status != 429;
        if let Some(evidence) = evidence.filter(|_| callers_own) {
            if let Some(message) = &evidence.message {
                refusal.message.clone_from(message);
            }
            refusal.upstream_code.clone_from(&evidence.code);
            refusal.param.clone_from(&evidence.param);
        }
        refusal
    }
}

/// What an order needs to be carried out.
pub(crate) struct Ready {
    /// Its source as it is now, with a credential that holds.
    pub(crate) usable: Usable,
    /// The permit, if it is a probe or tries a limit again.
    pub(crate) permit: Option<Permit>,
    /// What the source's limits gave.
    pub(crate) held: Held,
}

/// What of a source's limits an order comes with.
#[derive(Debug, Default)]
pub(crate) enum Brought {
    /// Nothing.
    #[default]
    Nothing,
    /// All that they ask for: room was waited for.
    Room(Given),
    /// The slot of the attempt before it, at the same source.
    Slot(Held),
}

/// A conversation gives its account a moment, in which a slot that another replica keeps idle is passed on, and so does
/// who comes back to a source; else there may be others.
fn patience(order: &Order) -> Patience {
    let moment = order.candidate.sticky || order.why == Chosen::SameSource;
    if moment { Patience::Within(Duration::from_millis(50)) } else { Patience::None }
}

/// Gets what an order needs to be carried out.
async fn prepare(
    replica: &Replica,
    wanted: &Wanted,
    course: &Course,
    order: &Order,
    brought: Brought,
) -> Result<Ready, Passed> {
    let route = &course.wish().route;
    let entity = wanted.entity(replica, route, &order.candidate)?;
    // Few wait: the others shouldn't be judged twice.
    let (usable, mut waited) = match replica.usable(&entity) {
        Ok(usable) => (usable, false),
        Err(_) => (replica.usable_soon(&entity).await?, true),
    };
    let limited = !usable.entity.limits().is_unlimited() || usable.entity.session_window().is_some();
    let given = match brought {
        Brought::Room(given) => given,
        Brought::Nothing | Brought::Slot(_) if !limited => Given::default(),
        brought => {
            let kept = if let Brought::Slot(held) = brought { held } else { Held::default() };
            let (spender, on_outage) = (wanted.spender(replica), course.policy().on_outage);
            let entered = replica.gates.enter(kept, &usable.entity, spender, on_outage, patience(order));
            waited = true;
            Box::pin(entered).await.inspect_err(|no| replica.metrics.full(no.why))?
        }
    };
    let candidate = &order.candidate;
    let claimed = match (&candidate.probe_of, &candidate.waiting) {
        (Some(opening), _) => Some((opening, candidate.probes, SkipReason::Probing)),
        (None, Some(Waiting { retry_of: Some(block), why, .. })) => Some((block, 1, *why)),
        (None, Some(_) | None) => None,
    };
    let permit = match claimed {
        None => None,
        Some((what, most, taken)) => match Box::pin(replica.probes.claim(candidate.source.source, what, most)).await {
            Claim::Granted(permit) => Some(permit),
            Claim::Taken => return Err(taken.into()),
        },
    };
    // Upkeep or the store was asked meanwhile, and others may have told of more. What was taken goes back with a no.
    if waited || permit.is_some() {
        wanted.recheck(replica, route, candidate)?;
    }
    Ok(Ready { usable, permit, held: given.kept() })
}

/// What waiting for room brought.
pub(crate) enum Room {
    /// Room at this candidate.
    At(Box<Candidate>, Given),
    /// None in time.
    Nowhere,
}

impl Room {
    /// Tells the loop, which says what follows.
    pub(crate) fn taken(
        self,
        now: Duration,
        machine: &mut Machine,
        course: &mut Course,
        recheck: Recheck<'_>,
    ) -> (Step, Brought) {
        match self {
            Self::At(candidate, given) => (machine.freed(now, &candidate, course, recheck), Brought::Room(given)),
            Self::Nowhere => (machine.none_freed(), Brought::Nothing),
        }
    }
}

/// Waits for room at one of those that are full; nothing where the replica must stop: it waits for nothing more.
pub(crate) async fn room(
    replica: &Replica,
    wanted: &Wanted,
    course: &Course,
    record: &Record,
    full: &[Candidate],
    until: Duration,
) -> Option<Room> {
    let route = &course.wish().route;
    let (candidates, entities): (Vec<&Candidate>, Vec<SourceEntity>) =
        full.iter().filter_map(|candidate| Some((candidate, wanted.entity(replica, route, candidate).ok()?))).unzip();
    let wait = until.saturating_sub(record.now());
    let free = replica.gates.first_free(&entities, wanted.spender(replica), course.policy().on_outage, wait);
    let found = replica.stopping().run_until_cancelled(free).await?;
    let at = found.and_then(|(at, given)| Some(((*candidates.get(at)?).clone(), given)));
    Some(at.map_or(Room::Nowhere, |(candidate, given)| Room::At(Box::new(candidate), given)))
}

/// A failure of the gateway's own.
fn local(provider: &str, heard: Heard) -> Attempted {
    Attempted::Failed(Box::new((Observation::new(provider, Ending::Local), heard)))
}
