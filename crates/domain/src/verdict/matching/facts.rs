//! An observation in the words of the rules: looked up once, then compared as numbers.

use std::cell::OnceCell;

use serde_json::Value;
use waybill_event::failure::Sent;

use super::ready::{Ask, Ready, text};
use super::words::{Ids, Phrases, Said, Vocabulary, Words};
use crate::observation::{Ending, Fault, Limit, Observation, Phase, Shape};
use crate::verdict::rule::{EndingKind, Place, StatusRange};

/// Most bytes of a message that phrases and patterns are looked for in.
const MAX_MESSAGE: usize = 2_048;
/// Most bytes of another text that a pattern is looked for in.
const MAX_TEXT: usize = 1_024;

pub(super) struct Facts<'a> {
    observation: &'a Observation,
    phrases: &'a Phrases,
    pub(super) status: Option<u16>,
    ending: u16,
    place: u16,
    outer: Option<u16>,
    inner: Option<u16>,
    provider: Ids,
    protocol: Ids,
    codes: Ids,
    kinds: Ids,
    param: Ids,
    has_param: bool,
    finish: Ids,
    shape: Option<Shape>,
    fault: Option<Fault>,
    phase: Option<Phase>,
    sent: Option<Sent>,
    limit: Option<Limit>,
    message: Option<&'a str>,
    said: OnceCell<Said>,
}

impl<'a> Facts<'a> {
    pub(super) fn of(observation: &'a Observation, words: &Vocabulary, phrases: &'a Phrases) -> Self {
        let error = &observation.error;
        let ids = |words: &Words, text: Option<&str>| {
            let mut ids = Ids::new();
            text.into_iter().for_each(|text| words.meet(text, &mut ids));
            ids
        };
        let mut codes = ids(&words.codes, error.code.as_deref());
        error.reasons.iter().for_each(|reason| words.codes.meet(reason, &mut codes));
        let inner = inner_status(error.status, error.code.as_deref());
        let mut facts = Self {
            observation,
            phrases,
            status: None,
            ending: 0,
            place: 1 << Place::Transport as u16,
            outer: None,
            inner,
            provider: ids(&words.providers, Some(&observation.provider)),
            protocol: ids(&words.protocols, Some(&observation.protocol)),
            codes,
            kinds: ids(&words.types, error.kind.as_deref()),
            param: ids(&words.params, error.param.as_deref()),
            has_param: error.param.as_deref().is_some_and(|param| !param.is_empty()),
            finish: ids(&words.finish, observation.finish.as_deref()),
            shape: None,
            fault: None,
            phase: None,
            sent: None,
            limit: None,
            message: error.message.as_deref().map(|message| bounded(message, MAX_MESSAGE)),
            said: OnceCell::new(),
        };
        facts.ended(inner);
        facts
    }

    fn ended(&mut self, inner: Option<u16>) {
        let observation = self.observation;
        let in_200 = match (observation.streamed, observation.committed) {
            (false, false) => Place::Body200,
            (true, false) => Place::SseFirst,
            (_, true) => Place::SseMid,
        };
        let (kind, place) = match &observation.ending {
            Ending::Success => (EndingKind::Success, in_200),
            Ending::Status { status, shape } => {
                (self.status, self.outer, self.shape) = (Some(*status), Some(*status), Some(*shape));
                (EndingKind::Status, Place::Status)
            }
            Ending::Wrong2xx { status, shape } => {
                (self.status, self.outer, self.shape) = (inner, Some(*status), Some(*shape));
                (EndingKind::Wrong2xx, in_200)
            }
            Ending::Transport(fault) => {
                (self.fault, self.phase, self.sent) = (Some(fault.fault), Some(fault.phase), Some(fault.sent));
                (EndingKind::Transport, Place::Transport)
            }
            Ending::TimedOut { limit, sent } => {
                (self.limit, self.sent) = (Some(*limit), Some(*sent));
                (EndingKind::TimedOut, Place::Transport)
            }
            Ending::ClientGone => (EndingKind::ClientGone, Place::Transport),
            Ending::Local => (EndingKind::Local, Place::Transport),
        };
        (self.ending, self.place) = (1 << kind as u16, 1 << place as u16);
    }

    /// Whether the answer had a body that said something, known or not.
    pub(super) fn tells(&self) -> bool {
        match self.shape {
            Some(Shape::Error | Shape::UnknownJson | Shape::Text) => true,
            Some(Shape::Html | Shape::Empty | Shape::EmptyOutput | Shape::BrokenEvent | Shape::Cut) => false,
            Some(Shape::SchemaMismatch) | None => false,
        }
    }

    /// Whether a rule holds. Its status is checked by whoever asks.
    pub(super) fn meet(&self, rule: &Ready) -> bool {
        rule.endings & self.ending != 0
            && rule.places & self.place != 0
            && one_of(&rule.providers, &self.provider)
            && one_of(&rule.codes, &self.codes)
            && one_of(&rule.types, &self.kinds)
            && one_of(&rule.protocols, &self.protocol)
            && one_of(&rule.params, &self.param)
            && one_of(&rule.finish, &self.finish)
            && !(rule.no_param && self.has_param)
            && in_range(&rule.outer, self.outer)
            && in_range(&rule.inner, self.inner)
            && listed(&rule.shapes, self.shape)
            && listed(&rule.faults, self.fault)
            && listed(&rule.phases, self.phase)
            && listed(&rule.sent, self.sent)
            && listed(&rule.limits, self.limit)
            && rule.from_ms.is_none_or(|from| self.observation.at_ms == 0 || from <= self.observation.at_ms)
            && self.says(rule)
            && rule.facts.iter().all(|(name, words)| self.knows(name, words))
            && rule.headers.iter().all(|(name, ask)| self.header(name, ask))
            && rule.body.iter().all(|(at, ask)| self.body(at, ask))
            && rule.matches.as_ref().is_none_or(|matches| self.message.is_some_and(|text| matches.is_match(text)))
    }

    fn says(&self, rule: &Ready) -> bool {
        if rule.phrases.is_empty() && rule.and_phrases.is_empty() && rule.not_phrases.is_empty() {
            return true;
        }
        let said = self.said.get_or_init(|| self.message.map(|message| self.phrases.of(message)).unwrap_or_default());
        (rule.phrases.is_empty() || said.any(&rule.phrases))
            && (rule.and_phrases.is_empty() || said.any(&rule.and_phrases))
            && !said.any(&rule.not_phrases)
    }

    fn knows(&self, name: &str, words: &[String]) -> bool {
        let meets = |word: &String, wanted: &String| match wanted.strip_suffix('*') {
            Some(start) => word.starts_with(start),
            None => word == wanted,
        };
        self.observation.facts.iter().any(|(held, word)| held == name && words.iter().any(|wanted| meets(word, wanted)))
    }

    fn header(&self, name: &str, ask: &Ask) -> bool {
        let value = self.observation.headers.get(name);
        match ask {
            Ask::Text(texts) => value.is_some_and(|value| texts.iter().any(|text| text.eq_ignore_ascii_case(value))),
            Ask::Matches(pattern) => value.is_some_and(|value| pattern.is_match(value)),
            Ask::Present(present) => value.is_some() == *present,
        }
    }

    fn body(&self, at: &str, ask: &Ask) -> bool {
        let mut there =
            self.observation.body.trees().filter_map(|tree| tree.pointer(at)).filter(|value| !value.is_null());
        match ask {
            Ask::Text(texts) => there.any(|value| text(value).is_some_and(|text| texts.contains(&text))),
            Ask::Matches(pattern) => there.any(|value| match value {
                Value::String(text) => pattern.is_match(bounded(text, MAX_TEXT)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                    text(value).is_some_and(|text| pattern.is_match(&text))
                }
            }),
            Ask::Present(present) => there.next().is_some() == *present,
        }
    }
}

/// The status that an error speaks of: in a field of its own, or as its code.
fn inner_status(field: Option<u16>, code: Option<&str>) -> Option<u16> {
    field.or_else(|| code.and_then(|code| code.parse().ok())).filter(|status| (300..600).contains(status))
}

fn bounded(text: &str, max: usize) -> &str {
    text.get(..text.floor_char_boundary(max)).unwrap_or_default()
}

fn one_of(wanted: &[u32], met: &[u32]) -> bool {
    wanted.is_empty() || met.iter().any(|number| wanted.contains(number))
}

fn in_range(ranges: &[StatusRange], status: Option<u16>) -> bool {
    ranges.is_empty() || status.is_some_and(|status| ranges.iter().any(|range| range.contains(status)))
}

fn listed<T: PartialEq>(list: &[T], met: Option<T>) -> bool {
    list.is_empty() || met.is_some_and(|met| list.contains(&met))
}
