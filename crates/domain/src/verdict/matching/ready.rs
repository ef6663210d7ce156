//! A rule made ready: its words as numbers, its patterns compiled, its treatment worked out.

use std::sync::Arc;

use chrono::{DateTime, NaiveDate, NaiveTime};
use regex::{Regex, RegexBuilder};
use serde_json::Value;
use waybill_event::failure::Sent;

use super::RuleSetError;
use super::words::{PhraseList, Vocabulary};
use crate::observation::{Fault, Limit, Phase, Shape};
use crate::verdict::rule::{Kinds, Rule, StatusRange, Treatment, When};

/// Longest phrase, in bytes: no rule quotes a whole message.
const MAX_PHRASE: usize = 80;
/// Longest regular expression, in bytes.
const MAX_PATTERN: usize = 256;
/// Most memory a compiled regular expression may take, in bytes.
const MAX_COMPILED: usize = 64 << 10;

/// One question to a member of the body or a header.
#[derive(Debug, Clone)]
pub(super) enum Ask {
    Text(Vec<String>),
    Matches(Regex),
    Present(bool),
}

#[derive(Debug, Clone)]
pub(super) struct Ready {
    pub(super) endings: u16,
    pub(super) places: u16,
    pub(super) outer: Vec<StatusRange>,
    pub(super) inner: Vec<StatusRange>,
    pub(super) providers: Vec<u32>,
    pub(super) protocols: Vec<u32>,
    pub(super) codes: Vec<u32>,
    pub(super) types: Vec<u32>,
    pub(super) params: Vec<u32>,
    pub(super) no_param: bool,
    pub(super) finish: Vec<u32>,
    pub(super) shapes: Vec<Shape>,
    pub(super) faults: Vec<Fault>,
    pub(super) phases: Vec<Phase>,
    pub(super) sent: Vec<Sent>,
    pub(super) limits: Vec<Limit>,
    pub(super) facts: Vec<(String, Vec<String>)>,
    pub(super) phrases: Vec<u32>,
    pub(super) and_phrases: Vec<u32>,
    pub(super) not_phrases: Vec<u32>,
    pub(super) matches: Option<Regex>,
    pub(super) body: Vec<(String, Ask)>,
    pub(super) headers: Vec<(String, Ask)>,
    /// From when on it holds, in milliseconds since 1970.
    pub(super) from_ms: Option<i64>,
    /// `id@vN`.
    pub(super) label: Arc<str>,
    pub(super) treatment: Treatment,
    /// Whether its verdicts are about what no rule knows.
    pub(super) unmatched: bool,
}

impl Ready {
    /// The label without the version.
    pub(super) fn id(&self) -> &str {
        self.label.rsplit_once("@v").map_or(&*self.label, |(id, _)| id)
    }
}

/// What the rules of a set share.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) words: Vocabulary,
    pub(super) phrases: PhraseList,
}

impl Shared {
    /// Makes a rule ready.
    pub(super) fn ready(&mut self, kinds: &Kinds, rule: &Rule, unmatched: bool) -> Result<Ready, RuleSetError> {
        let kind = kinds.get(&rule.kind).ok_or(RuleSetError::MissingKind { kind: rule.kind })?.of(rule.kind);
        let treatment = rule.but.over(&kind);
        super::check_client(&treatment, &rule.id)?;
        let when = &rule.when;
        let phrases = || when.phrases.iter().chain(&when.and_phrases).chain(&when.not_phrases);
        if phrases().any(|phrase| phrase.is_empty() || phrase.len() > MAX_PHRASE) {
            return Err(RuleSetError::Phrase { id: rule.id.clone() });
        }
        let wrong = |reason: String| RuleSetError::Selector { id: rule.id.clone(), reason };
        let (body, headers) = asks(when).map_err(wrong)?;
        let from_ms = rule.effective_from.as_deref().map(moment).transpose().map_err(wrong)?;
        for hint in treatment.hint.iter().flat_map(|hint| &hint.also) {
            if hint.header.is_some() == hint.body.is_some() {
                return Err(wrong("a hint stands in a header or in the body: exactly one is named".to_owned()));
            }
        }
        Ok(Ready {
            endings: mask(when.endings.iter().map(|ending| *ending as u16)),
            places: mask(when.places.iter().map(|place| *place as u16)),
            outer: when.outer.clone(),
            inner: when.inner.clone(),
            providers: self.words.providers.numbers(&when.providers),
            protocols: self.words.protocols.numbers(&when.protocols),
            codes: self.words.codes.numbers(&when.codes),
            types: self.words.types.numbers(&when.types),
            params: self.words.params.numbers(&when.params),
            no_param: when.no_param,
            finish: self.words.finish.numbers(&when.finish),
            shapes: when.shapes.clone(),
            faults: when.faults.clone(),
            phases: when.phases.clone(),
            sent: when.sent.clone(),
            limits: when.limits.clone(),
            facts: when.facts.iter().map(|(name, words)| (name.clone(), words.clone())).collect(),
            phrases: self.phrases(&when.phrases),
            and_phrases: self.phrases(&when.and_phrases),
            not_phrases: self.phrases(&when.not_phrases),
            matches: when.matches.as_deref().map(pattern).transpose().map_err(wrong)?,
            body,
            headers,
            from_ms,
            label: rule.label().into(),
            treatment,
            unmatched,
        })
    }

    fn phrases(&mut self, list: &[String]) -> Vec<u32> {
        list.iter().map(|phrase| self.phrases.number(phrase)).collect()
    }
}

/// All where nothing is listed.
fn mask(listed: impl Iterator<Item = u16>) -> u16 {
    match listed.fold(0, |mask, at| mask | 1 << at) {
        0 => u16::MAX,
        mask => mask,
    }
}

type Asked = Vec<(String, Ask)>;

fn asks(when: &When) -> Result<(Asked, Asked), String> {
    let body = when.body.iter().map(|test| {
        if !test.at.is_empty() && !test.at.starts_with('/') {
            return Err(format!("not a JSON pointer: {:?}", test.at));
        }
        let values = test.equals.iter().chain(&test.one_of).map(|value| {
            text(value)
                .ok_or_else(|| format!("{}: only words, numbers, booleans and null can be compared with", test.at))
        });
        let texts = values.collect::<Result<Vec<_>, _>>()?;
        Ok((test.at.clone(), ask(&test.at, texts, test.matches.as_deref(), test.present)?))
    });
    let headers = when.headers.iter().map(|test| {
        let texts = test.equals.iter().chain(&test.one_of).map(|text| text.to_lowercase()).collect();
        Ok((test.name.to_lowercase(), ask(&test.name, texts, test.matches.as_deref(), test.present)?))
    });
    Ok((body.collect::<Result<_, String>>()?, headers.collect::<Result<_, String>>()?))
}

fn ask(of: &str, texts: Vec<String>, matches: Option<&str>, present: Option<bool>) -> Result<Ask, String> {
    match (texts.is_empty(), matches, present) {
        (false, None, None) => Ok(Ask::Text(texts)),
        (true, Some(matches), None) => Ok(Ask::Matches(pattern(matches)?)),
        (true, None, Some(present)) => Ok(Ask::Present(present)),
        _ => Err(format!("{of}: exactly one of equals or in, matches, present is asked")),
    }
}

/// The text of a scalar, in lower case.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => Some("null".to_owned()),
        Value::Bool(said) => Some(said.to_string()),
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) => Some(text.to_lowercase()),
        Value::Array(_) | Value::Object(_) => None,
    }
}

/// Regular expressions of this kind match in time linear in the text, and what they compile to is bounded.
fn pattern(text: &str) -> Result<Regex, String> {
    if text.is_empty() || text.len() > MAX_PATTERN {
        return Err(format!("a regular expression is empty or longer than {MAX_PATTERN} bytes"));
    }
    let built =
        RegexBuilder::new(text).case_insensitive(true).size_limit(MAX_COMPILED).dfa_size_limit(MAX_COMPILED).build();
    built.map_err(|fault| fault.to_string())
}

fn moment(text: &str) -> Result<i64, String> {
    let day = |text: &str| text.parse::<NaiveDate>().ok().map(|day| day.and_time(NaiveTime::MIN).and_utc());
    let moment = day(text).or_else(|| DateTime::parse_from_rfc3339(text).ok().map(|moment| moment.to_utc()));
    moment.map(|moment| moment.timestamp_millis()).ok_or_else(|| format!("effective_from is no date: {text:?}"))
}
