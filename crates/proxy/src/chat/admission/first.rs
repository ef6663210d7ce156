//! The first source of an admitted request: asked at once, waited for, or nobody.

use std::sync::Arc;
use std::time::Duration;

use waybill_domain::attempt::{Conclusion, Order, Step};
use waybill_domain::candidate::Candidate;
use waybill_event::LogTime;

use super::Wanted;
use crate::chat::{Brought, Ready, Room, prepare};
use crate::course::Course;
use crate::record::{Record, Running};
use crate::recording::Durability;
use crate::replica::Replica;

/// The first source of a request.
pub(super) enum First {
    /// It can be asked.
    Ready(Box<Running>),
    /// Its limit ends then, and is waited for.
    Later {
        /// Since admission.
        until: Duration,
        /// By the log's time.
        ends: Option<LogTime>,
    },
    /// Those that could serve are full, and room is waited for.
    Full {
        /// They.
        full: Vec<Candidate>,
        /// Since admission.
        until: Duration,
    },
    /// There is none, and why the walk ended.
    Nobody(Conclusion),
}

impl First {
    pub(super) fn take_ready(&mut self) -> Option<Running> {
        match std::mem::replace(self, Self::Nobody(Conclusion::NoCandidate)) {
            Self::Ready(running) => Some(*running),
            later => {
                *self = later;
                None
            }
        }
    }
}

/// Prepares an attempt at the first source that can be asked.
pub(super) async fn choose(replica: &Arc<Replica>, wanted: &Wanted, record: &mut Record, course: &mut Course) -> First {
    first(replica, wanted, record, course, None).await
}

/// The same, once room was waited for: at a source that has it, or where the loop goes on.
pub(super) async fn choose_after(
    room: Option<Room>,
    replica: &Arc<Replica>,
    wanted: &Wanted,
    record: &mut Record,
    course: &mut Course,
) -> First {
    let Some(room) = room else { return First::Nobody(Conclusion::NoCandidate) };
    let route = course.wish().route.clone();
    let mut recheck = |candidate: &Candidate| wanted.recheck(replica, &route, candidate).map(|_| ());
    let now = record.now();
    let taken = room.taken(now, record.machine(), course, &mut recheck);
    first(replica, wanted, record, course, Some(taken)).await
}

async fn first(
    replica: &Arc<Replica>,
    wanted: &Wanted,
    record: &mut Record,
    course: &mut Course,
    taken: Option<(Step, Brought)>,
) -> First {
    let first = first_order(replica, wanted, record, course, taken).await;
    // Who waits for room may yet be asked; the turn of the wheel is nobody's meanwhile.
    course.settle(first.as_ref().ok().map(|(order, _)| order));
    match first {
        Ok((order, ready)) => First::Ready(Box::new(record.prepare(order, ready, course))),
        Err(nobody) => nobody,
    }
}

type Prepared = (Order, Ready);

/// The first order that can be carried out, or what is there instead.
async fn first_order(
    replica: &Arc<Replica>,
    wanted: &Wanted,
    record: &mut Record,
    course: &mut Course,
    mut taken: Option<(Step, Brought)>,
) -> Result<Prepared, First> {
    // The log was waited for since the plan was made.
    let waited = replica.recording.durability == Durability::Acked;
    let route = course.wish().route.clone();
    loop {
        let now = record.now();
        let mut recheck = |candidate: &Candidate| wanted.recheck(replica, &route, candidate).map(|_| ());
        let (step, brought) = match taken.take() {
            Some(taken) => taken,
            None => (record.machine().next(now, course, &mut recheck), Brought::Nothing),
        };
        let order = match step {
            Step::Dispatch(order) => order,
            Step::Wait { until, ends, .. } => return Err(First::Later { until, ends }),
            Step::Queue { full, until } => return Err(First::Full { full, until }),
            Step::Stop(conclusion) => return Err(First::Nobody(conclusion)),
        };
        if waited && let Err(why) = recheck(&order.candidate) {
            record.machine().passed_over(why);
            continue;
        }
        match prepare(replica, wanted, course, &order, brought).await {
            Ok(ready) => return Ok((*order, ready)),
            Err(passed) => record.passed_over(passed),
        }
    }
}
