//! The state of one source with its models: the value that the selector's fold publishes, and that each replica's view
//! is made of.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use waybill_event::config::{BreakerPolicy, HeldOpen, Intervention, SelectorPolicy};
use waybill_event::failure::Recovery;
use waybill_event::{ConfigPosition, FailureKind, LogTime, Mark, Position, Scope, Source};

use super::blocks::Blocks;
use super::breaker::Breaker;
use super::latencies::Latencies;
use super::transition::{Transition, Turn};
use super::window::Window;

/// Models of one source that are remembered; the one unheard of for longest goes first.
pub const MODELS_MAX: usize = 256;

/// Credential and base URL that evidence was made with. Both only rise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
pub struct Revisions {
    /// Revision of the credential; 0 is none.
    pub credential: u64,
    /// Revision of the base URL.
    pub base_url: u64,
}

impl Revisions {
    /// Whether one of the two is older than in `other`.
    #[must_use]
    pub const fn older_than(self, other: Self) -> bool {
        self.credential < other.credential || self.base_url < other.base_url
    }

    /// The newer of each.
    #[must_use]
    pub fn newest(self, other: Self) -> Self {
        Self { credential: self.credential.max(other.credential), base_url: self.base_url.max(other.base_url) }
    }
}

/// Whether a failure says that a token was refused, so that it is over with the next one.
#[must_use]
pub const fn is_of_token(kind: FailureKind) -> bool {
    matches!(kind, FailureKind::AuthInvalid | FailureKind::AuthRefreshable)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What is known of one scope: a whole source, or one model of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopeState {
    /// Outcomes of the last while.
    pub window: Window,
    /// The breaker.
    pub breaker: Breaker,
    /// The last response times.
    #[serde(default, skip_serializing_if = "Latencies::is_empty")]
    pub latencies: Latencies,
    /// The blocks.
    #[serde(default)]
    pub blocks: Blocks,
    /// Time of the newest evidence.
    pub heard: LogTime,
}

impl ScopeState {
    /// Nothing known yet.
    #[must_use]
    pub fn new(policy: &BreakerPolicy) -> Self {
        Self {
            window: Window::new(policy.window_ms),
            breaker: Breaker::default(),
            latencies: Latencies::default(),
            blocks: Blocks::default(),
            heard: LogTime::default(),
        }
    }

    /// Closes the breaker and clears its window, lifts the blocks, as an operator wishes; gives what that ended.
    fn set_right(&mut self, reset: bool, lifted: bool, t: LogTime) -> Vec<Turn> {
        let mut ended = Vec::new();
        if reset {
            self.window.clear();
            ended.extend(self.breaker.reset(t).map(|opening| Turn::Closed { opening }));
        }
        if lifted {
            let blocks = self.blocks.lift_all(t).into_iter();
            ended.extend(blocks.map(|(block, strength)| Turn::Lifted { block, strength }));
        }
        ended
    }

    /// Forgets what was made with older credentials or base URLs than these; counts of mixed origin go wholly.
    fn clear_older(&mut self, revisions: Revisions) {
        self.window.clear();
        self.latencies = Latencies::default();
        self.blocks.clear_older(revisions);
        if self.breaker.opening().is_none_or(|opening| opening.revisions.older_than(revisions)) {
            self.breaker = Breaker::default();
        }
    }
}

/// What operators have done by hand to one scope, as adopted. Numbers only rise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
pub struct ByHand {
    /// Whether its breaker is held open, and until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldOpen>,
    /// Number of the last reset of its breaker.
    pub reset: u64,
    /// Number of the last lifting of its blocks.
    pub lifted: u64,
}

impl From<&Intervention> for ByHand {
    fn from(done: &Intervention) -> Self {
        Self { held: done.held, reset: done.reset, lifted: done.lifted }
    }
}

impl ByHand {
    /// Whether it is held open as of `as_of`.
    #[must_use]
    pub fn holds(&self, as_of: LogTime) -> Option<HeldOpen> {
        self.held.filter(|held| held.until.is_none_or(|until| as_of < until))
    }

    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// A verdict's disabling of a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disabled {
    /// `<scope>@<mark of the outcome that caused it>`.
    pub id: Arc<str>,
    /// Why.
    pub kind: FailureKind,
    /// Who brings it back.
    pub recovery: Recovery,
    /// Since when.
    pub since: LogTime,
    /// What the evidence was made with.
    pub revisions: Revisions,
}

/// The numbers in force for a source.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Numbers {
    /// Those of the source, and of its models as far as they have none of their own.
    pub policy: SelectorPolicy,
    /// Breakers of models that have numbers of their own, by upstream name.
    pub model_breakers: BTreeMap<String, BreakerPolicy>,
}

impl From<SelectorPolicy> for Numbers {
    fn from(policy: SelectorPolicy) -> Self {
        Self { policy, model_breakers: BTreeMap::new() }
    }
}

/// The state of one source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceState {
    /// Form of this value.
    pub v: u16,
    /// The source.
    pub source: Source,
    /// Version of its entity, as adopted; 0 before it is.
    pub rev: u64,
    /// The configuration it was folded under.
    pub config: ConfigPosition,
    /// Credential and base URL, as adopted.
    pub revisions: Revisions,
    /// Revision of the newest tokens that an account was refreshed to; 0 where it never was.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub token: u64,
    /// The numbers it was folded under.
    pub policy: SelectorPolicy,
    /// Breakers of models that have numbers of their own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub model_breakers: BTreeMap<String, BreakerPolicy>,
    /// The greatest time of its evidence.
    pub clock: LogTime,
    /// Position up to which it is folded.
    pub position: Position,
    /// Low-water mark of each live producer at that position: its events up to there are folded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<Mark>,
    /// Epoch of the leader that wrote it.
    pub epoch: u64,
    /// What is known of the source as a whole.
    pub whole: ScopeState,
    /// What is known of its models, by upstream name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub models: BTreeMap<String, ScopeState>,
    /// Disabled by a verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<Disabled>,
    /// What operators did by hand to the source as a whole, as adopted.
    #[serde(default, skip_serializing_if = "ByHand::is_nothing")]
    pub whole_by_hand: ByHand,
    /// What operators did by hand to its models, as adopted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub models_by_hand: BTreeMap<String, ByHand>,
    /// Transitions whose announcement wasn't in the log yet when this value was written: a new leader announces them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unannounced: Vec<Transition>,
}

impl SourceState {
    /// Newest form of the value.
    pub const VERSION: u16 = 1;

    /// A source of which nothing is known yet.
    #[must_use]
    pub fn new(source: Source, revisions: Revisions, numbers: impl Into<Numbers>, config: ConfigPosition) -> Self {
        let Numbers { policy, model_breakers } = numbers.into();
        Self {
            v: Self::VERSION,
            source,
            rev: 0,
            config,
            revisions,
            token: 0,
            policy,
            model_breakers,
            clock: LogTime::default(),
            position: Position::default(),
            marks: Vec::new(),
            epoch: 0,
            whole: ScopeState::new(&policy.source_breaker),
            models: BTreeMap::new(),
            disabled: None,
            whole_by_hand: ByHand::default(),
            models_by_hand: BTreeMap::new(),
            unannounced: Vec::new(),
        }
    }

    /// The scope of the whole source.
    #[must_use]
    pub const fn scope(&self) -> Scope {
        Scope { source: self.source, model: None }
    }

    /// The scope of one of its models.
    #[must_use]
    pub fn model_scope(&self, upstream_model: &str) -> Scope {
        Scope { source: self.source, model: Some(upstream_model.to_owned()) }
    }

    /// Takes over newer revisions: what was made with older ones is forgotten. Says whether they were newer. A source
    /// that no configuration was adopted for yet has nothing to forget.
    pub fn adopt_revisions(&mut self, revisions: Revisions) -> bool {
        if !self.revisions.older_than(revisions) {
            return false;
        }
        self.revisions = self.revisions.newest(revisions);
        if self.rev == 0 {
            return true;
        }
        self.whole.clear_older(self.revisions);
        self.models.values_mut().for_each(|model| model.clear_older(revisions));
        if self.disabled.as_ref().is_some_and(|disabled| disabled.revisions.older_than(revisions)) {
            self.disabled = None;
        }
        true
    }

    /// Takes over that the tokens were refreshed to this revision at `t`: what says that older ones were refused is over,
    /// and given. All else stays: it is about the account, not about one token.
    pub fn adopt_token(&mut self, credential: u64, t: LogTime) -> Vec<(Scope, Turn)> {
        if credential <= self.token {
            return Vec::new();
        }
        self.token = credential;
        let source = self.source;
        let mut ended = Vec::new();
        let models = self.models.iter_mut().map(|(name, state)| (Some(name.as_str()), state));
        for (name, state) in std::iter::once((None, &mut self.whole)).chain(models) {
            let scope = Scope { source, model: name.map(str::to_owned) };
            let lifted = state.blocks.lift_of_token(credential, t).into_iter();
            ended.extend(lifted.map(|(block, strength)| (scope.clone(), Turn::Lifted { block, strength })));
        }
        let over = |held: &Disabled| is_of_token(held.kind) && held.revisions.credential < credential;
        if self.disabled.as_ref().is_some_and(over)
            && let Some(disabled) = self.disabled.take()
        {
            ended.push((self.scope(), Turn::Enabled { disabling: disabled.id }));
        }
        ended
    }

    /// The numbers of a model's breaker.
    #[must_use]
    pub fn model_breaker(&self, upstream_model: &str) -> BreakerPolicy {
        self.model_breakers.get(upstream_model).copied().unwrap_or(self.policy.model_breaker)
    }

    /// Takes over other numbers. What is open or blocked stays so until its end.
    pub fn adopt_policy(&mut self, numbers: Numbers) -> bool {
        let Numbers { policy, model_breakers } = numbers;
        if self.policy == policy && self.model_breakers == model_breakers {
            return false;
        }
        self.policy = policy;
        self.model_breakers = model_breakers;
        self.whole.window.set_length(policy.source_breaker.window_ms);
        for (name, model) in &mut self.models {
            let own = self.model_breakers.get(name).unwrap_or(&policy.model_breaker);
            model.window.set_length(own.window_ms);
        }
        true
    }

    /// What operators did by hand to the whole or to one of its models, as adopted.
    #[must_use]
    pub fn by_hand(&self, model: Option<&str>) -> ByHand {
        match model {
            None => self.whole_by_hand,
            Some(model) => self.models_by_hand.get(model).copied().unwrap_or_default(),
        }
    }

    /// Takes over what an operator did by hand at `t`; gives what that ended. What is done to the whole ends what holds its
    /// models too: whoever asks for a source to be put right means all of it.
    pub fn adopt_by_hand(&mut self, model: Option<&str>, done: ByHand, t: LogTime) -> Vec<(Scope, Turn)> {
        let before = self.by_hand(model);
        match model {
            None => self.whole_by_hand = done,
            Some(model) => {
                self.models_by_hand.insert(model.to_owned(), done);
            }
        }
        let (source, reset, lifted) = (self.source, before.reset < done.reset, before.lifted < done.lifted);
        let mut ended = Vec::new();
        let whole = model.is_none().then_some((None, &mut self.whole));
        let models = self.models.iter_mut().map(|(name, state)| (Some(name.as_str()), state));
        let models = models.filter(|(name, _)| model.is_none() || *name == model);
        for (name, state) in whole.into_iter().chain(models) {
            let scope = Scope { source, model: name.map(str::to_owned) };
            let turns = state.set_right(reset, lifted, t).into_iter().map(|turn| (scope.clone(), turn));
            ended.extend(turns);
        }
        if model.is_none() && lifted {
            let enabled = self.disabled.take().map(|disabled| Turn::Enabled { disabling: disabled.id });
            ended.extend(enabled.map(|turn| (Scope { source, model: None }, turn)));
        }
        ended
    }

    /// The low-water mark that the value states for a producer's boot.
    #[must_use]
    pub fn low_water(&self, own: &Mark) -> u64 {
        self.marks.iter().find(|m| m.boot == own.boot && m.producer == own.producer).map_or(0, |m| m.n)
    }

    /// The state of a model, made if there is none yet.
    pub(super) fn model_mut(&mut self, upstream_model: &str) -> &mut ScopeState {
        if !self.models.contains_key(upstream_model) {
            self.make_room();
        }
        let policy = self.model_breaker(upstream_model);
        self.models.entry(upstream_model.to_owned()).or_insert_with(|| ScopeState::new(&policy))
    }

    fn make_room(&mut self) {
        while self.models.len() >= MODELS_MAX {
            let oldest = self.models.iter().min_by_key(|(name, model)| (model.heard, *name)).map(|(n, _)| n.clone());
            let Some(oldest) = oldest else { return };
            self.models.remove(&oldest);
        }
    }
}

/// Key of the fold's checkpoint in the bucket of selector values.
pub const FOLD_KEY: &str = "_fold";

/// Key of a source's value in the bucket of selector values, e.g. `channel.42`; `source.parse()` reads it back.
#[must_use]
pub fn value_key(source: Source) -> String {
    source.to_string().replace(':', ".")
}
