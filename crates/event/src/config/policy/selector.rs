//! Numbers of shared state: what breakers, windows, blocks and factors go by.

use super::layered::layered;

layered! {
    /// When a breaker trips and how it comes back.
    BreakerPolicy, BreakerOverrides {
        /// Length of the window, in milliseconds.
        window_ms: u64,
        /// Outcomes (ok + fail) the window needs before its ratio counts; 0 switches the ratio off.
        min_outcomes: u32,
        /// Failed share above which it trips, in thousandths.
        max_fail_milli: u32,
        /// Failures in a row that trip it; 0 switches this off.
        consecutive_fails: u32,
        /// Time it stays open, in milliseconds.
        open_ms: u64,
        /// Factor on the open time for each further opening in a row, in thousandths (1000 = constant).
        open_growth_milli: u32,
        /// Longest open time, in milliseconds.
        open_max_ms: u64,
        /// Time over which a closed breaker's source gets its weight back, in milliseconds.
        slow_start_ms: u64,
        /// Probes that may run at once in the whole fleet while it is half-open.
        half_open_probes: u32,
        /// Successful probes that close it.
        successes_to_close: u32,
    }
}

layered! {
    /// From which values on a factor of the effective weight falls to its next step.
    FactorBands, FactorBandsOverrides {
        /// Failed and busy share, in thousandths, from which on health is 80, 50, 20 and 1.
        health_milli: [u32; 4],
        /// 95th percentile of response times, in milliseconds, from which on latency is 80, 50 and 20.
        latency_ms: [u32; 3],
        /// In flight over the limit, in thousandths, from which on load is 80, 50, 20 and 1.
        load_milli: [u32; 4],
    }
}

layered! {
    /// What the selector fold goes by.
    SelectorPolicy, SelectorOverrides {
        /// An event this much later in the log than it happened is no evidence, in milliseconds.
        late_after_ms: u64,
        /// Longest block that growth on repetition may make, in milliseconds.
        block_growth_max_ms: u64,
        /// From when on after an upstream last told of its limit one request at a time may try it again before its end,
        /// where nobody else is left, in milliseconds.
        retry_limited_ms: u64,
        ; nested
        /// Breaker of a whole source.
        source_breaker: BreakerPolicy as BreakerOverrides,
        /// Breaker of one model at a source.
        model_breaker: BreakerPolicy as BreakerOverrides,
        /// Steps of the factors.
        bands: FactorBands as FactorBandsOverrides,
    }
}

impl Default for BreakerPolicy {
    fn default() -> Self {
        Self {
            window_ms: 60_000,
            min_outcomes: 10,
            max_fail_milli: 500,
            consecutive_fails: 0,
            open_ms: 30_000,
            open_growth_milli: 1_000,
            open_max_ms: 300_000,
            slow_start_ms: 30_000,
            half_open_probes: 1,
            successes_to_close: 1,
        }
    }
}

impl Default for FactorBands {
    fn default() -> Self {
        Self { health_milli: [10, 50, 100, 300], latency_ms: [500, 2_000, 5_000], load_milli: [400, 600, 750, 900] }
    }
}

impl Default for SelectorPolicy {
    fn default() -> Self {
        let source_breaker = BreakerPolicy::default();
        Self {
            source_breaker,
            model_breaker: BreakerPolicy { min_outcomes: 0, consecutive_fails: 3, ..source_breaker },
            bands: FactorBands::default(),
            late_after_ms: 15_000,
            block_growth_max_ms: 60_000,
            retry_limited_ms: 60_000,
        }
    }
}
