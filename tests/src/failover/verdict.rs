//! What a run of a scenario earned.

use std::time::Duration;

use serde_json::Value;
use waybill_testkit::upstream::Call;

use super::run::{Called, Seen};
use super::{Mark, Result};

/// The checks that failed so far.
#[derive(Default)]
struct Checks {
    required: Vec<String>,
    advisory: Vec<String>,
}

impl Checks {
    fn required(&mut self, holds: bool, what: impl Into<String>) {
        if !holds {
            self.required.push(what.into());
        }
    }

    fn advisory(&mut self, holds: bool, what: impl Into<String>) {
        if !holds {
            self.advisory.push(what.into());
        }
    }

    fn mark(&self, rescued: bool) -> Mark {
        match (self.required.is_empty(), rescued, self.advisory.is_empty()) {
            (false, ..) => Mark::Fail,
            (true, false, _) => Mark::Safe,
            (true, true, false) => Mark::Partial,
            (true, true, true) => Mark::Pass,
        }
    }
}

/// Times of the primary's calls since the client's call began.
fn since(called: &Called, calls: &[Call]) -> Vec<Duration> {
    calls.iter().map(|call| call.received.saturating_duration_since(called.begun)).collect()
}

fn within(times: &[Duration], limit: Duration) -> usize {
    times.iter().filter(|at| **at <= limit).count()
}

fn usage_is_there(called: &Called, streamed: bool) -> bool {
    let Ok(answer) = &called.answer else { return false };
    if !streamed {
        return answer.json().get("usage").is_some_and(Value::is_object);
    }
    answer.events().iter().any(|data| {
        let chunk: Value = serde_json::from_str(data).unwrap_or_default();
        chunk.get("usage").is_some_and(Value::is_object)
    })
}

fn names_the_fallback(called: &Called) -> bool {
    called.answer.as_ref().is_ok_and(|answer| answer.text().contains("-fb\""))
}

/// The longest that a call may take, in seconds of the scenario.
const fn limit(scenario: u8) -> f64 {
    match scenario {
        1 | 3 | 5 => 20.0,
        6 => 100.0,
        9 => 45.0,
        11 => 8.0,
        _ => 40.0,
    }
}

pub(super) fn of(seen: &Seen) -> Result {
    let (pace, streamed) = (seen.pace, seen.variant.streamed);
    let mut checks = Checks::default();
    let rescued = seen.calls.iter().all(|called| called.is_rescued(streamed));
    let mut longest = Duration::ZERO;
    for called in &seen.calls {
        longest = longest.max(called.took);
        checks.required(called.answer.is_ok(), format!("no clean answer: {:?}", called.answer.as_ref().err()));
        let honest = called.is_rescued(streamed) || !called.claims_success(streamed);
        checks.required(honest, "a truncated or spliced answer is shown as a success");
    }
    // The machine's own slowness is none of the scenario's.
    let most = pace.of(limit(seen.variant.scenario)) + Duration::from_secs(3);
    checks.required(longest <= most, format!("it took {longest:?}, more than {most:?}"));
    let mut rescued = rescued;
    if let [called, ..] = seen.calls.as_slice() {
        rescued = special(seen, called, rescued, &mut checks);
    }
    let mut why = checks.required.clone();
    why.extend(checks.advisory.iter().map(|what| format!("advisory: {what}")));
    if !rescued {
        let answer = seen.calls.first().map(|called| called.answer.as_ref().map(waybill_testkit::Answer::text));
        let end = match answer {
            Some(Ok(text)) => text.trim_end().lines().next_back().unwrap_or_default().to_owned(),
            Some(Err(error)) => error.to_string(),
            None => "no call was made".to_owned(),
        };
        why.push(format!("not rescued; it ended with: {end}"));
    }
    Result { variant: seen.variant, mark: checks.mark(rescued), why, took: longest }
}

/// What only one scenario asks. Gives whether the caller got what it should.
fn special(seen: &Seen, called: &Called, rescued: bool, checks: &mut Checks) -> bool {
    let (pace, streamed) = (seen.pace, seen.variant.streamed);
    let times = since(called, &seen.primary);
    let tries = times.len();
    match seen.variant.scenario {
        1 => {
            checks.required(within(&times, pace.of(1.5)) <= 2, "more than 2 attempts in the first 1.5 s");
            let gap = times.get(1).zip(times.first()).map(|(second, first)| second.saturating_sub(*first));
            checks.advisory(gap.is_some_and(|gap| gap >= pace.of(1.8)), format!("tried again after {gap:?}"));
        }
        2 => {
            checks.required(within(&times, pace.of(3.0)) <= 4, "more than 4 attempts in the first 3 s");
            checks.required(tries <= 6, format!("{tries} attempts"));
        }
        3 => checks.advisory(tries >= 2, "the provider wasn't tried again"),
        4 | 16 => checks.required(tries <= 6, format!("{tries} attempts")),
        6 => checks.advisory(tries == 1, format!("the silent source was tried {tries} times")),
        7 => {
            let most = pace.of(15.0) + Duration::from_secs(1);
            checks.advisory(called.took <= most, format!("it took {:?}", called.took));
        }
        11 => checks.advisory(usage_is_there(called, streamed), "no usage"),
        12 => checks.required(tries == 1, format!("{tries} attempts")),
        13 => {
            checks.required(tries == 1, format!("{tries} attempts"));
            checks.required(seen.fallback.is_empty(), "the fallback was asked");
            let reason = called.answer.as_ref().ok().and_then(waybill_testkit::Answer::code);
            return reason.as_deref() == Some("content_policy_violation");
        }
        14 => {
            let prefilled = seen.fallback.iter().any(|call| {
                call.json()
                    .pointer("/messages")
                    .and_then(Value::as_array)
                    .and_then(|all| all.last().cloned())
                    .is_some_and(|last| last.get("role").and_then(Value::as_str) == Some("assistant"))
            });
            checks.required(!prefilled, "the fallback was asked to go on with an assistant's message");
        }
        15 => recovery(seen, checks),
        _ => {}
    }
    if seen.variant.scenario == 16 {
        checks.required(names_the_fallback(called), "the answer doesn't name the fallback");
        checks.advisory(usage_is_there(called, streamed), "no usage");
    }
    if let Some(afterwards) = &seen.afterwards {
        checks.required(afterwards.is_rescued(streamed), "a call afterwards isn't served");
    }
    rescued
}

/// Back on the primary within 30 s of its recovery.
fn recovery(seen: &Seen, checks: &mut Checks) {
    let Some(healed) = seen.healed else { return checks.required(false, "it was never healed") };
    let back = seen.primary.iter().find(|call| call.received >= healed && call.outcome().is_some());
    let after = back.map(|call| call.received.saturating_duration_since(healed));
    // One call each 4 s looks: the moment is known no finer.
    let most = seen.pace.of(34.0);
    checks.required(after.is_some_and(|after| after <= most), format!("back on the primary after {after:?}"));
}
