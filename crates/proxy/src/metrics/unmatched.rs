//! Failures that no rule knows: counted by provider and status, told in the log once a minute at most.

use std::collections::BTreeSet;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

/// Most providers that have a label of their own: their names are free text in channels.
const MAX_PROVIDERS: usize = 64;
/// Longest name of a provider in a label, in bytes.
const MAX_NAME: usize = 48;
/// The log tells of one such failure in this time.
const QUIET: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfShape {
    provider: String,
    status: u16,
}

/// Counters of failures that no rule knows.
#[derive(Debug, Default)]
pub(super) struct Unmatched {
    counters: Family<OfShape, Counter>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    providers: BTreeSet<String>,
    told: Option<Instant>,
}

impl Unmatched {
    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Failures that no rule of verdicts knows, by provider and status";
        registry.register("unmatched_failures", help, self.counters.clone());
    }

    /// Counts one. Says whether the log may tell of it.
    pub(super) fn count(&self, provider: &str, status: u16) -> bool {
        let mut state = self.state.lock();
        let name = provider.get(..provider.floor_char_boundary(MAX_NAME)).unwrap_or_default();
        let known = state.providers.contains(name);
        let provider = if known || state.providers.len() < MAX_PROVIDERS { name } else { "other" };
        if !known && provider == name {
            state.providers.insert(name.to_owned());
        }
        self.counters.get_or_create(&OfShape { provider: provider.to_owned(), status }).inc();
        let now = Instant::now();
        let may = state.told.is_none_or(|told| now.duration_since(told) >= QUIET);
        if may {
            state.told = Some(now);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_log_is_told_once_a_minute_and_labels_are_bounded() {
        let unmatched = Unmatched::default();
        assert!(unmatched.count("acme", 418));
        assert!(!unmatched.count("acme", 418));
        tokio::time::advance(QUIET).await;
        assert!(unmatched.count("acme", 418));
        for n in 0..100 {
            unmatched.count(&format!("p{n}"), 400);
        }
        assert_eq!(unmatched.state.lock().providers.len(), MAX_PROVIDERS);
        let other = OfShape { provider: "other".to_owned(), status: 400 };
        assert_eq!(unmatched.counters.get_or_create(&other).get(), 37);
    }
}
