//! What was called, when, and how it ended.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;

/// Calls kept; older ones are forgotten, their numbers are not given again.
pub const MAX_CALLS: usize = 20_000;

/// One call.
#[derive(Debug, Clone)]
pub struct Call {
    /// Number over all sources, from 1.
    pub number: u64,
    /// Source that was called.
    pub source: String,
    /// Number within its source since the script was set, from 0.
    pub turn: usize,
    /// Method.
    pub method: String,
    /// Path as it was sent, with the query.
    pub path: String,
    /// Headers in their order, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Bytes,
    /// When its head was read.
    pub received: Instant,
    /// When the head of the reply was sent.
    pub answered: Option<Instant>,
    /// How and when it ended; `None` while it runs.
    pub ended: Option<(Outcome, Instant)>,
    /// Bytes of the reply's body that were sent, as pieces and without their framing.
    pub sent_bytes: usize,
}

impl Call {
    /// The value of a header; `name` in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON; null when it isn't.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// How it ended.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        self.ended.map(|(outcome, _)| outcome)
    }

    /// When the client went away before the reply was complete.
    #[must_use]
    pub fn client_gone(&self) -> Option<Instant> {
        self.ended.and_then(|(outcome, at)| (outcome == Outcome::ClientGone).then_some(at))
    }
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The whole reply was sent.
    Sent,
    /// The script closed the connection.
    Cut,
    /// The script reset the connection.
    Reset,
    /// The client went away first.
    ClientGone,
    /// The server was stopped, or its source closed, first.
    Stopped,
}

/// How many calls a source has at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct InFlight {
    now: usize,
    most: usize,
}

/// The log of calls.
#[derive(Debug, Default)]
pub(crate) struct Calls(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    calls: VecDeque<Call>,
    in_flight: BTreeMap<String, InFlight>,
}

impl Calls {
    /// Notes a call; returns its number.
    pub(crate) fn begin(&self, mut call: Call) -> u64 {
        let mut inner = self.0.lock();
        inner.next += 1;
        call.number = inner.next;
        let in_flight = inner.in_flight.entry(call.source.clone()).or_default();
        in_flight.now += 1;
        in_flight.most = in_flight.most.max(in_flight.now);
        if inner.calls.len() == MAX_CALLS {
            inner.calls.pop_front();
        }
        inner.calls.push_back(call);
        inner.next
    }

    /// Changes a call that is still kept.
    pub(crate) fn note(&self, number: u64, change: impl FnOnce(&mut Call)) {
        let mut inner = self.0.lock();
        if let Some(call) = inner.calls.iter_mut().rev().find(|call| call.number == number) {
            change(call);
        }
    }

    /// Notes a call's end.
    pub(crate) fn end(&self, number: u64, source: &str, outcome: Outcome) {
        self.note(number, |call| call.ended = Some((outcome, Instant::now())));
        if let Some(in_flight) = self.0.lock().in_flight.get_mut(source) {
            in_flight.now = in_flight.now.saturating_sub(1);
        }
    }

    pub(crate) fn all(&self) -> Vec<Call> {
        self.0.lock().calls.iter().cloned().collect()
    }

    /// Takes the calls that have ended out; those that run stay.
    pub(crate) fn take(&self) -> Vec<Call> {
        let mut inner = self.0.lock();
        let (ended, running): (VecDeque<Call>, _) =
            std::mem::take(&mut inner.calls).into_iter().partition(|call| call.ended.is_some());
        inner.calls = running;
        Vec::from(ended)
    }

    pub(crate) fn of(&self, source: &str) -> Vec<Call> {
        self.0.lock().calls.iter().filter(|call| call.source == source).cloned().collect()
    }

    pub(crate) fn in_flight(&self, source: &str) -> usize {
        self.0.lock().in_flight.get(source).copied().unwrap_or_default().now
    }

    pub(crate) fn most_in_flight(&self, source: &str) -> usize {
        self.0.lock().in_flight.get(source).copied().unwrap_or_default().most
    }

    /// Forgets the calls and the peaks; calls that run stay counted as running.
    pub(crate) fn forget(&self) {
        let mut inner = self.0.lock();
        inner.calls.clear();
        for in_flight in inner.in_flight.values_mut() {
            in_flight.most = in_flight.now;
        }
    }
}
