//! Transitions: what the fold did at the event that caused it, with all that its announcement says.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use waybill_event::body::Payload as _;
use waybill_event::control::{BlockLifted, BlockSet, BreakerClosed, BreakerOpened, SourceDisabled, SourceEnabled};
use waybill_event::failure::{Recovery, Strength};
use waybill_event::{
    Body, ConfigPosition, Draft, Event, FailureKind, Identity, LogTime, Mark, Position, ProducerId, Scope, Source,
    SourceRef,
};

/// A transition of one scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transition {
    /// What it covers.
    pub scope: Scope,
    /// The evidence that caused it; an edit has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Mark>,
    /// Where the cause stands in the log; unknown for a replica's own events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<Position>,
    /// When.
    pub t: LogTime,
    /// What became of what.
    pub turn: Turn,
}

/// A transition that the log doesn't tell of yet, with what its announcement says besides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unannounced {
    /// The transition.
    pub transition: Transition,
    /// Version of the source's entity.
    pub rev: u64,
    /// The adopted configuration.
    pub config: ConfigPosition,
}

/// What a transition did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "to", rename_all = "snake_case")]
pub enum Turn {
    /// A breaker opened, or opened again.
    Opened {
        /// Id of the opening.
        opening: Arc<str>,
        /// Good outcomes in the window.
        ok: u32,
        /// Failed outcomes in the window.
        fail: u32,
        /// How many times in a row.
        times: u32,
        /// From when on it is half-open.
        open_until: LogTime,
    },
    /// A breaker closed.
    Closed {
        /// Id of the opening that ended.
        opening: Arc<str>,
    },
    /// A block was set or lengthened.
    Blocked {
        /// Id of the block.
        block: Arc<str>,
        /// How strictly.
        strength: Strength,
        /// Why.
        kind: FailureKind,
        /// Until when.
        until: LogTime,
    },
    /// A block ended before its time.
    Lifted {
        /// Id of the block.
        block: Arc<str>,
        /// How strictly it held.
        strength: Strength,
    },
    /// A verdict disabled the source.
    Disabled {
        /// Id of the disabling.
        disabling: Arc<str>,
        /// Why.
        kind: FailureKind,
        /// Who brings it back.
        recovery: Recovery,
    },
    /// A disabling ended.
    Enabled {
        /// Id of the disabling.
        disabling: Arc<str>,
    },
}

impl Transition {
    /// Id of the announcement: its type and the id that the fold gave the transition, so that whoever announces it
    /// announces the same.
    #[must_use]
    pub fn event_id(&self) -> String {
        match &self.turn {
            Turn::Opened { opening, .. } => format!("breaker_opened:{opening}"),
            Turn::Closed { opening } => format!("breaker_closed:{opening}"),
            Turn::Blocked { block, strength, .. } => format!("block_set:{}:{block}", strength_word(*strength)),
            Turn::Lifted { block, strength } => format!("block_lifted:{}:{block}", strength_word(*strength)),
            Turn::Disabled { disabling, .. } => format!("source_disabled:{disabling}"),
            Turn::Enabled { disabling } => format!("source_enabled:{disabling}"),
        }
    }

    /// The announcement. `rev` is the version of the source's entity, `config` the adopted configuration. `None` where
    /// the cause isn't in the log yet: only what is there is announced.
    #[must_use]
    pub fn announcement(&self, producer: ProducerId, rev: u64, config: ConfigPosition) -> Option<Event> {
        let body = self.body()?;
        let mut draft = Draft::new(self.t, body);
        draft.source = Some(SourceRef { source: self.scope.source, rev });
        draft.config = Some(config);
        Some(Event { identity: Identity::Derived { id: self.event_id(), producer }, draft })
    }

    /// Its announcement's event type.
    #[must_use]
    pub const fn event_type(&self) -> &'static str {
        match &self.turn {
            Turn::Opened { .. } => BreakerOpened::TYPE,
            Turn::Closed { .. } => BreakerClosed::TYPE,
            Turn::Blocked { .. } => BlockSet::TYPE,
            Turn::Lifted { .. } => BlockLifted::TYPE,
            Turn::Disabled { .. } => SourceDisabled::TYPE,
            Turn::Enabled { .. } => SourceEnabled::TYPE,
        }
    }

    /// The source it is about.
    #[must_use]
    pub const fn source(&self) -> Source {
        self.scope.source
    }

    fn body(&self) -> Option<Body> {
        let cause_position = self.position?;
        let (scope, since) = (self.scope.clone(), self.t);
        Some(match &self.turn {
            Turn::Opened { opening, ok, fail, times, open_until } => BreakerOpened {
                opening: opening.to_string(),
                scope,
                cause: self.cause.clone()?,
                cause_position,
                ok: *ok,
                fail: *fail,
                times: *times,
                since,
                open_until: *open_until,
            }
            .into(),
            Turn::Closed { opening } => {
                let (opening, cause) = (opening.to_string(), self.cause.clone());
                BreakerClosed { opening, scope, cause, cause_position, since }.into()
            }
            Turn::Blocked { block, strength, kind, until } => BlockSet {
                block: block.to_string(),
                scope,
                strength: *strength,
                kind: *kind,
                cause: self.cause.clone()?,
                cause_position,
                since,
                until: *until,
            }
            .into(),
            Turn::Lifted { block, strength } => {
                let (block, cause, strength) = (block.to_string(), self.cause.clone(), *strength);
                BlockLifted { block, scope, strength, cause, cause_position, since }.into()
            }
            Turn::Disabled { disabling, kind, recovery } => SourceDisabled {
                disabling: disabling.to_string(),
                scope,
                kind: *kind,
                recovery: *recovery,
                cause: self.cause.clone()?,
                cause_position,
                since,
            }
            .into(),
            Turn::Enabled { disabling } => {
                let (disabling, cause) = (disabling.to_string(), self.cause.clone());
                SourceEnabled { disabling, scope, cause, cause_position, since }.into()
            }
        })
    }
}

const fn strength_word(strength: Strength) -> &'static str {
    match strength {
        Strength::Soft => "soft",
        Strength::Hint => "hint",
        Strength::Hard => "hard",
    }
}
