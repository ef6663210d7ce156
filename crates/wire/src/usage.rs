//! Token counts as upstreams report them, under the names that different upstreams use.

use serde_json::Value;

use crate::json::Scanner;

/// Reported token counts. Absent means not reported, which is not zero; only whole numbers count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt, cached ones included.
    pub prompt: Option<u64>,
    /// Tokens of the answer, reasoning included.
    pub completion: Option<u64>,
    /// Tokens of the prompt that came from a cache.
    pub cached: Option<u64>,
    /// Tokens of the answer that were reasoning.
    pub reasoning: Option<u64>,
    /// The total as reported; never computed here.
    pub total: Option<u64>,
}

impl Usage {
    /// Reads a `usage` object; none if it isn't an object or holds no count that is known.
    #[must_use]
    pub fn read(usage: &Value) -> Option<Self> {
        let count = |paths: &[&str]| paths.iter().find_map(|path| usage.pointer(path)?.as_u64());
        let usage = Self {
            prompt: count(&["/prompt_tokens", "/input_tokens"]),
            completion: count(&["/completion_tokens", "/output_tokens"]),
            cached: count(&[
                "/prompt_tokens_details/cached_tokens",
                "/input_tokens_details/cached_tokens",
                "/prompt_cache_hit_tokens",
                "/cached_tokens",
            ]),
            reasoning: count(&[
                "/completion_tokens_details/reasoning_tokens",
                "/output_tokens_details/reasoning_tokens",
                "/reasoning_tokens",
            ]),
            total: count(&["/total_tokens"]),
        };
        (usage != Self::default()).then_some(usage)
    }

    /// Takes a `usage` value of any kind; nothing if it isn't JSON, and none within where it reports nothing.
    pub(crate) fn take(value: &mut Scanner<'_>) -> Option<Option<Self>> {
        if value.null() {
            return Some(None);
        }
        let begin = value.clone();
        if let Some(known) = Known::scan(value) {
            let usage = known.counts();
            return Some((usage != Self::default()).then_some(usage));
        }
        // Counts that are no whole numbers, names given twice: rare, so that it may cost a tree.
        *value = begin;
        let text = value.raw()?;
        Some(serde_json::from_str(text).ok().as_ref().and_then(Self::read))
    }

    /// The later report of the two, field by field: streams report running totals.
    #[must_use]
    pub fn or_earlier(self, earlier: Self) -> Self {
        Self {
            prompt: self.prompt.or(earlier.prompt),
            completion: self.completion.or(earlier.completion),
            cached: self.cached.or(earlier.cached),
            reasoning: self.reasoning.or(earlier.reasoning),
            total: self.total.or(earlier.total),
        }
    }
}

/// The names of [`Usage::read`] where all is of the expected type.
#[derive(Default)]
struct Known {
    prompt_tokens: Option<u64>,
    input_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    output_tokens: Option<u64>,
    prompt_tokens_details: Option<Details>,
    input_tokens_details: Option<Details>,
    prompt_cache_hit_tokens: Option<u64>,
    cached_tokens: Option<u64>,
    completion_tokens_details: Option<Details>,
    output_tokens_details: Option<Details>,
    reasoning_tokens: Option<u64>,
    total_tokens: Option<u64>,
}

#[derive(Default)]
struct Details {
    cached_tokens: Option<u64>,
    reasoning_tokens: Option<u64>,
}

/// Takes a value that may be `null`, into a place where none was before: given twice, a tree decides.
fn once<'a, T>(
    place: &mut Option<T>,
    value: &mut Scanner<'a>,
    read: impl FnOnce(&mut Scanner<'a>) -> Option<T>,
) -> Option<()> {
    let new = place.is_none();
    if value.null() {
        return new.then_some(());
    }
    *place = Some(read(value)?);
    new.then_some(())
}

fn whole_number(value: &mut Scanner<'_>) -> Option<u64> {
    value.raw()?.parse().ok()
}

impl Details {
    fn scan(text: &mut Scanner<'_>) -> Option<Self> {
        let mut details = Self::default();
        text.object(|name, value| match name {
            "cached_tokens" => once(&mut details.cached_tokens, value, whole_number),
            "reasoning_tokens" => once(&mut details.reasoning_tokens, value, whole_number),
            _ => value.raw().map(drop),
        })?;
        Some(details)
    }
}

impl Known {
    fn scan(text: &mut Scanner<'_>) -> Option<Self> {
        let mut known = Self::default();
        text.object(|name, value| match name {
            "prompt_tokens" => once(&mut known.prompt_tokens, value, whole_number),
            "input_tokens" => once(&mut known.input_tokens, value, whole_number),
            "completion_tokens" => once(&mut known.completion_tokens, value, whole_number),
            "output_tokens" => once(&mut known.output_tokens, value, whole_number),
            "prompt_tokens_details" => once(&mut known.prompt_tokens_details, value, Details::scan),
            "input_tokens_details" => once(&mut known.input_tokens_details, value, Details::scan),
            "prompt_cache_hit_tokens" => once(&mut known.prompt_cache_hit_tokens, value, whole_number),
            "cached_tokens" => once(&mut known.cached_tokens, value, whole_number),
            "completion_tokens_details" => once(&mut known.completion_tokens_details, value, Details::scan),
            "output_tokens_details" => once(&mut known.output_tokens_details, value, Details::scan),
            "reasoning_tokens" => once(&mut known.reasoning_tokens, value, whole_number),
            "total_tokens" => once(&mut known.total_tokens, value, whole_number),
            _ => value.raw().map(drop),
        })?;
        Some(known)
    }
}

impl Known {
    fn counts(self) -> Usage {
        let cached = |details: Option<Details>| details.and_then(|details| details.cached_tokens);
        let reasoning = |details: Option<Details>| details.and_then(|details| details.reasoning_tokens);
        Usage {
            prompt: self.prompt_tokens.or(self.input_tokens),
            completion: self.completion_tokens.or(self.output_tokens),
            cached: cached(self.prompt_tokens_details)
                .or(cached(self.input_tokens_details))
                .or(self.prompt_cache_hit_tokens)
                .or(self.cached_tokens),
            reasoning: reasoning(self.completion_tokens_details)
                .or(reasoning(self.output_tokens_details))
                .or(self.reasoning_tokens),
            total: self.total_tokens,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<[Option<u64>; 5]>) {
        let expected = expected.map(|[prompt, completion, cached, reasoning, total]| Usage {
            prompt,
            completion,
            cached,
            reasoning,
            total,
        });
        let mut scanner = Scanner::new(text);
        assert_eq!(Usage::take(&mut scanner), Some(expected), "{text}");
        assert_eq!(scanner.end(), Some(()), "all of it is taken: {text}");
        let tree: Value = serde_json::from_str(text).unwrap();
        assert_eq!(Usage::read(&tree), expected, "as a tree: {text}");
    }

    #[test]
    fn names_of_several_upstreams() {
        check(
            r#"{"prompt_tokens":9,"completion_tokens":8,"total_tokens":17,"prompt_tokens_details":{"cached_tokens":4},
                "completion_tokens_details":{"reasoning_tokens":3}}"#,
            Some([Some(9), Some(8), Some(4), Some(3), Some(17)]),
        );
        check(
            r#"{"prompt_tokens":9,"completion_tokens":0,"prompt_cache_hit_tokens":2}"#,
            Some([Some(9), Some(0), Some(2), None, None]),
        );
        check(r#"{"input_tokens":1,"output_tokens":2}"#, Some([Some(1), Some(2), None, None, None]));
    }

    #[test]
    fn what_is_no_whole_number_is_not_reported() {
        check(r#"{"prompt_tokens":9.5,"completion_tokens":-1,"total_tokens":"3"}"#, None);
        check("{}", None);
        check("null", None);
        check("[]", None);
        check(r#"{"prompt_tokens":2,"prompt_tokens_details":7}"#, Some([Some(2), None, None, None, None]));
        check(r#"{"prompt_tokens":2,"prompt_tokens":null}"#, None);
        check(r#"{"prompt_tokens":null,"prompt_tokens":2}"#, Some([Some(2), None, None, None, None]));
        check(r#"{"prompt_tokens":2,"prompt_tokens":3}"#, Some([Some(3), None, None, None, None]));
        check(r#"{"prompt_tokens":null,"completion_tokens":5}"#, Some([None, Some(5), None, None, None]));
    }
}
