//! The factors of the effective weight, each 1 to 100, as integers.

use std::time::Duration;

use waybill_event::LogTime;
use waybill_event::config::{BreakerPolicy, FactorBands};
use waybill_event::traffic::Factors;

use super::state::{ScopeState, SourceState};

/// Below this many samples of a model the source's own are used.
const MODEL_SAMPLES_MIN: usize = 10;

/// Weights above this count as this, so that products stay far from overflow.
pub const WEIGHT_MAX: u32 = 1_000_000;

/// How busy a source is: a recorded input, since it comes from permits and presence, which are no events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Requests in flight, over the whole fleet as far as known.
    pub in_flight: u32,
    /// How many may be; `None` is unlimited.
    pub max_concurrent: Option<u32>,
}

/// A source of which nothing is known weighs its full weight.
pub const FULL: Factors = Factors { health: 100, latency: 100, load: 100, recovery: 100 };

/// The factors of one model at one source, as of `as_of`. Load is the caller's.
#[must_use]
pub fn factors(state: &SourceState, upstream_model: &str, load: Load, as_of: LogTime) -> Factors {
    let model = state.models.get(upstream_model);
    let bands = state.policy.bands;
    let scopes = |f: &dyn Fn(&ScopeState, &BreakerPolicy) -> u8| {
        let whole = f(&state.whole, &state.policy.source_breaker);
        model.map_or(whole, |model| whole.min(f(model, &state.model_breaker(upstream_model))))
    };
    Factors {
        health: scopes(&|scope, _| health(scope, &bands, as_of)),
        latency: latency(p95_ms(state, upstream_model), &bands),
        load: load_factor(load, &bands),
        recovery: scopes(&|scope, policy| recovery(scope, policy, as_of)),
    }
}

/// Weight times all factors.
#[must_use]
pub fn effective(weight: u32, factors: Factors) -> u64 {
    [factors.health, factors.latency, factors.load, factors.recovery]
        .into_iter()
        .fold(u64::from(weight.min(WEIGHT_MAX)), |product, factor| product * u64::from(factor))
}

/// The factor of a value: the one of the highest step that it has reached, else 100.
fn banded<const N: usize>(value: u64, steps: [u32; N], factors: [u8; N]) -> u8 {
    let reached = steps.into_iter().zip(factors).rev().find(|(step, _)| value >= u64::from(*step));
    reached.map_or(100, |(_, factor)| factor)
}

fn health(scope: &ScopeState, bands: &FactorBands, as_of: LogTime) -> u8 {
    let counts = scope.window.totals(as_of);
    let all = u64::from(counts.all());
    if all == 0 {
        return 100;
    }
    let bad = u64::from(counts.fail) + u64::from(counts.busy);
    banded(bad * 1_000 / all, bands.health_milli, [80, 50, 20, 1])
}

/// 95th percentile of the response times of a model, in milliseconds; the source's while the model has few samples.
#[must_use]
pub fn p95_ms(state: &SourceState, upstream_model: &str) -> Option<u32> {
    let own = state.models.get(upstream_model).filter(|model| model.latencies.len() >= MODEL_SAMPLES_MIN);
    own.unwrap_or(&state.whole).latencies.p95()
}

fn latency(p95_ms: Option<u32>, bands: &FactorBands) -> u8 {
    p95_ms.map_or(100, |p95| banded(p95.into(), bands.latency_ms, [80, 50, 20]))
}

/// The factor of a load.
#[must_use]
pub fn load_factor(load: Load, bands: &FactorBands) -> u8 {
    let Some(limit) = load.max_concurrent.filter(|limit| *limit > 0) else { return 100 };
    banded(u64::from(load.in_flight) * 1_000 / u64::from(limit), bands.load_milli, [80, 50, 20, 1])
}

fn recovery(scope: &ScopeState, policy: &BreakerPolicy, as_of: LogTime) -> u8 {
    let Some(closed) = scope.breaker.closed_since() else { return 100 };
    let slow_start = Duration::from_millis(policy.slow_start_ms).as_micros();
    let passed = as_of.since(closed).as_micros();
    if passed >= slow_start {
        return 100;
    }
    u8::try_from(10 + 90 * passed / slow_start).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use waybill_event::ConfigPosition;
    use waybill_event::config::SelectorPolicy;
    use waybill_event::failure::Health;

    use super::*;
    use crate::selector::state::Revisions;

    fn at(seconds: i64) -> LogTime {
        LogTime::from_micros(seconds * 1_000_000)
    }

    fn source() -> SourceState {
        let source = "channel:1".parse().unwrap();
        SourceState::new(source, Revisions::default(), SelectorPolicy::default(), ConfigPosition(0))
    }

    #[test]
    fn health_falls_in_bands_and_the_worse_scope_counts() {
        let check = |ok: u32, fail: u32, busy: u32, expected: u8| {
            let mut state = source();
            for (n, health) in [(ok, Health::Ok), (fail, Health::Fail), (busy, Health::Busy)] {
                (0..n).for_each(|_| state.model_mut("m").window.add(at(10), health));
            }
            assert_eq!(factors(&state, "m", Load::default(), at(10)).health, expected, "{ok}/{fail}/{busy}");
            assert_eq!(factors(&state, "other", Load::default(), at(10)).health, 100);
            state.whole.window.add(at(10), Health::Fail);
            assert_eq!(factors(&state, "m", Load::default(), at(10)).health, 1);
        };
        check(0, 0, 0, 100);
        check(200, 1, 0, 100);
        check(99, 1, 0, 80);
        check(95, 5, 0, 50);
        check(90, 5, 5, 20);
        check(70, 0, 30, 1);
    }

    #[test]
    fn latency_takes_the_models_own_samples_from_ten_on() {
        let check = |of_model: usize, ms: u32, of_source: u32, expected: u8| {
            let mut state = source();
            state.whole.latencies.push(of_source);
            (0..of_model).for_each(|_| state.model_mut("m").latencies.push(ms));
            assert_eq!(factors(&state, "m", Load::default(), at(1)).latency, expected, "{of_model} of {ms}");
        };
        check(9, 9_000, 10, 100);
        check(10, 499, 9_000, 100);
        check(10, 500, 10, 80);
        check(10, 2_000, 10, 50);
        check(10, 5_000, 10, 20);
    }

    #[test]
    fn load_is_a_share_of_the_limit() {
        let check = |in_flight, max_concurrent, expected| {
            assert_eq!(
                load_factor(Load { in_flight, max_concurrent }, &FactorBands::default()),
                expected,
                "{in_flight}"
            );
        };
        check(1_000, None, 100);
        check(39, Some(100), 100);
        check(40, Some(100), 80);
        check(60, Some(100), 50);
        check(75, Some(100), 20);
        check(90, Some(100), 1);
    }

    #[test]
    fn the_weight_comes_back_in_a_straight_line() {
        let check = |seconds, expected| {
            let mut state = source();
            state.whole.breaker.close(at(100));
            assert_eq!(factors(&state, "m", Load::default(), at(seconds)).recovery, expected, "{seconds}");
        };
        check(100, 10);
        check(115, 55);
        check(129, 97);
        check(130, 100);
    }

    #[test]
    fn weights_keep_their_ratio_when_all_factors_are_at_worst() {
        let worst = Factors { health: 1, latency: 20, load: 1, recovery: 10 };
        assert_eq!(effective(2, worst), 2 * effective(1, worst));
        assert_eq!(effective(5, FULL), 500_000_000);
        assert!(effective(u32::MAX, FULL) <= 100_000_000_000_000);
    }
}
