//! Requests that went elsewhere, by reason, and what the reasons suggest.

use std::collections::BTreeMap;

use serde::Serialize;
use waybill_event::RequestId;
use waybill_read_model::read::Move;

/// Newest requests that are named of each reason.
const NAMED: usize = 5;

/// How many requests went elsewhere for one reason. A request that met the reason at two sources counts twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(in crate::api) struct Moved {
    pub(in crate::api) why: String,
    pub(in crate::api) requests: u64,
    /// The newest of them, newest first.
    pub(in crate::api) last: Vec<RequestId>,
}

/// Moves summed up by reason, the most frequent first.
pub(in crate::api) fn by_reason<'a>(moves: impl Iterator<Item = &'a Move>) -> Vec<Moved> {
    let mut sums: BTreeMap<&str, (u64, Vec<RequestId>)> = BTreeMap::new();
    for moved in moves {
        let (requests, last) = sums.entry(&moved.why).or_default();
        *requests += moved.requests;
        last.extend(&moved.last);
    }
    let summed = |(why, (requests, mut last)): (&str, (u64, Vec<RequestId>))| {
        last.sort_by(|a, b| b.cmp(a));
        last.dedup();
        last.truncate(NAMED);
        Moved { why: why.to_owned(), requests, last }
    };
    let mut all: Vec<Moved> = sums.into_iter().map(summed).collect();
    all.sort_by(|a, b| b.requests.cmp(&a.requests).then_with(|| a.why.cmp(&b.why)));
    all
}

/// What the larger part of the moves suggests.
pub(super) fn advice(moved: &[Moved]) -> Option<&'static str> {
    let mut sums: BTreeMap<&'static str, u64> = BTreeMap::new();
    for Moved { why, requests, .. } in moved {
        let suggests = match why.as_str() {
            "concurrency" => "most were moved because accounts were full: add accounts, or raise max_concurrent",
            "rpm" => "most were moved because attempts a minute were spent: add accounts, or raise requests_per_minute",
            "session_window" => "most were moved because sessions had spent their part: raise the session's window",
            "429" | "529" | "423" | "hint_blocked" | "soft_blocked" | "rate_limited" | "window_exhausted"
            | "overloaded" => {
                "most were moved because the upstream limits these accounts: lower requests_per_minute, or add accounts"
            }
            "401" | "403" | "credential_expired" | "no_credential" | "disabled" => {
                "most were moved because logins or accounts are out: look at `waybill why` of those"
            }
            "hard_blocked" => {
                "most were moved because accounts were blocked: `waybill why` tells by what, and until when"
            }
            "5xx" | "source_breaker_open" | "model_breaker_open" | "probing" => {
                "most were moved because the upstream fails"
            }
            _ => continue,
        };
        *sums.entry(suggests).or_default() += requests;
    }
    sums.into_iter().max_by_key(|(_, requests)| *requests).map(|(suggests, _)| suggests)
}

#[cfg(test)]
mod tests {
    use waybill_event::LogTime;

    use super::*;

    fn id(n: u8) -> RequestId {
        RequestId::from_parts(LogTime::from_micros(1), [n; 10])
    }

    fn moved(source: &str, why: &str, requests: u64, last: &[u8]) -> Move {
        let last = last.iter().copied().map(id).collect();
        Move { source: source.parse().unwrap(), group: None, why: why.to_owned(), requests, last }
    }

    #[test]
    fn moves_are_summed_by_reason_and_suggest_what_most_of_them_do() {
        let moves = [
            moved("account:1", "concurrency", 5, &[9, 7]),
            moved("account:2", "concurrency", 4, &[9, 8]),
            moved("account:2", "429", 6, &[3]),
            moved("account:1", "hint_blocked", 2, &[2]),
        ];
        let summed = by_reason(moves.iter());
        let told: Vec<(&str, u64)> = summed.iter().map(|moved| (moved.why.as_str(), moved.requests)).collect();
        assert_eq!(told, [("concurrency", 9), ("429", 6), ("hint_blocked", 2)]);
        assert_eq!(summed[0].last, [id(9), id(8), id(7)]);
        assert!(advice(&summed).unwrap().contains("max_concurrent"));
        let blocked = [moved("account:1", "hard_blocked", 4, &[]), moved("account:1", "5xx", 1, &[])];
        assert!(advice(&by_reason(blocked.iter())).unwrap().contains("waybill why"), "a used-up window is no failure");
        assert_eq!(advice(&[]), None);
        assert_eq!(advice(&by_reason([moved("account:1", "same_account", 1, &[])].iter())), None);
    }
}
