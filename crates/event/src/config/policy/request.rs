//! Numbers of requests: budgets, time limits, and how a source is chosen.

use serde::{Deserialize, Serialize};

use super::layered::layered;

/// How a source is chosen among those of one tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Smooth weighted round robin over the effective weight.
    #[default]
    SmoothWrr,
    /// At random, in proportion to the effective weight.
    WeightedRandom,
    /// The least loaded first, by its requests in flight over the whole fleet; equals by the effective weight.
    LeastBusy,
    /// The quickest first, by its 95th percentile of response times; equals by the effective weight.
    LowestLatency,
}

/// Whether a request that was sent wholly and never answered may be sent again: the upstream may have worked on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryUnknown {
    /// Yes; it may be charged twice.
    #[default]
    Always,
    /// No.
    Never,
    /// Only where the provider recognises the repetition.
    IdempotentOnly,
}

/// What is done when no source is available.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnAllUnavailable {
    /// The client is told at once, with the time at which one may return.
    #[default]
    FailFast,
    /// Of the sources whose breaker is open the one that opens soonest is asked all the same.
    LeastBad,
}

/// What is done when a stream breaks off after content has gone to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MidStream {
    /// The client gets the protocol's error event.
    #[default]
    Error,
    /// The request is asked again from its start elsewhere, and goes on where the new answer has repeated exactly what
    /// the client has; on the first difference the client gets the error event. It is billed twice.
    VerifiedResume,
}

/// To which kind of source a request may go on after one of another kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailOverKinds {
    /// Only to the kind of the source that was asked first.
    #[default]
    SameKind,
    /// To any kind.
    Any,
}

/// What holds for a limit while the store that its permits are in can't be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnOutage {
    /// Each replica goes by its share of the limit; one where there are more replicas than the limit.
    #[default]
    Share,
    /// The same, but nothing where the limit is lower than the number of replicas.
    StrictShare,
    /// Nothing is let through but on what a replica holds.
    Closed,
    /// Everything is let through.
    Open,
}

layered! {
    /// How many of the recent requests for a target model may be further tries that strain what is ill already.
    RetryBudgetPolicy, RetryBudgetOverrides {
        /// Share of the recent requests, in percent.
        percent: u32,
        /// Tries per second that are always allowed.
        floor_per_second: u32,
    }
}

layered! {
    /// The budgets of a request. Times are in milliseconds, counted from its admission where nothing else is said.
    RequestPolicy, RequestOverrides {
        /// For the whole request.
        deadline_ms: u64,
        /// Attempts that may have cost an upstream work; tries at the same source aren't counted again.
        max_attempts: u32,
        /// Sources asked in all, those included that refused before any work.
        max_walk: u32,
        /// Further sources asked after the first timeout.
        max_after_timeout: u32,
        /// With less left than this no attempt is begun.
        min_attempt_ms: u64,
        /// Connecting, TLS included.
        connect_ms: u64,
        /// Until the first content of a stream.
        first_content_ms: u64,
        /// Until the whole answer when it isn't streamed.
        whole_ms: u64,
        /// Between two chunks of a stream.
        idle_ms: u64,
        /// The longest wait that an upstream may ask for and that is waited out instead of giving up.
        patience_ms: u64,
        /// What becomes of a request whose fate at the upstream is unknown.
        retry_unknown: RetryUnknown,
        /// How a source is chosen within a tier.
        strategy: Strategy,
        /// Sources of a tier that open breakers may take out, in percent; 100 is all of them.
        max_ejected_percent: u32,
        /// What is done when no source is available.
        on_all_unavailable: OnAllUnavailable,
        /// What is done when a stream breaks off.
        mid_stream: MidStream,
        /// Whether a later target of the route may serve when the first ones can't.
        degrade: bool,
        /// Whether the answer of a later target is checked against the JSON schema that the request asks for. A stream is
        /// held until it is complete for that.
        validate_schema: bool,
        /// How long a request waits when every source that could serve it is merely full. 0 doesn't.
        queue_timeout_ms: u64,
        /// To which kind of source it may go on.
        failover_kinds: FailOverKinds,
        /// What holds for limits while the store of permits can't be reached.
        on_outage: OnOutage,
        ; nested
        /// Further tries at the same or at an ill source.
        retry_budget: RetryBudgetPolicy as RetryBudgetOverrides,
    }
}

impl Default for RetryBudgetPolicy {
    fn default() -> Self {
        Self { percent: 20, floor_per_second: 10 }
    }
}

impl Default for RequestPolicy {
    fn default() -> Self {
        Self {
            deadline_ms: 600_000,
            max_attempts: 3,
            max_walk: 32,
            max_after_timeout: 1,
            min_attempt_ms: 250,
            connect_ms: 5_000,
            first_content_ms: 300_000,
            whole_ms: 600_000,
            idle_ms: 60_000,
            patience_ms: 5_000,
            retry_unknown: RetryUnknown::Always,
            strategy: Strategy::SmoothWrr,
            max_ejected_percent: 100,
            on_all_unavailable: OnAllUnavailable::FailFast,
            mid_stream: MidStream::Error,
            degrade: true,
            validate_schema: true,
            queue_timeout_ms: 0,
            failover_kinds: FailOverKinds::SameKind,
            on_outage: OnOutage::Share,
            retry_budget: RetryBudgetPolicy::default(),
        }
    }
}
