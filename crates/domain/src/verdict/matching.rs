//! A rule set made ready for matching: levels in order, kinds in precedence, phrases in lower case.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use waybill_event::FailureKind;
use waybill_event::failure::{FallbackReason, Health, Sent};

use super::grams::Grams;
use super::public::PublicCode;
use super::rule::{BlockRule, ClientRule, Elsewhere, EndingKind, Rule, RuleSetData, StatusRange, Treatment, When};
use crate::observation::{Ending, Fault, Limit, Observation, Phase, Shape};

/// Most bytes of a message that phrases are looked for in.
const MAX_MESSAGE: usize = 2_048;
/// Most rules a set holds: a verdict looks at each of them.
const MAX_RULES: usize = 2_000;
/// Longest phrase, in bytes: no rule quotes a whole message.
const MAX_PHRASE: usize = 80;

/// A rule set, checked and ready for use. Equal data give equal verdicts.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "RuleSetData", into = "RuleSetData")]
pub struct RuleSet {
    data: RuleSetData,
    rules: Vec<Ready>,
    /// Label and treatment of what no rule knows.
    last: (Arc<str>, Treatment),
}

#[derive(Debug, Clone)]
struct Ready {
    when: When,
    label: Arc<str>,
    treatment: Treatment,
}

impl Ready {
    /// The label without the version.
    fn id(&self) -> &str {
        self.label.rsplit_once("@v").map_or(&*self.label, |(id, _)| id)
    }
}

/// Why a rule set was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleSetError {
    /// It isn't a rule set.
    #[error("not a rule set: {reason}")]
    Unreadable {
        /// What is wrong.
        reason: String,
    },
    /// A kind has no treatment.
    #[error("nothing says what follows from {kind}")]
    MissingKind {
        /// The kind.
        kind: FailureKind,
    },
    /// Two rules have one id.
    #[error("two rules are called {id}")]
    Twice {
        /// The id.
        id: String,
    },
    /// Too many rules.
    #[error("more than {MAX_RULES} rules")]
    TooMany,
    /// A rule or kind would give the client a 401, 402 or 403, as if its own key were at fault.
    #[error("{of} would blame the client's own credential")]
    BlamesClient {
        /// The rule or kind.
        of: String,
    },
    /// A phrase is empty or too long.
    #[error("rule {id} has a phrase that is empty or longer than {MAX_PHRASE} bytes")]
    Phrase {
        /// The rule.
        id: String,
    },
    /// A rule of an operator has the id of a shipped one.
    #[error("{id} is the id of a shipped rule")]
    Shipped {
        /// The id.
        id: String,
    },
    /// A rule that shall not hold isn't shipped.
    #[error("no shipped rule is called {id}")]
    NotShipped {
        /// The id.
        id: String,
    },
    /// The last rule doesn't hold for everything.
    #[error("the last rule must hold for everything")]
    NoLastRule,
}

impl RuleSet {
    /// Reads a rule set from JSON and checks it.
    ///
    /// # Errors
    /// [`RuleSetError`].
    pub fn from_json(text: &str) -> Result<Self, RuleSetError> {
        let unreadable = |e: serde_json::Error| RuleSetError::Unreadable { reason: e.to_string() };
        Self::try_from(serde_json::from_str::<RuleSetData>(text).map_err(unreadable)?)
    }

    /// A set that takes every observation for a failure of the gateway itself: what is left when there are no rules.
    pub(super) fn without_rules(data: RuleSetData) -> Self {
        let treatment = Treatment {
            kind: FailureKind::LocalFailure,
            elsewhere: Elsewhere::Never,
            same: None,
            source_health: Health::None,
            model_health: Health::None,
            block: BlockRule::None,
            hint: None,
            client: Some(ClientRule { code: PublicCode::InternalError, keep: Vec::new(), status: None }),
            maybe_billed: true,
            counts: true,
            fallback: FallbackReason::Other,
        };
        Self { data, rules: Vec::new(), last: ("no_rules@v0".into(), treatment) }
    }

    /// The set as data.
    #[must_use]
    pub const fn data(&self) -> &RuleSetData {
        &self.data
    }

    /// What follows from a kind, unless a rule says otherwise.
    #[must_use]
    pub fn kind(&self, kind: FailureKind) -> Option<Treatment> {
        self.data.kinds.get(&kind).map(|treatment| treatment.of(kind))
    }

    /// The label and treatment of the first rule that holds and isn't left out.
    pub(super) fn find(&self, observation: &Observation, holds: &dyn Fn(&str) -> bool) -> (Arc<str>, &Treatment) {
        let facts = Facts::of(observation);
        self.rules
            .iter()
            .find(|rule| facts.meet(&rule.when) && holds(rule.id()))
            .map_or_else(|| (self.last.0.clone(), &self.last.1), |rule| (rule.label.clone(), &rule.treatment))
    }
}

impl TryFrom<RuleSetData> for RuleSet {
    type Error = RuleSetError;

    fn try_from(data: RuleSetData) -> Result<Self, RuleSetError> {
        let rank = |kind| data.precedence.iter().position(|k| *k == kind).unwrap_or(data.precedence.len());
        let mut rules = Vec::new();
        let mut ids = BTreeSet::new();
        for (kind, treatment) in &data.kinds {
            check_client(&treatment.of(*kind), kind.as_str())?;
        }
        for level in &data.levels {
            let mut of_level: Vec<&Rule> = level.rules.iter().collect();
            if level.by_kind {
                // The sort is stable: within a kind the order of the data decides.
                of_level.sort_by_key(|rule| rank(rule.kind));
            }
            for rule in of_level {
                if !ids.insert(rule.id.as_str()) {
                    return Err(RuleSetError::Twice { id: rule.id.clone() });
                }
                rules.push(ready(&data, rule)?);
            }
        }
        if rules.len() > MAX_RULES {
            return Err(RuleSetError::TooMany);
        }
        match rules.pop() {
            Some(last) if last.when == When::default() => Ok(Self { rules, last: (last.label, last.treatment), data }),
            Some(_) | None => Err(RuleSetError::NoLastRule),
        }
    }
}

impl From<RuleSet> for RuleSetData {
    fn from(set: RuleSet) -> Self {
        set.data
    }
}

fn ready(data: &RuleSetData, rule: &Rule) -> Result<Ready, RuleSetError> {
    let kind = data.kinds.get(&rule.kind).ok_or(RuleSetError::MissingKind { kind: rule.kind })?.of(rule.kind);
    let treatment = rule.but.over(&kind);
    check_client(&treatment, &rule.id)?;
    let phrases = || rule.when.phrases.iter().chain(&rule.when.and_phrases);
    if phrases().any(|phrase| phrase.is_empty() || phrase.len() > MAX_PHRASE) {
        return Err(RuleSetError::Phrase { id: rule.id.clone() });
    }
    let lower = |list: &[String]| list.iter().map(|text| text.to_lowercase()).collect();
    let when = When {
        providers: lower(&rule.when.providers),
        codes: lower(&rule.when.codes),
        types: lower(&rule.when.types),
        params: lower(&rule.when.params),
        phrases: lower(&rule.when.phrases),
        and_phrases: lower(&rule.when.and_phrases),
        ..rule.when.clone()
    };
    Ok(Ready { when, label: rule.label().into(), treatment })
}

pub(super) fn check_client(treatment: &Treatment, of: &str) -> Result<(), RuleSetError> {
    let ours = |range: &StatusRange| (401..=403).any(|status| range.contains(status));
    let blames = treatment.client.as_ref().is_some_and(|client| {
        client.keep.iter().any(ours) || (401..=403).contains(&client.status.unwrap_or_else(|| client.code.status()))
    });
    if blames { Err(RuleSetError::BlamesClient { of: of.to_owned() }) } else { Ok(()) }
}

/// An observation in the words of the selectors, lowered once.
struct Facts {
    ending: EndingKind,
    provider: String,
    status: Option<u16>,
    code: Option<String>,
    kind: Option<String>,
    param: Option<String>,
    message: Option<(String, Grams)>,
    shape: Option<Shape>,
    fault: Option<Fault>,
    phase: Option<Phase>,
    sent: Option<Sent>,
    limit: Option<Limit>,
}

impl Facts {
    fn of(observation: &Observation) -> Self {
        let error = &observation.error;
        let lower = |text: &Option<String>| text.as_deref().filter(|t| !t.is_empty()).map(str::to_lowercase);
        let message = error.message.as_deref().map(|message| {
            let lowered = bounded(message).to_lowercase();
            let grams = Grams::of(lowered.as_bytes());
            (lowered, grams)
        });
        let mut facts = Self {
            ending: EndingKind::Local,
            provider: observation.provider.to_lowercase(),
            status: None,
            code: lower(&error.code),
            kind: lower(&error.kind),
            param: lower(&error.param),
            message,
            shape: None,
            fault: None,
            phase: None,
            sent: None,
            limit: None,
        };
        match &observation.ending {
            Ending::Success => facts.ending = EndingKind::Success,
            Ending::Status { status, shape } => {
                facts.ending = EndingKind::Status;
                facts.status = Some(*status);
                facts.shape = Some(*shape);
            }
            Ending::Wrong2xx { shape, .. } => {
                facts.ending = EndingKind::Wrong2xx;
                facts.status = inner_status(error.status, error.code.as_deref());
                facts.shape = Some(*shape);
            }
            Ending::Transport(fault) => {
                facts.ending = EndingKind::Transport;
                facts.fault = Some(fault.fault);
                facts.phase = Some(fault.phase);
                facts.sent = Some(fault.sent);
            }
            Ending::TimedOut { limit, sent } => {
                facts.ending = EndingKind::TimedOut;
                facts.limit = Some(*limit);
                facts.sent = Some(*sent);
            }
            Ending::ClientGone => facts.ending = EndingKind::ClientGone,
            Ending::Local => facts.ending = EndingKind::Local,
        }
        facts
    }

    fn meet(&self, when: &When) -> bool {
        one_of(&when.endings, Some(self.ending))
            && (when.status.is_empty() || self.status.is_some_and(|s| when.status.iter().any(|r| r.contains(s))))
            && one_of(&when.shapes, self.shape)
            && one_of(&when.faults, self.fault)
            && one_of(&when.phases, self.phase)
            && one_of(&when.sent, self.sent)
            && one_of(&when.limits, self.limit)
            && one_text(&when.providers, Some(&self.provider))
            && one_text(&when.codes, self.code.as_deref())
            && one_text(&when.types, self.kind.as_deref())
            && one_text(&when.params, self.param.as_deref())
            && !(when.no_param && self.param.is_some())
            && self.says(&when.phrases)
            && self.says(&when.and_phrases)
    }

    fn says(&self, phrases: &[String]) -> bool {
        if phrases.is_empty() {
            return true;
        }
        let Some((message, grams)) = &self.message else { return false };
        phrases.iter().any(|phrase| grams.may_hold(phrase.as_bytes()) && message.contains(phrase.as_str()))
    }
}

/// The status that an error inside a 2xx speaks of: in a field of its own, or as its code.
fn inner_status(field: Option<u16>, code: Option<&str>) -> Option<u16> {
    field.or_else(|| code.and_then(|code| code.parse().ok())).filter(|status| (300..600).contains(status))
}

fn bounded(message: &str) -> &str {
    let mut end = message.len().min(MAX_MESSAGE);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    message.get(..end).unwrap_or_default()
}

fn one_of<T: PartialEq>(list: &[T], met: Option<T>) -> bool {
    list.is_empty() || met.is_some_and(|met| list.contains(&met))
}

fn one_text(list: &[String], met: Option<&str>) -> bool {
    list.is_empty()
        || met.is_some_and(|met| {
            list.iter().any(|text| match text.strip_suffix('*') {
                Some(start) => met.starts_with(start),
                None => met == text,
            })
        })
}
