//! The first source of an admitted request: asked at once, waited for, or nobody.

use std::sync::Arc;
use std::time::Duration;

use waybill_domain::attempt::{Conclusion, Order, Step};
use waybill_domain::candidate::Candidate;
use waybill_event::LogTime;

use super::Wanted;
use crate::chat::prepare;
use crate::course::Course;
use crate::probes::Permit;
use crate::record::{Record, Running};
use crate::recording::Durability;
use crate::replica::{Replica, Usable};

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
    let first = first_order(replica, wanted, record, course).await;
    course.settle(first.as_ref().ok().map(|(order, ..)| order));
    match first {
        Ok((order, usable, permit)) => First::Ready(Box::new(record.prepare(order, usable, permit, course))),
        Err(nobody) => nobody,
    }
}

type Prepared = (Order, Usable, Option<Permit>);

/// The first order that can be carried out, or what is there instead.
async fn first_order(
    replica: &Arc<Replica>,
    wanted: &Wanted,
    record: &mut Record,
    course: &mut Course,
) -> Result<Prepared, First> {
    // The log was waited for since the plan was made.
    let waited = replica.recording.durability == Durability::Acked;
    let route = course.wish().route.clone();
    loop {
        let now = record.now();
        let mut recheck = |candidate: &Candidate| wanted.recheck(replica, &route, candidate).map(|_| ());
        let order = match record.machine().next(now, course, &mut recheck) {
            Step::Dispatch(order) => order,
            Step::Wait { until, ends, .. } => return Err(First::Later { until, ends }),
            Step::Stop(conclusion) => return Err(First::Nobody(conclusion)),
        };
        if waited && let Err(why) = recheck(&order.candidate) {
            record.machine().passed_over(why);
            continue;
        }
        match prepare(replica, wanted, &route, &order).await {
            Ok((usable, permit)) => return Ok((*order, usable, permit)),
            Err(why) => record.machine().passed_over(why),
        }
    }
}
