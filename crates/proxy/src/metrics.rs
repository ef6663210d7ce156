//! The proxy's metrics. Labels are few and bounded: ids of sources and names of models never become one.

mod limits;
mod out;
mod unmatched;

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use waybill_event::selection::SkipReason;
use waybill_event::traffic::FinalState;
use waybill_event::{FailureKind, FallbackReason, LogTime};
use waybill_journal::permits::Counts;
use waybill_journal::sticky::StickyCounts;

use crate::views::Views;
use limits::Limits;
use out::Out;
use unmatched::Unmatched;

/// Upper bounds of the buckets for times, in seconds.
const SECONDS: [f64; 14] = [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 300.0];
/// Upper bounds of the buckets for attempts of one request.
const ATTEMPTS: [f64; 6] = [1.0, 2.0, 3.0, 4.0, 8.0, 16.0];

/// A word from a fixed list, as a label's value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Word(&'static str);

impl EncodeLabelValue for Word {
    fn encode(&self, encoder: &mut prometheus_client::encoding::LabelValueEncoder<'_>) -> std::fmt::Result {
        self.0.encode(encoder)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRequest {
    state: Word,
    stream: Word,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfFailure {
    kind: Word,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfFallback {
    reason: Word,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRefusal {
    code: Word,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfWait {
    at: Word,
}

/// What the log didn't acknowledge in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unacknowledged {
    /// An admission: the request was refused.
    Admission,
    /// An end: the client got the answer all the same.
    End,
}

/// Gauges that are read from elsewhere at each scrape.
#[derive(Debug, Clone, Copy, Default)]
pub struct Readings {
    /// Bytes in the outbox.
    pub outbox_bytes: u64,
    /// Events that the log hasn't acknowledged.
    pub outbox_pending: u64,
    /// Age of the oldest of them, in milliseconds.
    pub outbox_age_ms: u64,
    /// Writes to the outbox that took over a millisecond.
    pub outbox_stalls: u64,
    /// Position in `WB_CONFIG` that is in force.
    pub config_position: u64,
    /// What permits count.
    pub permits: Counts,
    /// What conversations count.
    pub sticky: StickyCounts,
}

/// How a request ended, as the metrics need it.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// Its final state.
    pub state: FinalState,
    /// Whether the client wanted a stream.
    pub stream: bool,
    /// Number of attempts.
    pub attempts: u32,
    /// Why it changed its source, if it did.
    pub fallback: Option<FallbackReason>,
    /// Time from admission to the end.
    pub took: Duration,
}

/// All metrics of one replica.
pub struct Metrics {
    registry: Registry,
    requests: Family<OfRequest, Counter>,
    refusals: Family<OfRefusal, Counter>,
    attempts: Histogram,
    failures: Family<OfFailure, Counter>,
    unmatched: Unmatched,
    fallbacks: Family<OfFallback, Counter>,
    took: Histogram,
    added: Histogram,
    in_flight: Gauge,
    outbox_bytes: Gauge<u64, AtomicU64>,
    outbox_pending: Gauge<u64, AtomicU64>,
    outbox_age: Gauge<f64, AtomicU64>,
    outbox_stalls: Gauge<u64, AtomicU64>,
    config_position: Gauge<u64, AtomicU64>,
    unrecorded: Counter,
    suppressed: Counter,
    degraded: Counter,
    limits: Limits,
    out: Out,
    unacknowledged: Family<OfWait, Counter>,
    token_waits: Counter,
    token_waits_in_vain: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// A fresh registry with everything at zero.
    #[must_use]
    pub fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("waybill"),
            requests: Family::default(),
            refusals: Family::default(),
            attempts: Histogram::new(ATTEMPTS),
            failures: Family::default(),
            unmatched: Unmatched::default(),
            fallbacks: Family::default(),
            took: Histogram::new(SECONDS),
            added: Histogram::new(SECONDS),
            in_flight: Gauge::default(),
            outbox_bytes: Gauge::default(),
            outbox_pending: Gauge::default(),
            outbox_age: Gauge::default(),
            outbox_stalls: Gauge::default(),
            config_position: Gauge::default(),
            unrecorded: Counter::default(),
            suppressed: Counter::default(),
            degraded: Counter::default(),
            limits: Limits::default(),
            out: Out::default(),
            unacknowledged: Family::default(),
            token_waits: Counter::default(),
            token_waits_in_vain: Counter::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let r = &mut self.registry;
        r.register("requests", "Admitted requests that ended, by final state", self.requests.clone());
        r.register("retries_suppressed", "Further tries that the retry budget didn't allow", self.suppressed.clone());
        r.register("degraded", "Answers of a later target than the route's first", self.degraded.clone());
        r.register("token_waits", "Orders that met an account's token that won't do", self.token_waits.clone());
        let in_vain = self.token_waits_in_vain.clone();
        r.register("token_waits_in_vain", "Those of them to which the next token didn't come in time", in_vain);
        self.limits.register(r);
        self.out.register(r);
        r.register("refusals", "Requests refused before admission, by public error code", self.refusals.clone());
        r.register("attempts_per_request", "Dispatches of one request", self.attempts.clone());
        r.register("attempt_failures", "Failed attempts, by kind", self.failures.clone());
        self.unmatched.register(r);
        r.register("fallbacks", "Requests that changed their source, by the first failure", self.fallbacks.clone());
        r.register_with_unit("request_duration", "From admission to the end", Unit::Seconds, self.took.clone());
        r.register_with_unit(
            "added_latency",
            "From the whole request's arrival to the first dispatch",
            Unit::Seconds,
            self.added.clone(),
        );
        r.register("requests_in_flight", "Requests admitted and not ended", self.in_flight.clone());
        r.register_with_unit("outbox", "Size of the outbox", Unit::Bytes, self.outbox_bytes.clone());
        r.register("outbox_pending_events", "Events not yet acknowledged by the log", self.outbox_pending.clone());
        r.register_with_unit(
            "outbox_oldest_age",
            "Age of the oldest event not yet acknowledged",
            Unit::Seconds,
            self.outbox_age.clone(),
        );
        r.register("outbox_stalls", "Writes to the outbox of over a millisecond", self.outbox_stalls.clone());
        r.register("config_position", "Position in WB_CONFIG in force", self.config_position.clone());
        r.register(
            "unrecorded_requests",
            "Requests served without a record: the outbox was full",
            self.unrecorded.clone(),
        );
        r.register(
            "unacknowledged",
            "Admissions and ends that the log didn't acknowledge in time",
            self.unacknowledged.clone(),
        );
    }

    /// A request was admitted, `added` after it had arrived whole.
    pub fn admitted(&self, added: Duration) {
        self.in_flight.inc();
        self.added.observe(added.as_secs_f64());
    }

    /// An admitted request ended.
    pub fn ended(&self, ended: Ended) {
        self.in_flight.dec();
        let stream = Word(if ended.stream { "true" } else { "false" });
        self.requests.get_or_create(&OfRequest { state: Word(ended.state.as_str()), stream }).inc();
        self.attempts.observe(f64::from(ended.attempts));
        self.took.observe(ended.took.as_secs_f64());
        if let Some(reason) = ended.fallback {
            self.fallbacks.get_or_create(&OfFallback { reason: Word(reason.as_str()) }).inc();
        }
    }

    /// An attempt failed.
    pub fn failed(&self, kind: FailureKind) {
        self.failures.get_or_create(&OfFailure { kind: Word(kind.as_str()) }).inc();
    }

    /// An attempt failed in a way that no rule knows. Says whether the log may tell of it: once a minute at most.
    #[must_use]
    pub fn unmatched(&self, provider: &str, status: Option<u16>) -> bool {
        self.unmatched.count(provider, status.unwrap_or_default())
    }

    /// A request was refused before admission, with this public error code.
    pub fn refused(&self, code: &'static str) {
        self.refusals.get_or_create(&OfRefusal { code: Word(code) }).inc();
    }

    /// The retry budget didn't allow a further try.
    pub fn suppressed(&self) {
        self.suppressed.inc();
    }

    /// A candidate was passed over because it is full.
    pub fn full(&self, gate: SkipReason) {
        self.limits.full(gate);
    }

    /// A request was refused because its key, or its user, asks too much.
    pub fn client_limited(&self, gate: SkipReason) {
        self.limits.client(gate);
    }

    /// An order met an account's token that won't do, and the next one came in time or didn't.
    pub fn token_waited(&self, came: bool) {
        self.token_waits.inc();
        if !came {
            self.token_waits_in_vain.inc();
        }
    }

    /// A later target than the route's first has answered.
    pub fn degraded(&self) {
        self.degraded.inc();
    }

    /// A request goes unrecorded.
    pub fn unrecorded(&self) {
        self.unrecorded.inc();
    }

    /// The log didn't acknowledge something in time that the policy waits for.
    pub fn unacknowledged(&self, what: Unacknowledged) {
        let at = Word(match what {
            Unacknowledged::Admission => "admission",
            Unacknowledged::End => "end",
        });
        self.unacknowledged.get_or_create(&OfWait { at }).inc();
    }

    /// Requests admitted and not ended.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        u64::try_from(self.in_flight.get()).unwrap_or(0)
    }

    /// Counts anew what keeps sources out.
    pub fn look(&self, views: &Views, now: LogTime) {
        self.out.read(views, now);
    }

    /// All metrics in the text form of OpenMetrics, with these readings.
    #[must_use]
    pub fn render(&self, readings: Readings) -> String {
        self.outbox_bytes.set(readings.outbox_bytes);
        self.outbox_pending.set(readings.outbox_pending);
        self.outbox_age.set(Duration::from_millis(readings.outbox_age_ms).as_secs_f64());
        self.outbox_stalls.set(readings.outbox_stalls);
        self.config_position.set(readings.config_position);
        self.limits.read(&readings.permits, &readings.sticky);
        let mut text = String::new();
        // Writing into a String doesn't fail.
        let written = encode(&mut text, &self.registry);
        debug_assert!(written.is_ok(), "metrics always render");
        text
    }
}
