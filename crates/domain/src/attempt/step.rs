//! What the attempt loop asks its caller to do next.

use std::time::Duration;

use smallvec::SmallVec;
use waybill_event::LogTime;
use waybill_event::selection::{Chosen, Next, Skip};

use super::policy::Limits;
use crate::candidate::Candidate;

/// Candidates passed over.
pub type Skips = SmallVec<[Skip; 4]>;

/// Candidates passed over that are told at once, at most: enough to see why, and an event stays small.
pub(super) const MOST_SKIPS: usize = 32;

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Ask this source.
    Dispatch(Box<Order>),
    /// Wait, then ask [`super::Machine::next`] again.
    Wait {
        /// Until when, since admission.
        until: Duration,
        /// The end of the limit that is waited for: the time of the log may not have come as far by then.
        ends: Option<LogTime>,
        /// What is waited for: the same source, or another one whose limit ends.
        next: Next,
    },
    /// Whoever could serve is full: wait until there is room at one of them, and tell [`super::Machine::freed`] at which,
    /// or [`super::Machine::none_freed`] when it takes longer.
    Queue {
        /// Those that are full.
        full: Vec<Candidate>,
        /// Until when, since admission.
        until: Duration,
    },
    /// The request's loop is over.
    Stop(Conclusion),
}

impl Step {
    /// What the attempt that failed before this step was followed by, as its event records it.
    #[must_use]
    pub fn follows(&self) -> Next {
        match self {
            Self::Dispatch(order) => match order.why {
                Chosen::SameSource => Next::Same,
                Chosen::First
                | Chosen::FailOver
                | Chosen::Probe
                | Chosen::LastResort
                | Chosen::NextTarget
                | Chosen::LeastBad
                | Chosen::LimitEnded
                | Chosen::LimitRetried
                | Chosen::RoomFreed
                | Chosen::Sticky => Next::Elsewhere,
            },
            Self::Wait { next, .. } => *next,
            Self::Queue { .. } => Next::Elsewhere,
            Self::Stop(_) => Next::Stop,
        }
    }
}

/// One dispatch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// The source.
    pub candidate: Candidate,
    /// Number of the attempt within the request, from 1.
    pub attempt: u32,
    /// Why this source.
    pub why: Chosen,
    /// What it may take.
    pub limits: Limits,
    /// Candidates passed over since the attempt before.
    pub skips: Skips,
}

/// Why the loop is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Conclusion {
    /// An attempt succeeded.
    Served,
    /// There was no candidate that could be asked at all.
    NoCandidate,
    /// Every candidate was asked or passed over.
    Exhausted,
    /// The last failure allows no further attempt.
    Refused,
    /// The budget of attempts is spent.
    AttemptsSpent,
    /// The budget of sources is spent.
    WalkSpent,
    /// Timeouts have used up what they may.
    TimeoutsSpent,
    /// Too little of the request's time is left.
    DeadlineExceeded,
    /// It failed after content had gone to the client.
    Broken,
    /// The client went away.
    Cancelled,
    /// A further attempt could not be recorded, so that it wasn't made.
    Unrecordable,
}
