//! What keeps sources out, as this replica sees it at a scrape.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use waybill_domain::selector::SourceState;
use waybill_domain::selector::breaker::Phase;
use waybill_event::LogTime;
use waybill_event::failure::Strength;

use super::Word;
use crate::views::Views;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfBlock {
    strength: Word,
    kind: Word,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfBreaker {
    phase: Word,
}

type Count = Gauge<u64, AtomicU64>;

/// Blocks, breakers and disabled sources.
#[derive(Default)]
pub(super) struct Out {
    blocks: Family<OfBlock, Count>,
    breakers: Family<OfBreaker, Count>,
    disabled: Count,
}

impl Out {
    pub(super) fn register(&self, r: &mut Registry) {
        r.register(
            "blocks_active",
            "Blocks of sources and models that hold, by strength and kind",
            self.blocks.clone(),
        );
        r.register("breakers", "Breakers of sources and models that aren't closed, by phase", self.breakers.clone());
        r.register("sources_disabled", "Sources that a verdict has disabled", self.disabled.clone());
    }

    /// Counts anew.
    pub(super) fn read(&self, views: &Views, now: LogTime) {
        self.blocks.clear();
        self.breakers.clear();
        self.disabled.set(0);
        for (_, view) in views.all() {
            self.count(view.view.lock().state(), now);
        }
    }

    fn count(&self, state: &SourceState, now: LogTime) {
        self.disabled.inc_by(u64::from(state.disabled.is_some()));
        for scope in std::iter::once(&state.whole).chain(state.models.values()) {
            for strength in [Strength::Hard, Strength::Hint, Strength::Soft] {
                if let Some(block) = scope.blocks.active(strength, now) {
                    let of = OfBlock { strength: Word(word(strength)), kind: Word(block.kind.as_str()) };
                    self.blocks.get_or_create(&of).inc();
                }
            }
            let phase = match scope.breaker.phase(now) {
                Phase::Closed => continue,
                Phase::Open(_) => "open",
                Phase::HalfOpen(_) => "half_open",
            };
            self.breakers.get_or_create(&OfBreaker { phase: Word(phase) }).inc();
        }
    }
}

const fn word(strength: Strength) -> &'static str {
    match strength {
        Strength::Soft => "soft",
        Strength::Hint => "hint",
        Strength::Hard => "hard",
    }
}
