//! Whether every history is true: what the client saw and what the upstream saw is what it says.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use waybill_testkit::upstream::{Call, Outcome};
use waybill_testkit::{Saw, Seen};

use super::rows::{History, histories};
use super::{Case, Ground, mix};

/// How long a client's connection may take to learn that its proxy is dead: what is sent on it until then is lost with
/// the proxy, as what was open at its death.
const NOT_HEARD_YET: Duration = Duration::from_millis(500);
/// How many violations of a kind are told one by one.
const TOLD: usize = 5;

/// A proxy that was killed.
#[derive(Debug, Clone)]
pub struct Killed {
    /// Its name.
    pub proxy: String,
    /// When.
    pub at: Instant,
}

/// Everything that is known of one request.
struct One<'a> {
    seen: &'a Seen,
    calls: &'a [&'a Call],
    history: Option<&'a History>,
    /// Whether a proxy was killed that may have held it.
    orphan: bool,
}

/// What a case came to at its two ends.
#[derive(Default)]
pub struct Sides {
    /// What clients saw.
    pub seen: Vec<Seen>,
    /// Calls that the upstream saw, as far as they were taken before.
    pub calls: Vec<Call>,
    /// Proxies that were killed meanwhile.
    pub killed: Vec<Killed>,
}

/// Compares what clients saw, what the upstream saw and what the histories say; `prefix` begins the names of the case's
/// requests.
pub async fn check(ground: &Ground, case: &mut Case, prefix: &str, sides: Sides) {
    let Sides { seen, mut calls, killed } = sides;
    calls.extend(ground.calls());
    let mut by_name: BTreeMap<String, Vec<&Call>> = BTreeMap::new();
    for call in &calls {
        let name = call.json().get("user").and_then(|user| user.as_str()).unwrap_or_default().to_owned();
        by_name.entry(name).or_default().push(call);
    }
    let histories = histories(ground, prefix).await;
    let names: BTreeSet<&str> = seen.iter().map(|seen| seen.asked.name.as_str()).collect();
    let mut found = Found::default();
    for name in by_name.keys().chain(histories.keys()).filter(|name| !names.contains(name.as_str())) {
        found.wrong("nobody asked for it", name);
    }
    for seen in &seen {
        let name = &seen.asked.name;
        let calls = by_name.get(name).map(Vec::as_slice).unwrap_or_default();
        let own = histories.get(name).map(Vec::as_slice).unwrap_or_default();
        if own.len() > 1 {
            found.wrong("it has more than one history", &format!("{seen:?} {own:?}"));
        }
        let history = own.first();
        let holder = seen.backend.clone().or_else(|| history.map(|history| history.replica.clone()));
        let open_at = |at: Instant| seen.began <= at + NOT_HEARD_YET && seen.ended >= at;
        let orphan = killed.iter().any(|one| Some(&one.proxy) == holder.as_ref() && open_at(one.at));
        let one = One { seen, calls, history, orphan };
        if let Err(why) = one.check() {
            found.wrong(why, &format!("{seen:?}; {history:?}; calls {:?}", told(calls)));
        }
        one.count(case, &mut found);
    }
    case.requests += seen.len();
    case.calls += calls.len();
    case.violations.extend(found.violations());
    case.errors.extend(found.errors.into_iter().map(|(what, times)| format!("{times} × {what}")));
}

fn told(calls: &[&Call]) -> Vec<(String, Option<Outcome>, usize)> {
    calls.iter().map(|call| (call.source.clone(), call.outcome(), call.sent_bytes)).collect()
}

/// What was found, by what it is.
#[derive(Default)]
struct Found {
    wrong: BTreeMap<String, Vec<String>>,
    errors: BTreeMap<String, usize>,
}

impl Found {
    fn wrong(&mut self, what: &str, detail: &str) {
        self.wrong.entry(what.to_owned()).or_default().push(detail.to_owned());
    }

    fn violations(&self) -> Vec<String> {
        let told = self.wrong.iter().map(|(what, details)| {
            let shown: Vec<&str> = details.iter().take(TOLD).map(String::as_str).collect();
            format!("{what} ({} times): {}", details.len(), shown.join("\n    "))
        });
        told.collect()
    }
}

impl One<'_> {
    /// What the client saw may be; the history says the same, and names the sources that the upstream was asked as.
    fn check(&self) -> Result<(), &'static str> {
        self.seen_is_allowed()?;
        let Some(history) = self.history else {
            return match (self.calls.is_empty(), &self.seen.saw) {
                (false, _) => Err("the upstream saw it, and it has no history"),
                (true, Saw::Whole | Saw::Error { .. } | Saw::Interrupted) => Err("it was answered and has no history"),
                (true, Saw::Broken { .. } | Saw::Left | Saw::Nobody) => Ok(()),
            };
        };
        if self.seen.request.as_ref().is_some_and(|id| *id != history.request) {
            return Err("its history has another id than the client was told");
        }
        self.end_is_true(history)?;
        self.attempts_are_true(history)
    }

    fn seen_is_allowed(&self) -> Result<(), &'static str> {
        let asked = &self.seen.asked;
        match &self.seen.saw {
            Saw::Whole => Ok(()),
            Saw::Left if asked.patience.is_some() => Ok(()),
            Saw::Error { status: 500.., .. } if matches!(asked.model.as_str(), mix::BROKEN | mix::CUT) => Ok(()),
            Saw::Interrupted if asked.model == mix::CUT => Ok(()),
            Saw::Broken { .. } if self.orphan => Ok(()),
            Saw::Left | Saw::Error { .. } | Saw::Interrupted | Saw::Broken { .. } | Saw::Nobody => {
                Err("its client saw an error that nobody meant")
            }
        }
    }

    fn end_is_true(&self, history: &History) -> Result<(), &'static str> {
        let state = history.state.as_str();
        match (&self.seen.saw, state) {
            (_, "open") => Err("its history has no end"),
            (Saw::Whole, "succeeded") => self.was_served(history),
            (Saw::Whole, _) => Err("the client got its answer, and the history says something else"),
            (Saw::Error { status, .. }, "failed" | "refused") if history.status == Some(i32::from(*status)) => Ok(()),
            (Saw::Error { .. }, _) => Err("the client got an error, and the history says something else"),
            (Saw::Interrupted, "partial") => Ok(()),
            (Saw::Interrupted, _) => Err("the client's stream was interrupted, and the history says something else"),
            // Its end was written before its last byte, which the client didn't see any more.
            (Saw::Left | Saw::Broken { .. }, "succeeded") => self.was_served(history),
            (Saw::Left | Saw::Broken { .. }, "owner_lost") if self.orphan => Ok(()),
            (Saw::Left, "cancelled") => Ok(()),
            (Saw::Broken { .. }, "cancelled" | "partial" | "failed") if self.orphan => Ok(()),
            (Saw::Left | Saw::Broken { .. } | Saw::Nobody, _) => Err("its history says what can't have been"),
        }
    }

    fn was_served(&self, history: &History) -> Result<(), &'static str> {
        match self.calls.last() {
            Some(call) if call.outcome() != Some(Outcome::Sent) => {
                Err("its history says success, the upstream doesn't")
            }
            Some(call) if history.served.as_deref() != Some(call.source.as_str()) => Err("another source served it"),
            Some(_) => Ok(()),
            None => Err("its history says success, and the upstream never saw it"),
        }
    }

    /// An attempt is written before it is made: of one that was cut short there, the upstream saw nothing.
    fn attempts_are_true(&self, history: &History) -> Result<(), &'static str> {
        let called: Vec<&str> = self.calls.iter().map(|call| call.source.as_str()).collect();
        let asked: Vec<&str> = history.asked.iter().map(String::as_str).collect();
        let cut_short = self.orphan || history.state == "cancelled";
        if asked == called || (cut_short && asked.len() == called.len() + 1 && asked.starts_with(&called)) {
            Ok(())
        } else {
            Err("its attempts aren't the calls that the upstream saw")
        }
    }

    fn count(&self, case: &mut Case, found: &mut Found) {
        case.redispatched += self.seen.refused;
        case.lost += usize::from(self.history.is_some_and(|history| history.state == "owner_lost"));
        match &self.seen.saw {
            Saw::Whole => case.whole += 1,
            Saw::Broken { why } => {
                let held = if self.orphan { "held by a killed proxy" } else { "UNEXPECTED" };
                *found.errors.entry(format!("{held}: {why}")).or_default() += 1;
            }
            Saw::Nobody => *found.errors.entry("UNEXPECTED: no proxy is ready".to_owned()).or_default() += 1,
            Saw::Left | Saw::Error { .. } | Saw::Interrupted if self.seen_is_allowed().is_ok() => case.meant += 1,
            other => *found.errors.entry(format!("UNEXPECTED: {other:?}")).or_default() += 1,
        }
    }
}

#[cfg(test)]
mod tests;
