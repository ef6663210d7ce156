//! The usual shape of an answer, whole or one event of a stream, scanned for what is looked at. It gives up on anything
//! unusual: fields of other types, names given twice, errors.

use super::choice::{OUTPUT_FIELDS, TEXT};
use crate::json::{self, Scanner};
use crate::usage::Usage;

/// What the top of an answer says.
#[derive(Default)]
pub(super) struct Body<'a> {
    /// Its choices.
    pub(super) choices: Option<Choices<'a>>,
    /// The usage it reports.
    pub(super) usage: Option<Usage>,
    /// The model it names.
    pub(super) model: Option<&'a str>,
    /// What is put there to hide how long the text is, a string.
    pub(super) padding: Option<&'a str>,
}

/// All choices together.
#[derive(Default)]
pub(super) struct Choices<'a> {
    /// How many there are.
    pub(super) count: usize,
    /// Whether the model says something in one of them.
    pub(super) say_something: bool,
    /// Whether all of them have what a whole answer's choice has.
    pub(super) whole: bool,
    /// The first finish reason given.
    pub(super) finish_reason: Option<&'a str>,
    /// The text that the last delta adds, a string, where it says nothing else.
    pub(super) text: Option<&'a str>,
}

/// What is in a delta or a message.
#[derive(Default)]
struct Output<'a> {
    /// Its text, as it stands there.
    text: Option<&'a str>,
    /// Whether it says something else.
    more: bool,
}

impl Output<'_> {
    fn says_something(&self) -> bool {
        self.more || self.text.is_some_and(json::says_something)
    }
}

impl<'a> Body<'a> {
    /// Reads a body.
    pub(super) fn scan(text: &'a str) -> Option<Self> {
        let mut body = Self::default();
        let mut twice = Twice::default();
        let mut scanner = Scanner::new(text);
        scanner.object(|name, value| {
            match name {
                "choices" => {
                    twice.first(0)?;
                    if !value.null() {
                        body.choices = Some(Choices::scan(value)?);
                    }
                }
                "usage" => {
                    twice.first(1)?;
                    body.usage = Usage::take(value)?;
                }
                "model" => {
                    twice.first(2)?;
                    body.model = value.text()?;
                }
                "obfuscation" => {
                    let raw = value.raw()?;
                    // Given twice, it is what differs from event to event no more than anything else.
                    body.padding = if twice.first(3).is_some() && raw.starts_with('"') { Some(raw) } else { None };
                }
                "error" if json::says_something(value.raw()?) => return None,
                "error" => {}
                // How MiniMax ends a stream that its filter stopped.
                "base_resp" if !all_is_well(value.raw()?) => return None,
                "base_resp" => {}
                _ => drop(value.raw()?),
            }
            Some(())
        })?;
        scanner.end()?;
        Some(body)
    }
}

impl<'a> Choices<'a> {
    fn scan(list: &mut Scanner<'a>) -> Option<Self> {
        let mut choices = Self { whole: true, ..Self::default() };
        list.array(|choice| choices.add(choice))?;
        Some(choices)
    }

    fn add(&mut self, choice: &mut Scanner<'a>) -> Option<()> {
        let (mut whole, mut more) = (false, false);
        let mut twice = Twice::default();
        choice.object(|name, value| {
            match name {
                "delta" => {
                    twice.first(0)?;
                    let said = output(value)?.unwrap_or_default();
                    self.say_something |= said.says_something();
                    self.text = said.text.filter(|text| !said.more && text.starts_with('"'));
                }
                "message" => {
                    twice.first(1)?;
                    let said = output(value)?;
                    whole |= said.is_some();
                    self.say_something |= said.unwrap_or_default().says_something();
                    more = true;
                }
                "text" => {
                    twice.first(2)?;
                    let raw = value.raw()?;
                    whole |= raw != "null";
                    self.say_something |= json::says_something(raw);
                    more = true;
                }
                "finish_reason" => {
                    twice.first(3)?;
                    let why = value.text()?;
                    self.finish_reason = self.finish_reason.or(why);
                }
                _ => drop(value.raw()?),
            }
            Some(())
        })?;
        self.count += 1;
        self.whole &= whole;
        if more {
            self.text = None;
        }
        Some(())
    }
}

/// What is in a delta or a message; nothing if it is `null`.
fn output<'a>(value: &mut Scanner<'a>) -> Option<Option<Output<'a>>> {
    if value.null() {
        return Some(None);
    }
    let mut output = Output::default();
    let mut known = 0;
    value.object(|name, value| {
        let raw = value.raw()?;
        if let Some(field) = OUTPUT_FIELDS.iter().position(|field| *field == name) {
            // Given twice, the last one counts, which a tree knows.
            let bit = 1_u32 << field;
            if known & bit != 0 {
                return None;
            }
            known |= bit;
            match name {
                TEXT => output.text = Some(raw),
                _ => output.more |= json::says_something(raw),
            }
        }
        Some(())
    })?;
    Some(Some(output))
}

/// Whether a `base_resp` says that nothing is wrong.
fn all_is_well(raw: &str) -> bool {
    let mut zero = false;
    let mut scanner = Scanner::new(raw);
    scanner.object(|name, value| {
        let value = value.raw()?;
        zero |= name == "status_code" && value == "0";
        Some(())
    });
    zero
}

/// Names that were there.
#[derive(Default)]
struct Twice(u8);

impl Twice {
    /// Nothing if this one was there before.
    fn first(&mut self, number: u8) -> Option<()> {
        let bit = 1 << number;
        let new = self.0 & bit == 0;
        self.0 |= bit;
        new.then_some(())
    }
}
