//! What an operator does by hand: holds breakers open, closes and resets them, lifts blocks.

use std::time::Duration;

use waybill_domain::catalog::Command;
use waybill_domain::catalog::intervention::{self, Act};
use waybill_event::{ChannelId, Scope, Source};

use super::{Admin, MODELS};

impl Admin {
    /// Does something by hand to a channel, or to one of its models.
    pub(super) fn act_by_hand(&mut self, channel: ChannelId) {
        let model = self.chance.yes(0.5).then(|| self.chance.one_of(&MODELS).1.to_owned());
        let scope = Scope { source: Source::from(channel), model };
        let act = match self.chance.below(6) {
            0 => Act::Open { until: None },
            1 => {
                let lasts = self.chance.between(Duration::from_millis(500), Duration::from_millis(6_000));
                Act::Open { until: Some(self.ground.now() + lasts) }
            }
            2 => Act::Close,
            3 => Act::Reset,
            _ => Act::Lift,
        };
        self.ground.trace.note(format_args!("by hand: {act:?} {scope}"));
        self.edit(&Command::Intervention(intervention::Command { scope, act }));
    }

    /// Nothing is held open any more.
    pub(super) fn let_go(&mut self) {
        let held = self.catalog.interventions.iter().filter(|(_, done)| done.held.is_some());
        for scope in held.map(|(scope, _)| scope.clone()).collect::<Vec<_>>() {
            self.edit(&Command::Intervention(intervention::Command { scope, act: Act::Close }));
        }
    }
}
