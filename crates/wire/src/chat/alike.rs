//! Events of a stream that differ from the one before in nothing but the text they add, and in the padding that some
//! upstreams put beside it. Nearly all do, and to see that takes a fraction of reading one.

use std::ops::Range;

use smallvec::SmallVec;

use crate::json::plain_string;

/// Where the strings of an event stand that may differ, without their quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Places {
    /// The text that the model says. It says nothing else.
    pub(super) text: Range<usize>,
    /// What is put there to hide its length.
    pub(super) padding: Option<Range<usize>>,
}

/// The last event that was read, without those strings.
#[derive(Debug, Default)]
pub(super) struct Alike {
    /// What stands before, between and behind them, one after the other.
    rest: Vec<u8>,
    /// Where each of these ends.
    ends: SmallVec<[usize; 3]>,
    /// Whether the padding stands before the text.
    padding_first: bool,
}

impl Alike {
    /// Whether an event that is like the last one but for these strings says anything; nothing if it isn't like it.
    pub(super) fn says_something(&self, data: &[u8]) -> Option<bool> {
        let (mut left, mut begin, mut says) = (data, 0, false);
        for (number, end) in self.ends.iter().enumerate() {
            left = left.strip_prefix(self.rest.get(begin..*end)?)?;
            begin = *end;
            if number + 1 == self.ends.len() {
                break;
            }
            let length = plain_string(left)?;
            let (string, behind) = left.split_at_checked(length)?;
            if number == usize::from(self.padding_first) {
                says = !string.is_empty();
            }
            left = behind;
        }
        (left.is_empty() && !self.ends.is_empty()).then_some(says)
    }

    /// An event was read.
    pub(super) fn remember(&mut self, data: &[u8], places: &Places) {
        self.rest.clear();
        self.ends.clear();
        let Places { text, padding } = places;
        self.padding_first = padding.as_ref().is_some_and(|padding| padding.start < text.start);
        let second = if self.padding_first { Some(text) } else { padding.as_ref() };
        let first = padding.as_ref().filter(|_| self.padding_first).unwrap_or(text);
        let mut from = 0;
        for place in [Some(first), second].into_iter().flatten() {
            self.add(data.get(from..place.start));
            from = place.end;
        }
        self.add(data.get(from..));
    }

    fn add(&mut self, piece: Option<&[u8]>) {
        self.rest.extend_from_slice(piece.unwrap_or_default());
        self.ends.push(self.rest.len());
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::super::watch::{Seen, StreamWatch};
    use crate::sse::Splitter;

    /// What one watch says of each event, and what a watch says that sees it alone.
    fn check(events: &[String]) {
        let mut watch = StreamWatch::new();
        for event in events {
            let mut splitter = Splitter::new(1 << 20);
            splitter.push(&Bytes::from([b"data: ", event.as_bytes(), b"\n\n"].concat()));
            let frame = splitter.next_frame().unwrap().unwrap();
            let expected = StreamWatch::new().take(&frame);
            assert_eq!(watch.take(&frame), expected, "{event} after others of {events:?}");
        }
    }

    fn chunk(text: &str, tail: &str) -> String {
        format!(r#"{{"id":"c","model":"m","choices":[{{"index":0,"delta":{{"content":{text}}}}}]{tail}}}"#)
    }

    #[test]
    fn texts_come_one_after_the_other_and_what_is_no_text_is_read() {
        let odd = [
            r#""a""#,
            r#""b c""#,
            r#""""#,
            r#""é""#,
            r#""\n""#,
            r#""\x""#,
            "null",
            r#""a"b""#,
            "\"\u{1}\"",
            r#"{"a":1}"#,
            "1",
        ];
        for first in odd {
            for second in odd {
                check(&[
                    chunk(first, ""),
                    chunk(second, ""),
                    chunk(first, ""),
                    chunk(second, r#","usage":{"total_tokens":1}"#),
                ]);
            }
        }
    }

    #[test]
    fn padding_is_padding_wherever_it_stands() {
        let padded = |text: &str, padding: &str| chunk(text, &format!(r#","obfuscation":{padding}"#));
        let first =
            |text: &str, padding: &str| chunk(text, "").replacen('{', &format!(r#"{{"obfuscation":{padding},"#), 1);
        for with in [&padded as &dyn Fn(&str, &str) -> String, &first] {
            check(&[
                with(r#""a""#, r#""xyz""#),
                with(r#""bc""#, r#""""#),
                with(r#""""#, r#""x""#),
                with(r#""""#, "null"),
            ]);
            check(&[with(r#""""#, r#""xyz""#), with(r#""bc""#, r#""\u00e9""#), with(r#""a""#, r#""","error":"no""#)]);
        }
        check(&[padded(r#""a""#, r#""x","obfuscation":"y""#), padded(r#""b""#, r#""x","obfuscation":"z""#)]);
    }

    #[test]
    fn a_delta_that_says_more_than_text_is_read_each_time() {
        let said = |more: &str| chunk(&format!(r#""",{more}"#), "");
        check(&[said(r#""tool_calls":[]"#), said(r#""tool_calls":[{"index":0}]"#), said(r#""refusal":"no""#)]);
        check(&[chunk(r#""","role":"assistant""#, ""), chunk(r#""hello","role":"assistant""#, "")]);
    }

    #[test]
    fn of_what_the_model_says_nothing_is_kept() {
        let mut watch = StreamWatch::new();
        let mut splitter = Splitter::new(1 << 20);
        let events = [chunk(r#""canary""#, ""), chunk(r#""canary""#, r#","obfuscation":"canary""#)];
        for event in events {
            splitter.push(&Bytes::from([b"data: ", event.as_bytes(), b"\n\n"].concat()));
            assert_eq!(watch.take(&splitter.next_frame().unwrap().unwrap()), Seen::Content);
            let kept = String::from_utf8(watch.alike().rest.clone()).unwrap();
            assert!(kept.contains("choices") && !kept.contains("canary"), "{kept}");
        }
    }

    proptest! {
        #[test]
        fn a_watch_sees_what_one_without_memory_sees(events in prop::collection::vec((
            "[a-c\\\\\"\u{7}é]{0,4}",
            prop::sample::select(vec!["", r#","usage":null"#, r#","usage":{"total_tokens":2}"#, r#","obfuscation":"a""#,
                r#","obfuscation":"bcd""#, r#","error":null"#, r#","error":{"message":"no"}"#, "}", r#","x":"#]),
        ), 1..12)) {
            let events: Vec<String> = events.iter().map(|(text, tail)| chunk(&format!("\"{text}\""), tail)).collect();
            check(&events);
        }
    }
}
