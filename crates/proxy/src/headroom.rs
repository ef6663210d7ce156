//! What upstreams last told this replica of the usage windows of accounts. It is told on to whoever looks, with each beat;
//! no request is decided by it.

use std::collections::{BTreeMap, HashMap};

use parking_lot::RwLock;
use waybill_domain::headroom;
use waybill_event::{LogTime, Source, SourceKind, UsageWindow};

use crate::attempt::Attempted;
use crate::replica::Clock;

/// Most windows that are kept of one account.
const MOST: usize = 16;

/// The windows of each account.
#[derive(Debug, Default)]
pub struct Headroom {
    known: RwLock<HashMap<Source, BTreeMap<String, UsageWindow>>>,
}

impl Headroom {
    /// Takes over what the answer to an attempt tells, at accounts only.
    pub(crate) fn hear(&self, source: Source, attempted: &Attempted, clock: &Clock) {
        if source.kind != SourceKind::Account {
            return;
        }
        let Some(now) = clock() else { return };
        let headers = match attempted {
            Attempted::Answered(answer) => &answer.headers,
            Attempted::Opened(opened) => &opened.headers,
            Attempted::Failed(failed) => return self.take(source, headroom::of_failure(&failed.0), now),
        };
        let text = headers.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
        self.take(source, headroom::read(text, now), now);
    }

    fn take(&self, source: Source, windows: Vec<UsageWindow>, now: LogTime) {
        if windows.is_empty() {
            return;
        }
        let mut known = self.known.write();
        let kept = known.entry(source).or_default();
        kept.retain(|_, window| window.holds(now));
        for window in windows {
            if kept.len() < MOST || kept.contains_key(&window.name) {
                kept.insert(window.name.clone(), window);
            }
        }
    }

    /// What holds now, of each account that anything is known of.
    #[must_use]
    pub fn told(&self, now: LogTime) -> BTreeMap<Source, Vec<UsageWindow>> {
        let known = self.known.read();
        let of = |windows: &BTreeMap<String, UsageWindow>| -> Vec<UsageWindow> {
            windows.values().filter(|window| window.holds(now)).cloned().collect()
        };
        known.iter().map(|(source, windows)| (*source, of(windows))).filter(|(_, told)| !told.is_empty()).collect()
    }

    /// Forgets an account that is gone.
    pub(crate) fn forget(&self, source: Source) {
        self.known.write().remove(&source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(name: &str, used: u32, resets: i64) -> UsageWindow {
        UsageWindow {
            name: name.to_owned(),
            used_permille: Some(used),
            resets_at: Some(LogTime::from_micros(resets)),
            minutes: None,
            exhausted: false,
            seen_at: LogTime::from_micros(1),
        }
    }

    #[test]
    fn the_newest_word_of_each_window_is_told_until_it_begins_anew() {
        let headroom = Headroom::default();
        let (source, at) = ("account:1".parse().unwrap(), LogTime::from_micros);
        headroom.take(source, vec![window("5h", 100, 50), window("7d", 10, 90)], at(1));
        headroom.take(source, vec![window("5h", 200, 50)], at(2));
        headroom.take(source, Vec::new(), at(3));
        let used = |now| -> Vec<(String, Option<u32>)> {
            let told = headroom.told(at(now)).remove(&source).unwrap_or_default();
            told.into_iter().map(|window| (window.name, window.used_permille)).collect()
        };
        assert_eq!(used(4), [("5h".to_owned(), Some(200)), ("7d".to_owned(), Some(10))]);
        assert_eq!(used(60), [("7d".to_owned(), Some(10))]);
        assert_eq!(used(90), []);
        headroom.take(source, (0..40).map(|n| window(&n.to_string(), 1, 900)).collect(), at(100));
        assert_eq!(used(101).len(), MOST);
        headroom.forget(source);
        assert_eq!(used(101), []);
    }
}
